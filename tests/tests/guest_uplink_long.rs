//! Super-frames and jumbo frames from interface to interface: what a kernel stack sends arrives at the other one, every
//! byte, whatever work was left undone on the way; and interfaces are as before in the end.

#[path = "guest_uplink_long/instance.rs"]
mod instance;
#[path = "guest_uplink_long/refused.rs"]
mod refused;
mod uplink_fixture;

use nfluid_ring::Level;
use nfluid_switch::{Destination, DropReason, PortCounters};
use nfluid_testbed::random::{Bytes, Random};
use nfluid_tests::harness::command::{must, run};
use nfluid_tests::harness::mounts::{Mount, has_own_mounts};
use nfluid_tests::harness::patience::PATIENCE;
use nfluid_tests::harness::segments::datagrams_arrive;
use nfluid_tests::harness::{enable_ipv6, within};
use nfluid_uplink::{ErrorKind, Kind, Levels, Uplink, UplinkSpec};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use uplink_fixture::Fixture;

const SUPER: Levels = Levels {
    enter: Level::Super,
    take: Level::Super,
};
const CHECKSUMS: Levels = Levels {
    enter: Level::Checksums,
    take: Level::Super,
};
const LONG_SLOTS: u32 = 4096;

/// Kinds of uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// The ends of veths, with a filter at tc.
    Veth,
    /// The same, with a link at tc, which is pinned.
    Pinned,
    Tap,
}

/// A BPF file system of the test's own, where the tests' mounts are its own.
struct Pins {
    path: PathBuf,
    mount: Option<Mount>,
}

impl Pins {
    fn new(label: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{label}-pins"));
        std::fs::create_dir_all(&path).expect("a folder");
        let mount = Some(Mount::bpf(&path));
        Pins { path, mount }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.mount = None;
        let _gone = std::fs::remove_dir(&self.path);
    }
}

/// Two hosts, `a` and `b`, joined by two uplinks whose ports are linked.
struct Joined {
    fixture: Fixture,
    uplinks: Vec<Uplink>,
    _pins: Option<Pins>,
    folder: PathBuf,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.uplinks.clear();
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

impl Joined {
    fn new(test: &str, ends: Ends, levels: Levels) -> Option<Self> {
        let mut fixture = Fixture::new(test, &["a", "b", "up"])?;
        let pins = (ends == Ends::Pinned).then(|| Pins::new(&fixture.label));
        let folder = std::env::temp_dir().join(format!("{}-records", fixture.label));
        let mut specs = Vec::new();
        for (host, number) in [("a", 1), ("b", 2)] {
            let mut spec = if ends == Ends::Tap {
                fixture.spec(host, "eth0")
            } else {
                let up = format!("up{host}");
                fixture.join((host, "eth0"), ("up", &up));
                fixture.spec("up", &up)
            };
            if ends == Ends::Tap {
                spec.kind = Kind::Tap;
            }
            spec.pins = pins.as_ref().map(|pins| pins.path.join(host));
            spec.state_dir = Some(folder.clone());
            (spec.offloads, spec.long_slots, spec.levels) = (true, LONG_SLOTS, levels);
            specs.push((host, number, spec));
        }
        let mut uplinks = Vec::new();
        for (_, _, spec) in &specs {
            uplinks.push(fixture.open(spec).expect("an uplink"));
        }
        let port = |at: usize| specs[at].2.port;
        for (from, to) in [(0, 1), (1, 0)] {
            let to = Destination::Link(port(to));
            fixture
                .scratch
                .switch
                .connect(port(from), to)
                .expect("connect");
        }
        for (host, number, _) in &specs {
            let netns = fixture.netns(host);
            must(&format!(
                "ip -n {netns} addr add 10.9.0.{number}/24 dev eth0"
            ));
            enable_ipv6(&fixture.path(host));
            must(&format!(
                "ip -n {netns} addr add fd09::{number}/64 dev eth0 nodad"
            ));
            must(&format!("ip -n {netns} link set eth0 up"));
        }
        Some(Joined {
            fixture,
            uplinks,
            _pins: pins,
            folder,
        })
    }

    fn counters(&self) -> [PortCounters; 2] {
        [0, 1].map(|at: usize| {
            let port = self.uplinks[at].spec().port;
            self.fixture.scratch.switch.counters(port)
        })
    }

    fn set_levels(&self, levels: Levels) {
        for uplink in &self.uplinks {
            uplink.set_levels(levels).expect("levels");
        }
    }

