//! The promise: on kernels that have no links at tc a filter holds a program: a later daemon finds it, replaces it between two packets and
//! takes it away, and what is of others stays as it is.

use libbpf_rs::{TC_INGRESS, TcHookBuilder};
use nfluid_evnf::chain::Member;
use nfluid_evnf::firewall::{
    Exit, Family, Firewall, Pattern, Prefix, Rule, Stage, Traffic, Verdict,
};
use nfluid_evnf::hook::Hook;
use nfluid_gen::interface::InterfaceSender;
use nfluid_gen::io::Sender;
use nfluid_netdev::{FilterSeat, FilteredProgram, PinnedProgram, Place, Side};
use nfluid_tests::harness::oracle::Namespaces;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::skip::is_root;
use nfluid_wire::MacAddr;
use nfluid_wire::build::Frame;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

const OWN: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
/// Addresses that the firewalls stop.
const STOPPED: [&str; 2] = ["10.0.0.3", "10.0.0.4"];

fn dropping(host: &str) -> Firewall {
    let address: IpAddr = host.parse().unwrap();
    let pattern = Pattern {
        src: Prefix::of_address(address, 32),
        ..Pattern::any(Family::V4)
    };
    let rules = vec![Rule {
        patterns: vec![pattern],
        verdict: Verdict::Drop,
    }];
    let traffic = Traffic::All;
    Firewall::load(&[Stage { traffic, rules }], &[]).unwrap()
}

fn counted(firewall: &Firewall, exit: Exit) -> u64 {
    let exits = firewall.exits().unwrap();
    let found = exits.iter().find(|(own, _)| *own == exit);
    found.unwrap().1.packets
}

fn send(sender: &mut InterfaceSender, from: &str) {
    let ends = [format!("{from}:1000"), "192.0.2.2:80".to_owned()];
    let [from, to] = ends.map(|end| end.parse().unwrap());
    let mut packet = [0; 128];
    let len = Frame::udp(from, to)
        .macs(OWN[1], OWN[0])
        .write(&mut packet, b"x")
        .unwrap();
    let sent = sender.send(1, |_, slot| {
        slot[..len].copy_from_slice(&packet[..len]);
        len
    });
    assert_eq!(sent.unwrap(), 1);
    sender.flush().unwrap();
}

/// Returns true if this kernel has links at tc.
fn has_links() -> bool {
    nfluid_netdev::kernel_is_at_least(6, 6)
}

