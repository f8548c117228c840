//! Instances that move from one host to another: two daemons, a bridge at each side of them, and traffic across.

#[path = "platform_migration/cutter.rs"]
mod cutter;

use cutter::{Cutter, Way};
use nfluid_testbed::process::{is_alive, signal};
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::measure::one_holds;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list, metrics_of};
use nfluid_tests::harness::two_hosts::{CLIENT, SERVER, UPLINKS};
use nfluid_tests::harness::two_platforms::{self, FIREWALL, TwoPlatforms};
use nfluid_tests::harness::within;
use nfluid_tls::testing::Authority;
use rustix::process::Signal;
use serde_json::Value;
use std::net::UdpSocket;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// The guard of the instance's port on a switch.
const GUARD: &str = "fw@guard-in";
/// Answers before and after the moves.
const ANSWERS: u64 = 50;

fn states(platform: &Platform, figure: &str) -> u64 {
    let control = platform.run_dir().join("control").join("fw");
    let found = metrics_of(&control)["nf"][figure].as_f64();
    found.unwrap_or_else(|| panic!("fw has no {figure}")) as u64
}

fn has_it(platform: &Platform) -> bool {
    platform.pids().contains_key("fw")
}

fn macs(platform: &Platform) -> Vec<Value> {
    let ports = platform.ask(&["get", "ports"]);
    let ports = ports.as_array().expect("a list").iter();
    let own = ports.filter(|port| {
        port["name"]
            .as_str()
            .is_some_and(|it| it.starts_with("fw."))
    });
    own.map(|port| port["mac"].clone()).collect()
}

fn moves(from: &Platform, to: &str) {
    let moved = from.nfluid(&["migrate", "fw", "--to", to]);
    assert!(moved.succeeded(), "{moved:?}");
}

/// Asks questions across `platform` before, during and after `moves`. For frames under way both hosts wait for some
/// milliseconds: a machine on which a thread waits longer for a core may lose one of them.
fn loses_nothing(platform: &Platform, moves: impl Fn()) {
    let measure = || {
        let conversation = Conversation::unhurried(platform);
        conversation.has_answers(ANSWERS, "before");
        moves();
        conversation.has_answers(ANSWERS, "after");
        conversation.end()
    };
    let what = "what became of questions while it moved";
    one_holds(what, measure, |books| {
        (books.lost, books.answered_twice) == (0, 0)
    });
}

fn refuses(from: &Platform, to: &str, reason: &str) {
    let outcome = from.nfluid(&["migrate", "fw", "--to", to]);
    assert!(!outcome.succeeded(), "{outcome:?}");
    assert!(outcome.stderr.contains(reason), "{reason}: {outcome:?}");
    assert!(outcome.stderr.contains("goes on here"), "{outcome:?}");
    assert!(has_it(from));
}

// promise: 5.35
#[test]
fn an_instance_moves_to_another_host_with_its_state_and_no_frame_is_lost() {
    let test = "an_instance_moves_to_another_host_with_its_state_and_no_frame_is_lost";
    let Some(two) = TwoPlatforms::joined(test) else {
        return;
    };
    let (a, b) = (&two.a, &two.b);
    a.apply(FIREWALL);
    b.apply(UPLINKS);
    eventually("a ping crosses", || a.pings("client", SERVER));
    let before = macs(a);
    loses_nothing(a, || {
        let created = states(a, "states_created_total");
        for _ in 0..2 {
            moves(a, &two.b_address);
            assert!(!has_it(a) && has_it(b));
            assert_eq!(macs(b), before);
            moves(b, &two.a_address);
            assert!(has_it(a) && !has_it(b));
        }
        assert!(states(a, "states_created_total") <= created);
    });
    moves(a, &two.b_address);
    assert!(states(b, "states") > 0);
    assert!(a.reaches("client", SERVER), "through the other host");
    let chains = a.ask(&["get", "chains"]);
    assert_eq!(chains, Value::Array(Vec::new()), "it went with it");
}