    /// A column of /proc/net/snmp of a host.
    fn snmp(&self, host: &str, protocol: &str, column: &str) -> u64 {
        let text = within(&self.fixture.path(host), || {
            std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters")
        });
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with(&format!("{protocol}:")))
            .map(|line| line.split_whitespace().collect())
            .collect();
        let at = rows[0].iter().position(|name| *name == column);
        rows[1][at.expect("the kernel counts it")]
            .parse()
            .expect("a number")
    }
}

const V4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const V6: [&str; 2] = ["fd09::1", "fd09::2"];

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port)
}

/// Sends `bytes` bytes of TCP from host `a` to host `b`, and every byte is compared there.
fn stream(joined: &Joined, ips: [&str; 2], bytes: usize) {
    const BLOCK: usize = 1 << 16;
    let to = address(ips[1], 7000);
    let listen = || TcpListener::bind(to);
    let listener = within(&joined.fixture.path("b"), listen).expect("bind");
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let mut client = within(&joined.fixture.path("a"), connect).expect("connect");
    let server = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("accept");
        peer.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let (mut next, mut want, mut got) = (Bytes::of(5), vec![0; BLOCK], vec![0; BLOCK]);
        for block in 0..bytes / BLOCK {
            next.fill(&mut want);
            peer.read_exact(&mut got).expect("read");
            assert!(got == want, "block {block} is changed");
        }
        peer.write_all(b"done").expect("write");
    });
    client.set_write_timeout(Some(PATIENCE)).expect("timeout");
    let (mut next, mut block) = (Bytes::of(5), vec![0; BLOCK]);
    for _ in 0..bytes / BLOCK {
        next.fill(&mut block);
        client.write_all(&block).expect("write");
    }
    client.set_read_timeout(Some(PATIENCE)).expect("timeout");
    client
        .read_exact(&mut [0; 4])
        .expect("the server has compared all");
    server.join().expect("compared");
}

fn tcp_crosses(test: &str, ends: Ends) {
    let Some(joined) = Joined::new(test, ends, SUPER) else {
        return;
    };
    for (ips, protocol) in [(V4, "v4"), (V6, "v6")] {
        let before = joined.counters();
        stream(&joined, ips, 32 << 20);
        let [from, to] = joined.counters();
        let frames = to.rx_frames - before[1].rx_frames;
        let segments = to.rx_more_segments - before[1].rx_more_segments;
        println!("{test} {protocol}: {frames} frames, {segments} segments more");
        // How many segments a frame has is for TCP to say; on a slow machine they are fewer.
        assert!(segments > frames, "{protocol}: {frames} {segments}");
        for counters in [&from, &to] {
            for reason in [
                DropReason::TooLong,
                DropReason::BadOffload,
                DropReason::NoOffload,
                DropReason::BadLength,
                DropReason::Uplink,
            ] {
                assert_eq!(counters.dropped(reason), 0, "{reason}: {counters:?}");
            }
        }
    }
    assert_eq!(joined.snmp("b", "Tcp", "InCsumErrors"), 0);
    let path = joined.uplinks[0].status().path.expect("connected");
    assert_eq!(path.levels, SUPER, "{path:?}");
}

// promise: 2.30
#[test]
fn tcp_crosses_in_super_frames_between_veths() {
    tcp_crosses("superv", Ends::Veth);
}

// promise: 2.30
#[test]
fn tcp_crosses_in_super_frames_between_veths_with_pinned_links() {
    if !has_own_mounts("tcp_crosses_in_super_frames_between_veths_with_pinned_links") {
        return;
    }
    tcp_crosses("superp", Ends::Pinned);
}

// promise: 2.30
#[test]
fn tcp_crosses_in_super_frames_between_taps() {
    tcp_crosses("supert", Ends::Tap);
}

/// Sends datagrams by one call from `a` to `b`, which gets each.
fn datagrams(joined: &Joined, ips: [&str; 2]) {
    let [from, other] = ["a", "b"].map(|host| joined.fixture.path(host));
    datagrams_arrive(&from, &other, address(ips[1], 7000));
}

