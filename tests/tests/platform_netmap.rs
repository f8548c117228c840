//! The promise: programs on netmap run as instances, neither changed nor compiled again. The tests have a program of their
//! own, `netmap/client.c`; where `NETMAP_SOURCE` names netmap's source, its own programs, too.

mod c_fixture;

use c_fixture::project;
use nfluid_testbed::CannotRun;
use nfluid_testbed::command::output;
use nfluid_testbed::netmap::Source;
use nfluid_testbed::process::signal;
use nfluid_testbed::program::find;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_tests::harness::transfer::stream;
use nfluid_tests::harness::two_hosts::{UPLINKS, two_hosts};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A compiled program, removed when dropped.
struct Compiled(PathBuf);

impl Drop for Compiled {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

impl Compiled {
    /// Compiles the tests' own program.
    fn client(test: &str) -> Option<Self> {
        let compiled = Self::place(test, "client")?;
        let mut cc = Command::new("cc");
        cc.args([
            "-O2",
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-D_GNU_SOURCE",
        ]);
        cc.arg("-o").arg(&compiled.0);
        cc.arg(project().join("tests/tests/netmap/client.c"));
        output(cc.arg("-lpthread")).expect("it compiles");
        Some(compiled)
    }

    /// Compiles one of netmap's own programs as it is; reports the reason and returns `None` if its source is not here.
    fn of_netmap(test: &str, name: &str) -> Option<Self> {
        let source = match Source::find() {
            Ok(source) => source,
            Err(CannotRun(why)) => {
                skip(test, &why);
                return None;
            }
        };
        let compiled = Self::place(test, name)?;
        source.build(name, &compiled.0).expect("it compiles");
        Some(compiled)
    }