// promise: 5.35
#[test]
fn an_instance_on_a_switch_is_on_the_other_hosts_switch_afterwards() {
    let test = "an_instance_on_a_switch_is_on_the_other_hosts_switch_afterwards";
    let Some(mut two) = TwoPlatforms::at_rest(test) else {
        return;
    };
    two.start();
    let (a, b) = (&two.a, &two.b);
    a.apply(two_platforms::FIREWALL_ON_SWITCH);
    b.apply("{ version: 1, uplinks: { wan: { interface: server, netns: EDGE } } }");
    eventually("a ping crosses", || a.pings("client", SERVER));
    refuses(a, &two.b_address, "front");
    assert!(!has_it(b));
    b.apply(two_platforms::SWITCH);
    let is_on_switch = |platform: &Platform| {
        let switches = platform.ask(&["get", "switches"]);
        let ports = switches[0]["ports"].as_array().expect("a list");
        ports.iter().any(|port| port == "fw.in")
    };
    loses_nothing(a, || {
        moves(a, &two.b_address);
        assert!(!is_on_switch(a) && is_on_switch(b));
        moves(b, &two.a_address);
        assert!(is_on_switch(a) && !is_on_switch(b));
    });
    assert!(states(a, "states") > 0);
}

/// Returns the beginning of a deployment, whose last parts are instances and their links.
fn without_instances(deployment: &str) -> &str {
    let (before, _) = deployment.split_once("instances:").expect("has instances");
    before
}

/// Returns a socket of a host.
fn socket(platform: &Platform, host: &str, address: &str) -> UdpSocket {
    let bound = within(&platform.host_netns(host), || UdpSocket::bind((address, 0)));
    let socket = bound.expect("a socket");
    let timeout = Some(Duration::from_millis(200));
    socket.set_read_timeout(timeout).expect("a time");
    socket
}

/// Returns true if the socket gets this datagram, of which there may be several.
fn gets(socket: &UdpSocket, expected: &[u8]) -> bool {
    let mut buffer = [0; 64];
    while let Ok(length) = socket.recv(&mut buffer) {
        if &buffer[..length] == expected {
            return true;
        }
    }
    false
}

// The server speaks next: nothing but the guard's state lets that pass.
// promise: 33.6
#[test]
fn an_instance_moves_with_the_connections_that_its_guard_has_seen() {
    let test = "an_instance_moves_with_the_connections_that_its_guard_has_seen";
    let Some(mut two) = TwoPlatforms::at_rest(test) else {
        return;
    };
    two.start();
    let (a, b) = (&two.a, &two.b);
    a.apply(two_platforms::GUARDED_ON_SWITCH);
    b.apply(two_platforms::SWITCH);
    eventually("a ping crosses", || a.pings("client", SERVER));
    refuses(a, &two.b_address, "no security group 'web'");
    b.apply(without_instances(two_platforms::GUARDED_ON_SWITCH));
    let (client, stranger) = (socket(a, "client", CLIENT), socket(a, "client", CLIENT));
    let server = socket(a, "server", SERVER);
    let to = |socket: &UdpSocket| socket.local_addr().expect("is bound");
    eventually("a question arrives", || {
        client.send_to(b"question", to(&server)).expect("is sent");
        gets(&server, b"question")
    });
    for (from, at, address) in [(a, b, &two.b_address), (b, a, &two.a_address)] {
        moves(from, address);
        assert!(!has_it(from) && has_it(at));
        assert!(!from.pids().keys().any(|name| name.contains("@guard")));
        let answer = address.as_bytes();
        eventually("an answer arrives that nobody has asked for since", || {
            server.send_to(answer, to(&stranger)).expect("is sent");
            server.send_to(answer, to(&client)).expect("is sent");
            gets(&client, answer)
        });
        assert!(!gets(&stranger, answer), "it has asked for nothing");
    }
    loses_nothing(a, || {
        moves(a, &two.b_address);
        moves(b, &two.a_address);
    });
}

/// Changes a port's filter without a pause until the instance is gone. Returns the last address that the host has accepted, and tells `begun`
/// of each.
fn changes_the_filter(host: &Platform, round: u8, begun: &Sender<()>) -> String {
    let mut last = String::new();
    for n in (0..=u8::MAX).cycle() {
        let address = format!("10.9.{round}.{n}");
        let text =
            two_platforms::GUARDED_ON_SWITCH.replace("10.0.0.2]", &format!("10.0.0.2, {address}]"));
        let answer = host.try_apply(&text);
        match answer.succeeded() {
            // The instance has left, and this has made another one.
            true if answer.stdout.contains("created") => break,
            true => {
                last = address;
                // Nobody waits for the later ones.
                let _told = begun.send(());
            }
            false => assert!(answer.stderr.contains("is being moved"), "{answer:?}"),
        }
    }
    last
}