// promise: 2.30
#[test]
fn datagrams_of_one_call_arrive_one_by_one_also_in_vlans() {
    for (test, ends) in [("udpv", Ends::Veth), ("udpt", Ends::Tap)] {
        let Some(joined) = Joined::new(test, ends, SUPER) else {
            return;
        };
        datagrams(&joined, V4);
        datagrams(&joined, V6);
        let netns = joined.fixture.netns("a");
        if !run(&format!(
            "ip -n {netns} link add link eth0 name v7 type vlan id 7"
        ))
        .succeeded()
        {
            println!("{test}: this kernel has no VLAN interfaces");
            continue;
        }
        must(&format!("ip -n {netns} link del v7"));
        for (host, number) in [("a", 1), ("b", 2)] {
            let netns = joined.fixture.netns(host);
            for line in [
                "link add link eth0 name v7 type vlan id 7".to_owned(),
                format!("addr add 10.9.7.{number}/24 dev v7"),
                "link set v7 up".to_owned(),
                // A link carries frames of one tag beyond its MTU (packet_snd(), veth), no second one.
                "link add link v7 name v8 mtu 1496 type vlan id 8".to_owned(),
                format!("addr add 10.9.8.{number}/24 dev v8"),
                "link set v8 up".to_owned(),
            ] {
                must(&format!("ip -n {netns} {line}"));
            }
        }
        for net in [7, 8] {
            let ips = [1, 2].map(|host| format!("10.9.{net}.{host}"));
            let ips = [ips[0].as_str(), ips[1].as_str()];
            datagrams(&joined, ips);
            let before = joined.counters()[1].rx_more_segments;
            stream(&joined, ips, 4 << 20);
            let more = joined.counters()[1].rx_more_segments - before;
            // The inner tag is in the frame, and the kernel may cut such frames itself.
            assert!(more > 0 || net == 8, "VLAN {net} has super-frames too");
        }
        assert_eq!(joined.snmp("b", "Udp", "InCsumErrors"), 0);
        // A stream faster than its receiver may fill the ring. No frame may be lost otherwise.
        for counters in joined.counters() {
            let full = counters.dropped(DropReason::RingFull);
            assert_eq!(counters.dropped_total(), full, "{counters:?}");
        }
    }
}

// promise: 2.31
#[test]
fn checksums_alone_may_be_left_undone() {
    for (test, ends) in [("csumv", Ends::Veth), ("csumt", Ends::Tap)] {
        let Some(joined) = Joined::new(test, ends, CHECKSUMS) else {
            return;
        };
        stream(&joined, V4, 4 << 20);
        datagrams(&joined, V6);
        let [from, to] = joined.counters();
        assert_eq!((from.tx_more_segments, to.tx_more_segments), (0, 0));
        assert_eq!(from.dropped(DropReason::NoOffload), 0);
        assert_eq!(joined.snmp("b", "Tcp", "InCsumErrors"), 0);
    }
}

/// The settings of both ends of the veth of a host.
fn settings(joined: &Joined, host: &str) -> String {
    let of = |netns: String, interface: &str| {
        let features = must(&format!("ip netns exec {netns} ethtool -k {interface}"));
        let link = must(&format!("ip -n {netns} -d link show {interface}"));
        let link: Vec<&str> = link.lines().collect();
        let filters = run(&format!(
            "tc -n {netns} filter show dev {interface} ingress"
        ));
        format!("{features}\n{}\n{filters:?}", link.join("\n"))
    };
    let up = of(joined.fixture.netns("up"), &format!("up{host}"));
    up + &of(joined.fixture.netns(host), "eth0")
}

// promise: 2.32
#[test]
fn levels_change_under_traffic_and_nothing_is_lost_that_can_be_delivered() {
    if !has_own_mounts("levels_change_under_traffic_and_nothing_is_lost_that_can_be_delivered") {
        return;
    }
    for (test, ends) in [
        ("levelv", Ends::Veth),
        ("levelp", Ends::Pinned),
        ("levelt", Ends::Tap),
    ] {
        let Some(joined) = Joined::new(test, ends, Levels::default()) else {
            return;
        };
        let plain = (ends != Ends::Tap).then(|| settings(&joined, "a"));
        let is_over = AtomicBool::new(false);
        let mut changes = 0;
        thread::scope(|scope| {
            let streaming = scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    stream(&joined, V4, 8 << 20);
                }
            });
            let (mut random, mut last) = (Random(3), 0);
            let all = [Levels::default(), CHECKSUMS, SUPER];
            while changes < 12 && !streaming.is_finished() {
                let (now, levels) = (all[last], all[(last + 1) % 3]);
                // Nothing enters anywhere that is not taken everywhere.
                let between = Levels {
                    enter: now.enter.min(levels.enter),
                    take: now.take.max(levels.take),
                };
                joined.set_levels(between);
                // Frames that have entered before may wait for a core: the daemon leaves as much time.
                thread::sleep(Duration::from_millis(250));
                joined.set_levels(levels);
                last = (last + 1) % 3;
                let path = joined.uplinks[0].status().path.expect("connected");
                assert_eq!(path.levels, levels);
                thread::sleep(Duration::from_millis(20 + u64::from(random.below(60))));
                changes += 1;
            }
            is_over.store(true, Relaxed);
            streaming.join().expect("every byte has arrived");
        });
        assert_eq!(changes, 12);
        let [from, to] = joined.counters();
        for counters in [from, to] {
            for reason in [
                DropReason::TooLong,
                DropReason::BadOffload,
                DropReason::NoOffload,
            ] {
                assert_eq!(counters.dropped(reason), 0, "{test}: {reason} {counters:?}");
            }
        }
        assert!(to.rx_more_segments > 0, "there were super-frames");
        joined.set_levels(Levels::default());
        if let Some(plain) = plain {
            assert_eq!(strip(&settings(&joined, "a")), strip(&plain));
        }
    }
}