/// Returns the output of `tc` about an interface.
fn tc(line: &str) -> String {
    let output = Command::new("tc").args(line.split(' ')).output();
    let output = output.expect("iproute2 is there");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn number(interface: &str) -> i32 {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
    name_to_index(socket, interface).unwrap().cast_signed()
}

// promise: 15.64
#[test]
fn a_filter_holds_a_program_and_leaves_what_is_of_others() {
    if !is_root("a_filter_holds_a_program_and_leaves_what_is_of_others") {
        return;
    }
    let namespaces = Namespaces::new("filter");
    namespaces.join(0, OWN[0]);
    let place = Place {
        interface: "n0".to_owned(),
        netns: Some(format!("/run/netns/{}", namespaces.kernel).into()),
    };
    namespaces.hosts.enter().expect("root may");
    let mut sender = InterfaceSender::open("h0").unwrap();
    namespaces.kernel.enter().expect("root may");
    let firewalls = STOPPED.map(dropping);
    let stranger = dropping("10.0.0.9");
    let at = |firewall: &Firewall, hook| -> Member { firewall.member_at(hook).unwrap() };
    let first = at(&firewalls[0], Hook::Tc).descriptor().unwrap();

    if !has_links() {
        let nowhere = Path::new("/nowhere");
        let link = PinnedProgram::attach_tc(&place, first.as_fd(), Side::Ingress, nowhere);
        let link = link.expect("that there are none is no error");
        assert!(link.is_none(), "a filter has to do");
    }

    let seat = FilterSeat::prepare(&place, Side::Ingress, None).expect("clsact is made");
    let hold = FilteredProgram::attach(&place, seat.clone(), first.as_fd()).expect("it takes it");
    assert!(hold.is_attached());
    let other = at(&stranger, Hook::Tc).descriptor().unwrap();
    let mut foreign = TcHookBuilder::new(other.as_fd())
        .ifindex(number("n0"))
        .priority(10)
        .handle(1)
        .hook(TC_INGRESS);
    foreign.attach().expect("there is room for others");
    send(&mut sender, STOPPED[0]);
    eventually("the first one drops it", || {
        counted(&firewalls[0], Exit::Drop) == 1
    });
    assert_eq!(counted(&stranger, Exit::Accept), 1, "it has met both");
    let again = FilteredProgram::attach(&place, seat.clone(), first.as_fd());
    let refused = again.expect_err("its place is taken").to_string();
    assert!(refused.contains("priority 50000"), "{refused}");
    assert!(hold.is_attached(), "that has changed nothing");

    // As another process finds it.
    drop(hold);
    let hold = FilteredProgram::left(&place, seat);
    let second = at(&firewalls[1], Hook::Tc).descriptor().unwrap();
    hold.replace(second.as_fd()).expect("between two packets");
    STOPPED.iter().for_each(|host| send(&mut sender, host));
    eventually("the second one drops its own", || {
        counted(&firewalls[1], Exit::Drop) == 1
    });
    assert_eq!(counted(&firewalls[1], Exit::Accept), 1);
    assert_eq!(counted(&firewalls[0], Exit::Drop), 1, "it is not there");

    hold.remove().expect("it is ours");
    let left = tc("filter show dev n0 ingress");
    assert!(left.contains("pref 10 "), "{left}");
    assert!(!left.contains("nfluid"), "{left}");
    send(&mut sender, STOPPED[1]);
    eventually("the stranger is there", || {
        counted(&stranger, Exit::Accept) == 4
    });
    foreign.detach().expect("it is there");
}

// promise: 15.64
#[test]
fn a_filter_on_the_way_out_leaves_nothing_where_nothing_was() {
    if !is_root("a_filter_on_the_way_out_leaves_nothing_where_nothing_was") {
        return;
    }
    let namespaces = Namespaces::new("out");
    namespaces.join(0, OWN[0]);
    namespaces.kernel.enter().expect("root may");
    let place = Place {
        interface: "n0".to_owned(),
        netns: None,
    };
    let firewall = dropping(STOPPED[0]);
    let program = firewall.member_at(Hook::Egress).unwrap();
    let program = program.descriptor().unwrap();
    let seat = FilterSeat::prepare(&place, Side::Egress, None).expect("clsact is made");
    let hold = FilteredProgram::attach(&place, seat.clone(), program.as_fd()).expect("room");
    let shown = tc("filter show dev n0 egress");
    assert!(shown.contains("nfluid"), "{shown}");
    // A filter of the other side, which has not made clsact, is the last to leave.
    let other = FilterSeat::prepare(&place, Side::Ingress, Some(&seat)).expect("it is there");
    let inward = firewall.member_at(Hook::Tc).unwrap().descriptor().unwrap();
    let other = FilteredProgram::attach(&place, other, inward.as_fd()).expect("room");
    hold.remove().expect("it is ours");
    assert!(other.is_attached(), "who goes first leaves the other's");
    other.remove().expect("it is ours");
    let shown = tc("qdisc show dev n0");
    assert!(!shown.contains("clsact"), "{shown}");
    assert!(!FilteredProgram::left(&place, seat.clone()).is_attached());
    let gone = FilteredProgram::left(&place, seat).remove();
    gone.expect("that it is gone is as good");
    // Only what is for one way has the place of what is for both.
    tc("qdisc add dev n0 ingress");
    let refused = FilterSeat::prepare(&place, Side::Egress, None).expect_err("it has no egress");
    assert!(refused.to_string().contains("qdisc 'ingress'"), "{refused}");
}