// promise: 33.6
#[test]
fn a_filter_that_is_changed_while_its_instance_moves_is_the_last_one_accepted() {
    let test = "a_filter_that_is_changed_while_its_instance_moves_is_the_last_one_accepted";
    let Some(mut two) = TwoPlatforms::at_rest(test) else {
        return;
    };
    two.start();
    let (a, b) = (&two.a, &two.b);
    a.apply(two_platforms::GUARDED_ON_SWITCH);
    b.apply(without_instances(two_platforms::GUARDED_ON_SWITCH));
    for round in 0..6 {
        let last = std::thread::scope(|scope| {
            let (begun, has_begun) = mpsc::channel();
            let changing = scope.spawn(move || changes_the_filter(a, round, &begun));
            has_begun.recv().expect("a change is accepted");
            std::thread::sleep(Duration::from_millis(7 * u64::from(round)));
            // It may be refused: a daemon that does not find the guard that it is told of refuses the instance.
            eventually("the instance leaves", || {
                a.nfluid(&["migrate", "fw", "--to", &two.b_address])
                    .succeeded()
            });
            changing.join().expect("no panic")
        });
        let there = b.ask(&["get", "deployment"]);
        let addresses = &there["instances"]["fw"]["ports"]["in"]["allowed_addresses"];
        let addresses: Vec<&str> = list(addresses).filter_map(Value::as_str).collect();
        let has_it = addresses
            .iter()
            .any(|it| it.split('/').next() == Some(&last));
        assert!(has_it, "{last} was accepted, and {addresses:?} arrived");
        a.must_say(&["delete", "instance", "fw", "--with-links"]);
        moves(b, &two.a_address);
    }
}

// promise: 5.36, 33.6
#[test]
fn an_instance_whose_guards_die_while_it_moves_is_at_one_host_with_a_guard() {
    let test = "an_instance_whose_guards_die_while_it_moves_is_at_one_host_with_a_guard";
    let Some(mut two) = TwoPlatforms::at_rest(test) else {
        return;
    };
    two.start();
    // Each host, and the address of the other one's daemon.
    let hosts = [(&two.a, &two.b_address), (&two.b, &two.a_address)];
    two.a.apply(two_platforms::GUARDED_ON_SWITCH);
    two.b
        .apply(without_instances(two_platforms::GUARDED_ON_SWITCH));
    eventually("a ping crosses", || two.a.pings("client", SERVER));
    let mut moved = 0;
    for after in (0..120).step_by(6).map(Duration::from_millis) {
        let is_here = |(host, _): &(&Platform, _)| has_it(host);
        let [from, to] = match is_here(&hosts[0]) {
            true => [hosts[0], hosts[1]],
            false => [hosts[1], hosts[0]],
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(after);
                for pid in [from, to]
                    .iter()
                    .filter_map(|(host, _)| host.pids().remove(GUARD))
                {
                    signal(pid, Signal::KILL);
                }
            });
            // It may be refused, for a guard that is away.
            moved += u32::from(
                from.0
                    .nfluid(&["migrate", "fw", "--to", from.1])
                    .succeeded(),
            );
        });
        eventually("one host has the instance, with its guard", || {
            let having = hosts.map(|(host, _)| (has_it(host), host.pids().contains_key(GUARD)));
            matches!(
                having,
                [(true, true), (false, false)] | [(false, false), (true, true)]
            )
        });
    }
    println!("moved {moved} times of 20");
    assert!(moved > 0);
    two.forget_places();
    eventually("a ping crosses", || two.a.pings("client", SERVER));
}

// The segments' bridges believe that the hosts are behind the first platform, and nobody asks for their places again.
// promise: 5.9
#[test]
fn what_is_restored_on_another_host_is_found_there() {
    let test = "what_is_restored_on_another_host_is_found_there";
    let Some(two) = TwoPlatforms::joined(test) else {
        return;
    };
    let (a, b) = (&two.a, &two.b);
    let switches = "version: 1\nswitches: { front: {}, back: {} }\nuplinks:\n  \
                    lan: { interface: client, netns: EDGE, switch: front }\n  wan: { interface: server, netns: EDGE, switch: back }\n";
    let bridge = "instances: { fw: { nf: bridge, ports: { in: { switch: front, learn: true }, out: { switch: back, learn: true } } } }\n";
    a.apply(&format!("{switches}{bridge}"));
    b.apply(switches);
    eventually("a ping crosses", || a.pings("client", SERVER));
    for (host, other, address) in [("client", "server", SERVER), ("server", "client", CLIENT)] {
        let shown = a.on(other, "cat /sys/class/net/eth0/address").stdout;
        let mac = shown.trim();
        let fixed = a.on(
            host,
            &format!("ip neigh replace {address} lladdr {mac} dev eth0 nud permanent"),
        );
        assert!(fixed.succeeded(), "{fixed:?}");
    }
    let image = a.directory().join("fw.image");
    let image = image.to_str().expect("text");
    a.must_say(&["save", "fw", image]);
    a.must_say(&["delete", "instance", "fw"]);
    assert!(!a.pings("client", SERVER), "nothing is there");
    b.must_say(&["restore", image]);
    eventually("a ping crosses the other host", || {
        a.pings("client", SERVER)
    });
}