/// Settings without the numbers of programs.
fn strip(settings: &str) -> String {
    let words = settings.split_whitespace().filter(|word| {
        !word.chars().all(|c| c.is_ascii_digit())
            && !word.starts_with("tag")
            && !word.starts_with("jited")
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Another uplink may not have the interface, at either hook.
fn another_is_refused(fixture: &mut Fixture) {
    for levels in [Levels::default(), SUPER] {
        let mut spec = fixture.spec("up", "upa");
        (spec.offloads, spec.long_slots, spec.levels) = (true, 256, levels);
        let refused = fixture.open(&spec).expect_err("it is taken");
        let reported = nfluid_uplink::ReportedError::from(&refused);
        assert_eq!(reported.kind, ErrorKind::Busy, "{refused}");
    }
}

// promise: 2.33
#[test]
fn interfaces_are_as_before_after_close() {
    if !has_own_mounts("interfaces_are_as_before_after_close") {
        return;
    }
    for (test, ends) in [("backv", Ends::Veth), ("backp", Ends::Pinned)] {
        let Some(mut joined) = Joined::new(test, ends, SUPER) else {
            return;
        };
        let during = settings(&joined, "a");
        assert!(during.contains("tx-tcp-segmentation: on"), "{during}");
        assert!(during.contains("gso_max_size 65472"), "{during}");
        another_is_refused(&mut joined.fixture);
        for uplink in std::mem::take(&mut joined.uplinks) {
            uplink.close(&joined.fixture.scratch.switch).expect("close");
        }
        let after = settings(&joined, "a");
        assert!(!after.contains("65472"), "{after}");
        assert_eq!(
            std::fs::read_dir(&joined.folder).map_or(0, Iterator::count),
            0
        );
        // A new interface has the same settings.
        let netns = joined.fixture.netns("up");
        must(&format!("ip -n {netns} link add n0 type veth peer name n1"));
        let new = must(&format!("ip netns exec {netns} ethtool -k n0"));
        for line in new.lines().skip(1) {
            assert!(after.contains(line), "{line} is not as it was");
        }
    }
}

/// The part of the next test that crashes: makes an uplink and kills itself.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn crash_with_a_super_uplink() {
    let Ok(arguments) = std::env::var("NFLUID_TEST_CRASH") else {
        return;
    };
    let words: Vec<&str> = arguments.split(' ').collect();
    let scratch = nfluid_testbed::scratch::Scratch::new("crashlong").expect("a platform");
    let mut spec = UplinkSpec::new("crashed", "upa", 1, 1);
    spec.netns = Some(words[0].into());
    spec.state_dir = Some(words[1].into());
    (spec.offloads, spec.long_slots, spec.levels) = (true, 256, SUPER);
    let _uplink = Uplink::open(&scratch.switch, spec).expect("an uplink");
    let _killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

// promise: 2.33
#[test]
fn leftovers_of_a_crash_are_put_back() {
    let Some(mut joined) = Joined::new("crashl", Ends::Veth, Levels::default()) else {
        return;
    };
    for uplink in std::mem::take(&mut joined.uplinks) {
        uplink.close(&joined.fixture.scratch.switch).expect("close");
    }
    let before = settings(&joined, "a");
    let netns = joined.fixture.path("up");
    let status = Command::new(std::env::current_exe().expect("/proc is mounted"))
        .args(["--exact", "crash_with_a_super_uplink", "--ignored"])
        .env(
            "NFLUID_TEST_CRASH",
            format!("{} {}", netns.display(), joined.folder.display()),
        )
        .stdout(Stdio::null())
        .status()
        .expect("the test runs");
    assert!(!status.success(), "it was to be killed");
    let root = nfluid_testbed::scratch::cgroup2_root().expect("cgroups");
    for entry in std::fs::read_dir(root).expect("readable").flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("nfluid-test-crashlong-") {
            let _removed = std::fs::remove_dir(entry.path());
        }
    }
    assert_ne!(settings(&joined, "a"), before, "a crash leaves traces");
    another_is_refused(&mut joined.fixture);
    let cleaned = nfluid_uplink::clean_leftovers(&joined.folder, |_| false);
    assert_eq!(cleaned, ["crashed"]);
    assert_eq!(settings(&joined, "a"), before);
}