    /// Where a program is to be; `None`: the test cannot run here, and the reason was reported.
    fn place(test: &str, name: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        if find("cc").is_none() {
            skip(test, "it needs a C compiler (cc)");
            return None;
        }
        let file = format!("nfl-{}-{test}-{name}", std::process::id());
        Some(Compiled(std::env::temp_dir().join(file)))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

/// An instance of a program on netmap, with these arguments, keys and ports.
fn instance(name: &str, program: &Path, arguments: &str, keys: &str, ports: &str) -> String {
    let mut words = String::new();
    for argument in arguments.split_whitespace() {
        write!(words, "'{argument}', ").expect("memory");
    }
    let program = program.display();
    format!(
        "  {name}:
    program: {program}
    api: netmap
    args: [{words}]
    {keys}
    ports: {ports}
"
    )
}

/// A chain of one such instance, `a`.
fn chain(program: &Path, arguments: &str, keys: &str, ports: &str) -> String {
    let a = instance("a", program, arguments, keys, ports);
    format!("{UPLINKS}instances:\n{a}chains:\n  web: {{ from: lan, to: wan, via: [a] }}\n")
}

const PORTS: &str = "{ in: {}, out: {} }";

/// Frames pass, none is changed, and none is left behind when more come than there are buffers.
fn it_forwards(platform: &Platform) {
    eventually("it forwards", || platform.pings("client", "10.0.0.2"));
    stream(platform, 4 << 20);
    let before = platform.pids()["a"];
    drop(platform.flood("client", "10.0.0.2", 0));
    eventually("it forwards after a flood", || {
        platform.pings("client", "10.0.0.2")
    });
    stream(platform, 1 << 20);
    assert_eq!(platform.pids()["a"], before, "{}", platform.log("a"));
    // TCP would send again what was overwritten on its way.
    for host in ["client", "server"] {
        assert_eq!(platform.bad_checksums(host), 0, "{host}");
    }
}

// promise: 22.1
#[test]
fn a_program_on_netmap_swaps_buffers_between_its_rings_whatever_it_waits_by() {
    let test = "a_program_on_netmap_swaps";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    for way in ["poll", "copy", "select", "epoll", "sync", "late", "legacy"] {
        // The smallest ring, which a program can hold as a whole.
        let words = format!("forward {way} netmap:in vale0:out");
        platform.apply(&chain(client.path(), &words, "flavor: small", PORTS));
        platform.await_log("a", "ready");
        it_forwards(&platform);
        let said = platform.log("a");
        let complaints: Vec<&str> = said.lines().filter(|line| *line != "ready").collect();
        assert!(complaints.is_empty(), "{way}: {said}");
        platform.apply(UPLINKS);
    }
}

// promise: 22.1
#[test]
fn no_frame_is_overwritten_while_a_program_has_its_buffer() {
    let test = "no_frame_is_overwritten";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    let keys = "flavor: small";
    for way in ["poll", "copy", "epoll", "sync", "late"] {
        // Each with a log of its own.
        let receiver = format!("receiver-{way}");
        let words = format!("forward {way} left right");
        let two = "{ left: {}, right: {} }";
        let all = [
            instance("sender", client.path(), "number out", keys, "{ out: {} }"),
            instance("middle", client.path(), &words, keys, two),
            instance(&receiver, client.path(), "check in", keys, "{ in: {} }"),
        ];
        let links = "  - [sender.out, middle.left]\n  - [middle.right, RECEIVER.in]\n";
        let links = links.replace("RECEIVER", &receiver);
        let document = format!("version: 1\ninstances:\n{}links:\n{links}", all.concat());
        platform.apply(&document);
        eventually("many frames are good", || {
            let said = platform.log(&receiver);
            assert!(!said.contains("wrong"), "{way}: {said}");
            said.contains("good: 300000")
        });
        platform.apply("version: 1");
    }
}

// promise: 22.1
#[test]
fn a_program_on_netmap_that_is_killed_comes_back_and_forwards() {
    let test = "a_program_on_netmap_that_is_killed";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    platform.apply(&chain(client.path(), "forward poll in out", "", PORTS));
    it_forwards(&platform);
    for _ in 0..3 {
        // In the middle of a flood: with buffers of each ring in the other.
        let flood = platform.flood("client", "10.0.0.2", 0);
        let pid = platform.pids()["a"];
        signal(pid, Signal::KILL);
        eventually("another one runs", || {
            platform.pids().get("a").is_some_and(|now| *now != pid)
        });
        drop(flood);
        it_forwards(&platform);
    }
}

// promise: 22.2
#[test]
fn a_program_keeps_frames_in_buffers_of_its_own_and_stops_no_ring() {
    let test = "a_program_keeps_frames";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    platform.apply(&chain(client.path(), "keep in out", "flavor: small", PORTS));
    platform.await_log("a", "ready");
    it_forwards(&platform);
}

// promise: 22.3
#[test]
fn each_queue_has_a_thread_of_its_own() {
    let test = "each_queue_has_a_thread";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    let ports = "{ in: { queues: 4 }, out: { queues: 4 } }";
    platform.apply(&chain(
        client.path(),
        "queues 4 in out",
        "memory: 128MiB",
        ports,
    ));
    platform.await_log("a", "ready");
    it_forwards(&platform);
    // Flows of several queues at once, each of whose threads sleeps in between.
    std::thread::scope(|scope| {
        for port in 7001..7009 {
            let to = format!("10.0.0.2:{port}").parse().expect("an address");
            let platform = &platform;
            scope.spawn(move || {
                nfluid_tests::harness::transfer::stream_to(platform, to, 1 << 20);
            });
        }
    });
}

// promise: 22.1
#[test]
fn a_packet_longer_than_a_buffer_lies_in_several() {
    let test = "a_packet_longer_than_a_buffer";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    let ports = "{ in: { mtu: 9000 }, out: { mtu: 9000 } }";
    let words = "forward poll in out";
    for host in ["client", "server"] {
        let edge = platform.edge();
        let link = format!("ip -n {edge} link set {host} mtu 9000");
        assert!(platform.on(host, &link).succeeded(), "{link}");
        assert!(platform.on(host, "ip link set eth0 mtu 9000").succeeded());
    }
    platform.apply(&chain(client.path(), words, "memory: 128MiB", ports));
    it_forwards(&platform);
    let long = platform.on("client", "ping -c 3 -W 5 -M do -s 8900 10.0.0.2");
    assert!(long.succeeded(), "{long:?} {}", platform.log("a"));
}

// promise: 22.4
#[test]
fn what_a_program_on_netmap_cannot_have_is_refused_with_the_reason() {
    let test = "what_a_program_on_netmap_cannot_have";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    platform.apply(&chain(client.path(), "errors in", "restart: never", PORTS));
    platform.await_log("a", "end");
    let said = platform.log("a");
    for expected in [
        "a port that is not there: No such device or address",
        "the instance has no port 'sideways' (sideways); it has: in, out",
        "host rings: Operation not supported",
        "an instance has no host rings",
        "ring 5: Invalid argument",
        "port 'in' has 1 rings, numbered from 0, and no ring 5",
        "memory 9: Invalid argument",
        "a sync before a port: No such device or address",
        "a mapping before a port: Invalid argument",
        "a request without a header: Bad address",
        "a request of another device: Inappropriate ioctl for device",
        "a list of switches: Operation not supported",
        "which port is on which switch is the deployment's to say",
        "memory of its own: Operation not supported",
        "its option: Operation not supported",
        "version 3: Invalid argument",
        "the program is for version 3 of netmap's interface; this is for 11 to 14",
        "this is for version 14",
        "a closed descriptor: Operation not permitted",
        "alone: done",
        "beside: Device or resource busy",
        "twice: Device or resource busy",
        "mapped again at the same place: 1",
        "a ring without such a slot: done",
        "put right: 1",
        "after it was closed: done",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // What can be known before it starts.
    let refused = |keys: &str, reason: &str| {
        let outcome = platform.try_apply(&chain(client.path(), "errors in", keys, PORTS));
        assert!(!outcome.succeeded(), "{keys}");
        assert!(
            outcome.stderr.contains(reason),
            "{keys}: {}",
            outcome.stderr
        );
    };
    refused("frames: super", "takes frames as they are on a wire");
    refused("trust: us", "a program on netmap has buffers of its own");
    refused("tier: stack", "has no ports of the switch");
    // Linked statically, it has its own C library.
    let program = Path::new("/usr/bin/busybox");
    if program.is_file() {
        let outcome = platform.try_apply(&chain(program, "sleep 1000", "", PORTS));
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(text.contains("is linked statically"), "{text}");
    }
}

// promise: 22.5
#[test]
fn a_program_that_writes_anything_into_its_rings_harms_nobody_and_is_put_right() {
    let test = "a_program_that_writes_anything";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    let words = "spoil 100 in out";
    platform.apply(&chain(client.path(), words, "flavor: small", PORTS));
    // With frames to and from it all the time.
    let flood = platform.flood("client", "10.0.0.2", 0);
    let pid = platform.pids()["a"];
    platform.await_log("a", "ready");
    drop(flood);
    it_forwards(&platform);
    assert_eq!(platform.pids()["a"], pid, "{}", platform.log("a"));
}

// promise: 22.1
#[test]
fn a_program_on_netmap_without_frames_burns_no_core() {
    let test = "a_program_on_netmap_without_frames";
    let Some((client, platform)) = Compiled::client(test).zip(two_hosts(test)) else {
        return;
    };
    for way in ["poll", "select", "epoll"] {
        let words = format!("forward {way} in out");
        platform.apply(&chain(client.path(), &words, "", PORTS));
        eventually("it forwards", || platform.pings("client", "10.0.0.2"));
        let stat = format!("/proc/{}/stat", platform.pids()["a"]);
        let ticks = || -> u64 {
            let line = fs::read_to_string(&stat).expect("it runs");
            let rest = line.rsplit_once(')').expect("a name").1;
            let words: Vec<&str> = rest.split_whitespace().collect();
            words[11..13]
                .iter()
                .map(|word| word.parse::<u64>().expect("ticks"))
                .sum()
        };
        let before = ticks();
        std::thread::sleep(Duration::from_secs(3));
        let used = ticks() - before;
        // A hundred ticks a second; hosts chat now and then.
        assert!(used <= 15, "{way}: {used} ticks in 3 s");
        platform.apply(UPLINKS);
    }
}

/// The deployment of two of netmap's programs, linked by their ports, with this between them or nothing.
fn generator_and(sink: &Path, options: [&str; 2], between: &str, links: &str) -> String {
    let send = format!("-i netmap:out -f {} -w 1", options[0]);
    let receive = format!("-i netmap:in -f {} -w 1", options[1]);
    let sender = instance("sender", sink, &send, "", "{ out: {} }");
    let receiver = instance("receiver", sink, &receive, "", "{ in: {} }");
    format!("version: 1\ninstances:\n{sender}{receiver}{between}links:\n{links}")
}

/// Frames that a port has received.
fn received(platform: &Platform, port: &str) -> u64 {
    platform.port_counter("rx_packets", port).unwrap_or(0)
}

// promise: 22.6
#[test]
fn netmaps_own_programs_send_receive_and_answer_as_they_are() {
    let test = "netmaps_own_programs_send";
    let Some(generator) = Compiled::of_netmap(test, "pkt-gen") else {
        return;
    };
    let Some(bridge) = Compiled::of_netmap(test, "bridge") else {
        return;
    };
    let Some(platform) = two_hosts(test) else {
        return;
    };
    let straight = "  - [sender.out, receiver.in]\n";
    for (tasks, expected) in [
        (
            ["tx -n 100000 -R 50000", "rx"],
            ("sender", "Sent 100000 packets"),
        ),
        (["ping", "pong"], ("sender", "RTT: min")),
        (["tx -n 200 -l 60 -F 3 -R 1000", "rx"], ("sender", "Sent ")),
    ] {
        platform.apply("version: 1");
        platform.apply(&generator_and(generator.path(), tasks, "", straight));
        platform.await_log(expected.0, expected.1);
    }
    let through = "  - [sender.out, middle.left]\n  - [middle.right, receiver.in]\n";
    for (options, tasks) in [("", ["tx -R 20000", "rx"]), ("-c ", ["ping", "pong"])] {
        platform.apply("version: 1");
        let words = format!("{options}-w 1 -i netmap:left -i netmap:right");
        let middle = instance(
            "middle",
            bridge.path(),
            &words,
            "",
            "{ left: {}, right: {} }",
        );
        platform.apply(&generator_and(generator.path(), tasks, &middle, through));
        eventually("frames come through the bridge", || {
            received(&platform, "receiver.in") > 1000
        });
    }
}

// promise: 22.6
#[test]
fn netmaps_balancer_spreads_flows_over_ports_that_it_calls_pipes() {
    let test = "netmaps_balancer_spreads";
    let Some(generator) = Compiled::of_netmap(test, "pkt-gen") else {
        return;
    };
    let Some(balancer) = Compiled::of_netmap(test, "lb") else {
        return;
    };
    let Some(platform) = two_hosts(test) else {
        return;
    };
    for buffers in ["", "-B 200 "] {
        platform.apply("version: 1");
        let words = format!("{buffers}-w 1 -i in -p out:2");
        let ports = "{ in: {}, out0: {}, out1: {} }";
        let middle = instance("middle", balancer.path(), &words, "", ports);
        let other = instance(
            "other",
            generator.path(),
            "-i netmap:in -f rx -w 1",
            "",
            "{ in: {} }",
        );
        let links = "  - [sender.out, middle.in]\n  - [middle.out0, receiver.in]\n  - [middle.out1, other.in]\n";
        let many = "tx -R 20000 -s 10.0.0.1:1000-10.0.0.200:2000";
        let document = generator_and(
            generator.path(),
            [many, "rx"],
            &format!("{middle}{other}"),
            links,
        );
        platform.apply(&document);
        eventually("both get their part", || {
            received(&platform, "receiver.in") > 1000 && received(&platform, "other.in") > 1000
        });
    }
}