// promise: 5.36
#[test]
fn a_host_that_is_not_known_or_cannot_have_it_leaves_the_instance_where_it_is() {
    let test = "a_host_that_is_not_known_or_cannot_have_it_leaves_the_instance_where_it_is";
    let Some(mut two) = TwoPlatforms::at_rest(test) else {
        return;
    };
    two.start();
    let (a, b) = (&two.a, &two.b);
    a.apply(FIREWALL);
    eventually("a ping crosses", || a.pings("client", SERVER));
    refuses(a, &two.b_address, "lan");
    assert!(b.pids().is_empty());
    b.apply("{ version: 1, instances: { fw: { nf: bridge } } }");
    refuses(a, &two.b_address, "already");
    assert!(b.nfluid(&["delete", "instance", "fw"]).succeeded());
    b.apply(UPLINKS);
    b.apply(&two_platforms::full());
    refuses(a, &two.b_address, "the shares add up to");
    assert!(!has_it(b));
    assert_eq!(b.ask(&["get", "chains"]), Value::Array(Vec::new()));
    assert!(a.reaches("client", SERVER));
    let other = Authority::new().expect("a key");
    two.b.kill_daemon();
    let arguments = two_platforms::arguments(&other, &two.b, &two.b_address);
    two.b.set_arguments(arguments);
    two.b.start();
    refuses(&two.a, &two.b_address, "certificate");
    two.b.kill_daemon();
    refuses(&two.a, &two.b_address, "connecting");
    assert!(two.a.reaches("client", SERVER));
}

/// A fault in a connection between hosts, after a number of records in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Cut,
    KillSource,
    KillTarget,
}

// promise: 5.36
#[test]
fn a_move_that_is_cut_anywhere_leaves_one_instance() {
    let test = "a_move_that_is_cut_anywhere_leaves_one_instance";
    let Some(mut two) = TwoPlatforms::at_rest(test) else {
        return;
    };
    two.start();
    two.b.apply(UPLINKS);
    let mut ends = [0, 0];
    for way in [Way::ToTarget, Way::ToSource] {
        for records in 0.. {
            let moved = strike(&mut two, Fault::Cut, way, records);
            ends[usize::from(moved.is_there)] += 1;
            if !moved.was_struck {
                break;
            }
        }
    }
    assert!(ends[0] > 0 && ends[1] > 0, "{ends:?}");
    // Before the source sends 'state', 'go', and the first word after that: the instance has offered its state; it is
    // held, and the target has the state; it is in doubt. The target finds the same records before 'go'.
    for (fault, all) in [
        (Fault::KillSource, &[5, 6, 7][..]),
        (Fault::KillTarget, &[5, 7]),
    ] {
        for records in all {
            strike(&mut two, fault, Way::ToTarget, *records);
        }
    }
}

/// Records of a target's before its word that the instance runs there: the handshake's, 'prepared', 'rehearsed' and
/// 'ready'.
const BEFORE_STARTED: usize = 6;

/// Moves the firewall; `fault` occurs when the target has taken it and no other process knows.
fn strike_in_doubt(two: &mut TwoPlatforms, fault: impl FnOnce(&mut TwoPlatforms)) {
    two.a.apply(FIREWALL);
    two.forget_places();
    eventually("a ping crosses", || two.a.pings("client", SERVER));
    let cutter = Cutter::new(&two.b_address, Way::ToSource, BEFORE_STARTED);
    let mut moving = two.a.nfluid_command();
    let mut moving = moving
        .args(["migrate", "fw", "--to", &cutter.address()])
        .spawn()
        .expect("it is built");
    assert!(cutter.await_turn(|| matches!(moving.try_wait(), Ok(Some(_)))));
    assert!(two.b.pids().contains_key("fw"), "taken");
    fault(two);
    cutter.strike();
    let _ended = moving.wait().expect("our child");
}

