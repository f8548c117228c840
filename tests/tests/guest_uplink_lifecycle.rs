//! The promise: an uplink takes an interface only if it may, says why not, finds it again when it
//! has vanished, and leaves the host as it was: on close, and after a crash at the next start.

mod uplink_fixture;

use nfluid_netdev::{Mode, NetdevError, ReceivePath};
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::Destination;
use nfluid_testbed::scratch::ScratchInstance;
use nfluid_tests::harness::command::{must, run};
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::within;
use nfluid_uplink::{Kind, Uplink, UplinkError, UplinkSpec};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uplink_fixture::{Fixture, frame};

const OUTSIDE: [u8; 6] = [2, 0xee, 0, 0, 0, 1];
const INSIDE: [u8; 6] = [2, 0xee, 0, 0, 0, 2];

/// A folder for records, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(label: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{label}-records"));
        Folder(path)
    }

    fn count(&self) -> usize {
        std::fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn refusal(fixture: &Fixture, spec: &UplinkSpec) -> String {
    let error = fixture.open(spec).expect_err("it must be refused");
    assert!(
        fixture.scratch.switch.counters(spec.port).tx_frames == 0
            && !fixture.scratch.switch.is_up(spec.port),
        "the port of a refused uplink is up"
    );
    error.to_string()
}

/// Settings of both ends that an uplink may change.
fn settings(fixture: &Fixture) -> String {
    let features = |name: &str, interface: &str| {
        let netns = fixture.netns(name);
        must(&format!("ip netns exec {netns} ethtool -k {interface}"))
    };
    let link = must(&format!("ip -n {} -d link show up0", fixture.netns("up")));
    let link: Vec<&str> = link.lines().take(2).collect();
    [
        features("up", "up0"),
        features("out", "out0"),
        link.join("\n"),
    ]
    .concat()
}

/// An instance linked both ways with the uplink's port.
fn linked(fixture: &mut Fixture, spec: &UplinkSpec) -> (ScratchInstance, Port) {
    let instance = fixture.scratch.instance(1, 256, 64).expect("an instance");
    let switch = &fixture.scratch.switch;
    switch
        .connect(spec.port, Destination::Link(instance.id(0)))
        .expect("connect");
    switch
        .connect(instance.id(0), Destination::Link(spec.port))
        .expect("connect");
    let port = instance.attach().expect("attach").ports.remove(0);
    (instance, port)
}

/// Sends a frame each way.
fn crosses(fixture: &Fixture, port: &mut Port, number: u32) {
    let outside = fixture.raw("out", "out0");
    let inward = frame(INSIDE, OUTSIDE, &[], 100, number);
    let mut got = Vec::new();
    eventually("a frame comes in", || {
        // A link that has come up a moment ago may still lose frames: its queue is set up in the background.
        outside.send(&inward);
        port.receive(64, |bytes| got.push(bytes.to_vec()));
        got.contains(&inward)
    });
    let outward = frame(OUTSIDE, INSIDE, &[], 100, number);
    assert!(port.send(|slot| {
        slot[..outward.len()].copy_from_slice(&outward);
        outward.len()
    }));
    port.flush(WhenFull::Drop).expect("the port is up");
    let back = outside.receive_wanted(|bytes| bytes.starts_with(&OUTSIDE));
    assert_eq!(back, Some(outward));
}

// promise: 2.10
#[test]
fn interfaces_that_cannot_be_taken_are_refused_with_the_reason() {
    let Some(mut fixture) = Fixture::new("busy", &["up", "out"]) else {
        return;
    };
    fixture.join(("up", "up0"), ("out", "out0"));
    let (up, out) = (fixture.netns("up"), fixture.netns("out"));
    // No other namespace of the host has this interface: tests beside this one have an out0 too.
    let outer = format!("o{}", std::process::id());
    must(&format!("ip -n {out} link add {outer} type veth"));
    let mut spec = fixture.spec("up", "up9");
    let text = refusal(&fixture, &spec);
    let want = format!("no interface up9 in namespace {up}; there are: lo, up0");
    assert_eq!(text, want);
    spec.interface.clone_from(&outer);
    let text = refusal(&fixture, &spec);
    assert!(
        text.contains(&format!("but there is one in {out}")),
        "{text}"
    );
    spec.interface = "a/b".to_owned();
    assert!(refusal(&fixture, &spec).contains("cannot be the name"));
    spec.interface = "up0".to_owned();
    spec.netns = Some("/run/netns/nfl-there-is-none".into());
    assert!(refusal(&fixture, &spec).contains("no network namespace at /run/netns/nfl-there"));
    spec.netns = Some(fixture.path("up"));
    // Another uplink has the interface.
    let mut first = fixture.spec("up", "up0");
    first.name = "the-first".to_owned();
    let before = settings(&fixture);
    for mode in [Mode::Native, Mode::Generic] {
        first.mode = mode;
        let uplink = fixture.open(&first).expect("an uplink");
        for mode in [Mode::Auto, Mode::Native, Mode::Generic] {
            spec.mode = mode;
            let text = refusal(&fixture, &spec);
            assert!(
                text.starts_with("interface up0 has an XDP program already: 'uplink_"),
                "{text}"
            );
            assert!(text.contains("ip link set dev up0 xdp off"), "{text}");
        }
        uplink.close(&fixture.scratch.switch).expect("close");
        assert_eq!(settings(&fixture), before);
    }
    // Native XDP is not for every driver, and the reason is reported.
    must(&format!("ip -n {up} link add br0 type bridge"));
    spec.interface = "br0".to_owned();
    spec.mode = Mode::Native;
    let text = refusal(&fixture, &spec);
    assert!(text.contains("takes no XDP program (native: "), "{text}");
    assert!(
        text.contains("does not support XDP"),
        "the kernel's own words: {text}"
    );
    spec.mode = Mode::Auto;
    let uplink = fixture.open(&spec).expect("an uplink");
    let path = uplink.status().path.expect("connected");
    assert_eq!(path.receive, ReceivePath::Generic);
    assert!(
        path.receive_why.contains("does not support XDP"),
        "{path:?}"
    );
}

// promise: 2.11
#[test]
fn everything_is_as_before_after_close() {
    let Some(mut fixture) = Fixture::new("restore", &["up", "out"]) else {
        return;
    };
    let folder = Folder::new(&fixture.label);
    fixture.join(("up", "up0"), ("out", "out0"));
    must(&format!("ip -n {} link set up0 down", fixture.netns("up")));
    let before = settings(&fixture);
    let mut spec = fixture.spec("up", "up0");
    spec.mac = Some([2, 1, 2, 3, 4, 5]);
    spec.state_dir = Some(folder.0.clone());
    for mode in [Mode::Native, Mode::Generic] {
        spec.mode = mode;
        let uplink = fixture.open(&spec).expect("an uplink");
        let (_instance, mut port) = linked(&mut fixture, &spec);
        assert_eq!(folder.count(), 1);
        let during = settings(&fixture);
        assert!(
            during.contains("02:01:02:03:04:05") && during.contains("xdp"),
            "{during}"
        );
        assert!(during.contains("tx-checksum-ip-generic: off"), "{during}");
        crosses(&fixture, &mut port, 1);
        uplink.close(&fixture.scratch.switch).expect("close");
        assert_eq!(settings(&fixture), before);
        assert_eq!(folder.count(), 0);
    }
}

// promise: 2.12
#[test]
fn an_interface_that_vanishes_is_found_again() {
    let Some(mut fixture) = Fixture::new("vanish", &["up", "out"]) else {
        return;
    };
    let folder = Folder::new(&fixture.label);
    fixture.join(("up", "up0"), ("out", "out0"));
    let mut spec = fixture.spec("up", "up0");
    spec.state_dir = Some(folder.0.clone());
    let uplink = fixture.open(&spec).expect("an uplink");
    let (_instance, mut port) = linked(&mut fixture, &spec);
    crosses(&fixture, &mut port, 0);
    for round in 1..=3 {
        must(&format!("ip -n {} link del up0", fixture.netns("up")));
        eventually("it is missed", || uplink.status().path.is_none());
        let lost = frame(OUTSIDE, INSIDE, &[], 60, round);
        assert!(port.send(|slot| {
            slot[..lost.len()].copy_from_slice(&lost);
            lost.len()
        }));
        port.flush(WhenFull::Drop).expect("the port is up");
        eventually("the loss is counted", || {
            uplink.status().refused_frames == u64::from(round)
        });
        fixture.join(("up", "up0"), ("out", "out0"));
        eventually("it is found", || uplink.status().path.is_some());
        crosses(&fixture, &mut port, round);
        assert_eq!(uplink.status().vanished, u64::from(round));
        assert_eq!(uplink.status().returned, u64::from(round));
    }
    // Down and up again is no reason to let go.
    must(&format!("ip -n {} link set up0 down", fixture.netns("up")));
    must(&format!("ip -n {} link set up0 up", fixture.netns("up")));
    crosses(&fixture, &mut port, 9);
    // A program that another process has removed by force comes back.
    must(&format!(
        "ip -n {} link set up0 xdp off",
        fixture.netns("up")
    ));
    eventually("the program is back", || uplink.status().returned == 4);
    crosses(&fixture, &mut port, 10);
    // The namespace itself is made anew.
    let up = fixture.netns("up");
    must(&format!("ip netns del {up}"));
    eventually("it is missed", || uplink.status().path.is_none());
    let out = fixture.netns("out");
    let far_end = || run(&format!("ip -n {out} link show out0")).succeeded();
    eventually("the namespace is gone with all that is in it", || {
        !far_end()
    });
    must(&format!("ip netns add {up}"));
    fixture.join(("up", "up0"), ("out", "out0"));
    eventually("it is found", || uplink.status().path.is_some());
    crosses(&fixture, &mut port, 11);
    uplink.close(&fixture.scratch.switch).expect("close");
    assert_eq!(folder.count(), 0);
}

/// The part of the next test that crashes: makes an uplink and kills itself.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn crash_with_an_uplink() {
    let Ok(arguments) = std::env::var("NFLUID_TEST_CRASH") else {
        return;
    };
    let (netns, folder) = arguments.split_once(' ').expect("two paths");
    let scratch = nfluid_testbed::scratch::Scratch::new("crash").expect("a platform");
    let mut spec = UplinkSpec::new("crashed", "up0", 1, 1);
    spec.netns = Some(netns.into());
    spec.state_dir = Some(folder.into());
    spec.mac = Some([2, 1, 2, 3, 4, 5]);
    let _uplink = Uplink::open(&scratch.switch, spec).expect("an uplink");
    let _killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

fn crash(fixture: &Fixture, folder: &Path) {
    let netns = fixture.path("up");
    let arguments = format!("{} {}", netns.display(), folder.display());
    let test = std::env::current_exe().expect("/proc is mounted");
    let status = Command::new(test)
        .args(["--exact", "crash_with_an_uplink", "--ignored"])
        .env("NFLUID_TEST_CRASH", arguments)
        .stdout(Stdio::null())
        .status()
        .expect("the test runs");
    assert!(!status.success(), "it was to be killed");
    // The process could not leave its cgroup behind in order.
    let root = nfluid_testbed::scratch::cgroup2_root().expect("cgroups");
    for entry in std::fs::read_dir(root).expect("readable").flatten() {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("nfluid-test-crash-")
        {
            let _removed = std::fs::remove_dir(entry.path());
        }
    }
}

// promise: 2.13
#[test]
fn leftovers_of_a_crash_are_cleaned_or_taken_over() {
    let Some(mut fixture) = Fixture::new("crash", &["up", "out"]) else {
        return;
    };
    let folder = Folder::new(&fixture.label);
    fixture.join(("up", "up0"), ("out", "out0"));
    let before = settings(&fixture);
    crash(&fixture, &folder.0);
    assert_ne!(settings(&fixture), before, "a crash leaves traces");
    assert_eq!(folder.count(), 1);
    // Another uplink may not have the interface.
    let mut spec = fixture.spec("up", "up0");
    spec.state_dir = Some(folder.0.clone());
    assert!(refusal(&fixture, &spec).contains("has an XDP program already"));
    // The same uplink takes over, and undoes in the end the changes of its predecessor.
    spec.name = "crashed".to_owned();
    let uplink = fixture.open(&spec).expect("taken over");
    let (_instance, mut port) = linked(&mut fixture, &spec);
    crosses(&fixture, &mut port, 1);
    uplink.close(&fixture.scratch.switch).expect("close");
    assert_eq!(settings(&fixture), before);
    // Or its traces are removed, unless it is wanted.
    crash(&fixture, &folder.0);
    let cleaned = nfluid_uplink::clean_leftovers(&folder.0, |name| name == "crashed");
    assert!(cleaned.is_empty() && folder.count() == 1);
    let cleaned = nfluid_uplink::clean_leftovers(&folder.0, |_| false);
    assert_eq!(cleaned, ["crashed"]);
    assert_eq!(settings(&fixture), before);
    assert_eq!(folder.count(), 0);
    // A damaged record is left, and nothing else suffers.
    std::fs::create_dir_all(&folder.0).expect("a folder");
    std::fs::write(folder.0.join("bad.json"), "{").expect("a file");
    assert!(nfluid_uplink::clean_leftovers(&folder.0, |_| false).is_empty());
}

// promise: 2.13
#[test]
fn an_uplink_that_is_left_is_taken_over_by_its_successor() {
    let Some(mut fixture) = Fixture::new("leave", &["up", "out"]) else {
        return;
    };
    let folder = Folder::new(&fixture.label);
    fixture.join(("up", "up0"), ("out", "out0"));
    let before = settings(&fixture);
    let mut spec = fixture.spec("up", "up0");
    spec.state_dir = Some(folder.0.clone());
    let first = fixture.open(&spec).expect("an uplink");
    let (_instance, mut port) = linked(&mut fixture, &spec);
    first.leave();
    // No process is there, and frames still come in.
    let outside = fixture.raw("out", "out0");
    outside.send(&frame(INSIDE, OUTSIDE, &[], 60, 1));
    eventually("a frame comes in", || port.receive(64, |_| ()) == 1);
    let second = fixture.open(&spec).expect("taken over");
    crosses(&fixture, &mut port, 2);
    second.close(&fixture.scratch.switch).expect("close");
    assert_eq!(settings(&fixture), before);
}

// promise: 2.14
#[test]
fn a_tap_joins_a_kernel_stack_to_the_platform() {
    let Some(mut fixture) = Fixture::new("tap", &["left", "right"]) else {
        return;
    };
    let folder = Folder::new(&fixture.label);
    let mut specs = [fixture.spec("left", "tap0"), fixture.spec("right", "tap0")];
    for (number, spec) in specs.iter_mut().enumerate() {
        spec.kind = Kind::Tap;
        spec.name = format!("tap-{number}");
        spec.state_dir = Some(folder.0.clone());
    }
    if let Err(UplinkError::Netdev(NetdevError::System { what, source })) = fixture.open(&specs[0])
    {
        nfluid_tests::harness::skip::skip("tap", &format!("no taps here: {what}: {source}"));
        return;
    }
    let uplinks = [0, 1].map(|i| fixture.open(&specs[i]).expect("a tap"));
    let switch = &fixture.scratch.switch;
    for spec in &specs {
        switch
            .connect(spec.port, Destination::Switch(5))
            .expect("connect");
    }
    let address = |name: &str, number: u8| {
        let netns = fixture.netns(name);
        must(&format!(
            "ip -n {netns} addr add 10.8.0.{number}/24 dev tap0"
        ));
    };
    address("left", 1);
    address("right", 2);
    let talk = |round: u32| {
        let server =
            within(&fixture.path("right"), || UdpSocket::bind("10.8.0.2:7000")).expect("bind");
        let client = within(&fixture.path("left"), || UdpSocket::bind("10.8.0.1:0")).expect("bind");
        client.connect("10.8.0.2:7000").expect("connect");
        server.set_read_timeout(Some(PATIENCE)).expect("timeout");
        for number in 0..100u32 {
            let question = vec![number as u8; 8 + number as usize * 14];
            client.send(&question).expect("send");
            let mut bytes = [0u8; 4096];
            let (len, _) = server.recv_from(&mut bytes).expect("a datagram");
            assert_eq!(bytes[..len], question, "round {round}");
        }
    };
    talk(1);
    let counters = switch.counters(specs[0].port);
    assert!(
        counters.tx_frames >= 100 && counters.fdb_used == 1,
        "{counters:?}"
    );
    // Another process removes the tap: the uplink makes it again.
    must(&format!("ip -n {} link del tap0", fixture.netns("right")));
    eventually("it is made again", || uplinks[1].status().returned == 1);
    address("right", 2);
    must(&format!(
        "ip -n {} neigh flush dev tap0",
        fixture.netns("left")
    ));
    talk(2);
    assert_eq!(folder.count(), 2);
    for uplink in uplinks {
        uplink.close(&fixture.scratch.switch).expect("close");
    }
    for name in ["left", "right"] {
        let shown = run(&format!("ip -n {} link show tap0", fixture.netns(name)));
        assert!(!shown.succeeded(), "the tap is still there");
    }
    assert_eq!(folder.count(), 0);
}