// promise: 5.36
#[test]
fn a_power_cut_in_a_move_leaves_one_instance_and_an_operator_can_decide() {
    let test = "a_power_cut_in_a_move_leaves_one_instance_and_an_operator_can_decide";
    let Some(mut two) = TwoPlatforms::at_rest(test) else {
        return;
    };
    two.start();
    two.b.apply(UPLINKS);

    // The target's host: what it has not waited for is not on its disk.
    strike_in_doubt(&mut two, |two| {
        two.b.cut_power();
        two.b.lose_marks();
    });
    let before = two.a.pids();
    assert!(two.a.page("/v1/health").contains("is not known"));
    assert!(!two.a.pings("client", SERVER), "it stands still");
    let keep = |two: &TwoPlatforms| two.a.nfluid(&["migrate", "fw", "--keep"]);
    let kept = keep(&two);
    assert!(kept.succeeded(), "{kept:?}");
    assert!(!two.a.page("/v1/health").contains("is not known"));
    assert_eq!(two.a.pids(), before);
    assert!(states(&two.a, "states") > 0);
    eventually("a ping crosses", || two.a.pings("client", SERVER));
    let again = keep(&two);
    assert!(!again.succeeded(), "{again:?}");
    assert!(again.stderr.contains("no move"), "{again:?}");
    two.b.start();
    assert!(has_it(&two.a) && !has_it(&two.b));
    assert_eq!(two.b.instance_processes(), Vec::<u32>::new());

    // The source's host: the target has the instance, and the state.
    strike_in_doubt(&mut two, |two| two.a.cut_power());
    two.a.start();
    eventually("it is settled who has it", || {
        !has_it(&two.a) && two.a.instance_processes().is_empty()
    });
    assert!(has_it(&two.b));
    assert!(states(&two.b, "states") > 0);
    eventually("a ping crosses", || two.a.pings("client", SERVER));

    // Both: what was made anew at the source is paused, and nobody's word but the target's or the operator's lets it go
    // on.
    two.b.apply(UPLINKS);
    strike_in_doubt(&mut two, |two| two.b.cut_power());
    two.a.cut_power();
    two.a.start();
    two.a.must_refuse(&["unpause", "fw"], "is being moved");
    assert!(!two.a.pings("client", SERVER), "it stands still");
    let kept = keep(&two);
    assert!(kept.succeeded(), "{kept:?}");
    eventually("a ping crosses", || two.a.pings("client", SERVER));
}

struct Moved {
    was_struck: bool,
    is_there: bool,
}

/// Moves the firewall during a fault; one firewall exists afterwards, with its state, and frames pass it.
fn strike(two: &mut TwoPlatforms, fault: Fault, way: Way, records: usize) -> Moved {
    let what = format!("{fault:?} {way:?} {records}");
    two.a.apply(FIREWALL);
    two.forget_places();
    eventually("a ping crosses", || two.a.pings("client", SERVER));
    let created = states(&two.a, "states_created_total");
    let cutter = Cutter::new(&two.b_address, way, records);
    let mut moving = two.a.nfluid_command();
    let mut moving = moving
        .args(["migrate", "fw", "--to", &cutter.address()])
        .spawn()
        .expect("it is built");
    let was_struck = cutter.await_turn(|| matches!(moving.try_wait(), Ok(Some(_))));
    if was_struck {
        match fault {
            Fault::Cut => {}
            Fault::KillSource => two.a.kill_daemon(),
            Fault::KillTarget => two.b.kill_daemon(),
        }
    }
    cutter.strike();
    let _ended = moving.wait().expect("our child");
    match fault {
        Fault::KillSource if was_struck => two.a.start(),
        Fault::KillTarget if was_struck => two.b.start(),
        _ => {}
    }
    let (a, b) = (&two.a, &two.b);
    eventually("it is settled who has it", || {
        !a.page("/v1/health").contains("is not known") && has_it(a) != has_it(b)
    });
    let is_there = has_it(b);
    let owner = if is_there { b } else { a };
    assert!(states(owner, "states") > 0, "{what}");
    assert_eq!(states(owner, "states_created_total"), created, "{what}");
    assert_eq!(
        a.instance_processes().len(),
        usize::from(!is_there),
        "{what}"
    );
    eventually("nothing is left of what did not arrive", || {
        b.instance_processes().len() == usize::from(is_there)
    });
    let pid = owner.pids()["fw"];
    assert!(is_alive(pid), "{what}");
    eventually("a ping crosses", || a.pings("client", SERVER));
    if is_there {
        let gone = b.nfluid(&["delete", "chain", "web"]);
        assert!(gone.succeeded(), "{what}: {gone:?}");
        let gone = b.nfluid(&["delete", "instance", "fw"]);
        assert!(gone.succeeded(), "{what}: {gone:?}");
    }
    Moved {
        was_struck,
        is_there,
    }
}
