//! The promise: TCP crosses a chain in super-frames where everything takes them, nobody has to ask for it, and the platform
//! says why where it does not.

#[path = "platform_super/functions.rs"]
mod functions;

use nfluid_evnf::chain::Chain;
use nfluid_evnf::firewall::Firewall;
use nfluid_evnf::hook::Hook;
use nfluid_testbed::process::{is_alive, signal};
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::transfer::{stream, stream_to};
use nfluid_tests::harness::two_hosts::{SERVER, two_hosts};
use nfluid_tests::harness::within;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

const CHAIN: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
instances:
  a: { nf: bridge }
  b: { nf: firewall, config: { rules: 'allow ip from any to any' } }
chains:
  web: { from: lan, to: wan, via: [a, b] }
";
/// The same where one of the NFs takes plain frames.
fn held_back() -> String {
    CHAIN.replace("nf: bridge", "nf: bridge, frames: plain")
}

/// Waits until both uplinks let in these frames.
fn let_in(platform: &Platform, frames: &str) {
    platform.await_frames(&["lan", "wan"], frames);
}

/// The packets and the frames that came into an uplink.
fn came_in(platform: &Platform, name: &str) -> (u64, u64) {
    let counters = &platform.uplink(name)["counters"];
    let of = |key: &str| counters[key].as_u64().expect("a number");
    (of("tx_segments"), of("tx_packets"))
}

// promise: 2.38
#[test]
fn a_chain_takes_super_frames_by_itself_and_says_what_it_lets_in() {
    let Some(platform) = two_hosts("a_chain_takes_super_frames_by_itself") else {
        return;
    };
    platform.apply(CHAIN);
    let_in(&platform, "super");
    let lan = platform.uplink("lan");
    assert_eq!(lan["mode"], "tc");
    assert_eq!(lan["frames_reason"], Value::Null);
    assert_eq!(lan["long_bytes"], 8 << 20);
    stream(&platform, 8 << 20);
    let (segments, frames) = came_in(&platform, "lan");
    assert!(
        segments > 4 * frames,
        "{segments} packets in {frames} frames"
    );
    let metrics = platform.page("/metrics");
    let name = "nfluid_port_tx_segments_total{port=\"lan\"} ";
    let mut lines = metrics.lines();
    let shown = lines.find_map(|line| line.strip_prefix(name)?.parse().ok());
    let shown: u64 = shown.expect("a metric");
    // The hosts may send more meanwhile.
    let now = came_in(&platform, "lan").0;
    assert!(
        (segments..=now).contains(&shown),
        "{shown}: {segments} to {now}"
    );
    let doctor = platform.ask(&["doctor"]);
    let check = list(&doctor["checks"]).find(|check| check["name"] == "frames of uplink lan");
    assert_eq!(
        check.expect("a check")["detail"],
        "super (8192 KiB for long frames)"
    );
}

// promise: 2.38
#[test]
fn io_threads_hand_super_frames_on() {
    let Some(platform) = two_hosts("io_threads_hand_super_frames_on") else {
        return;
    };
    for model in ["split", "merge", "inline"] {
        platform.apply(&CHAIN.replace("version: 1", &format!("version: 1\nio: {model}")));
        let_in(&platform, "super");
        let before = came_in(&platform, "lan");
        stream(&platform, 4 << 20);
        let now = came_in(&platform, "lan");
        let (segments, frames) = (now.0 - before.0, now.1 - before.1);
        assert!(segments > 2 * frames, "{model}: {segments} in {frames}");
    }
}

// promise: 2.38
#[test]
fn instances_from_shells_take_super_frames_too() {
    let Some(platform) = two_hosts("instances_from_shells_take_super_frames_too") else {
        return;
    };
    const POOL: &str = "pool: { medium: { size: 2 } }\n";
    let pool = || platform.ask(&["get", "pools"])[0].clone();
    let (uplinks, _) = CHAIN.split_once("instances:").expect("some");
    platform.apply(&format!("{uplinks}{POOL}"));
    eventually("the shells are ready", || pool()["ready"] == 2);
    platform.apply(&format!("{CHAIN}{POOL}"));
    assert_eq!(pool()["taken"], 2);
    let_in(&platform, "super");
    stream(&platform, 2 << 20);
    let (segments, frames) = came_in(&platform, "lan");
    assert!(segments > 2 * frames, "{segments} in {frames}");
}

// promise: 2.38
#[test]
fn what_takes_less_holds_back_all_and_is_named() {
    let Some(platform) = two_hosts("what_takes_less_holds_back_all_and_is_named") else {
        return;
    };
    platform.apply(CHAIN);
    let_in(&platform, "super");
    let pids = platform.pids();
    platform.apply(&held_back());
    let_in(&platform, "plain");
    let why = platform.uplink("lan")["frames_reason"].clone();
    assert_eq!(why, "instance 'a' takes plain frames");
    stream(&platform, 1 << 20);
    let (segments, frames) = came_in(&platform, "lan");
    stream(&platform, 1 << 20);
    let now = came_in(&platform, "lan");
    assert_eq!(now.0 - segments, now.1 - frames, "each frame is a packet");
    assert_eq!(platform.pids()["b"], pids["b"], "it was not made again");
    platform.apply(CHAIN);
    let_in(&platform, "super");
    stream(&platform, 1 << 20);
    assert_eq!(platform.pids()["b"], pids["b"], "it was not made again");

    platform.apply(&CHAIN.replace("interface: client,", "interface: client, super: off,"));
    let_in(&platform, "plain");
    let why = platform.uplink("wan")["frames_reason"].clone();
    assert_eq!(why, "uplink 'lan' has 'super: off'");
    stream(&platform, 1 << 20);
}

// promise: 2.39
#[test]
fn streams_survive_changes_of_the_level_and_ends_of_all_processes() {
    let Some(mut platform) = two_hosts("streams_survive_changes_of_the_level") else {
        return;
    };
    platform.apply(CHAIN);
    let_in(&platform, "super");
    let is_over = AtomicBool::new(false);
    let netns = ["client", "server"].map(|host| platform.host_netns(host));
    thread::scope(|scope| {
        let streaming = scope.spawn(|| {
            let to: SocketAddr = format!("{SERVER}:7001").parse().expect("an address");
            let listener = within(&netns[1], || TcpListener::bind(to)).expect("bind");
            let connect = || TcpStream::connect_timeout(&to, PATIENCE);
            let mut client = within(&netns[0], connect).expect("connect");
            let (mut server, _) = listener.accept().expect("accept");
            for end in [&client, &server] {
                end.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            }
            let mut blocks = 0u64;
            let (mut sent, mut got) = (vec![0u8; 1 << 18], vec![0u8; 1 << 18]);
            while !is_over.load(Relaxed) {
                sent.fill(blocks as u8);
                thread::scope(|both| {
                    both.spawn(|| client.write_all(&sent).expect("the client writes"));
                    server.read_exact(&mut got).expect("the server reads");
                });
                assert!(got == sent, "block {blocks} has changed on its way");
                blocks += 1;
            }
            blocks
        });
        for round in 0..3 {
            platform.apply(&held_back());
            let_in(&platform, "plain");
            platform.apply(CHAIN);
            let_in(&platform, "super");
            // An uplink's process is killed; the next one goes on with the level.
            let pid = platform.uplink("wan")["pid"].as_u64().expect("it runs");
            let pid = u32::try_from(pid).expect("a process id");
            signal(pid, Signal::KILL);
            eventually("another process runs", || {
                !is_alive(pid) && platform.uplink("wan")["state"] == "up"
            });
            let_in(&platform, "super");
            platform.kill_daemon();
            platform.start();
            let_in(&platform, "super");
            assert_eq!(platform.events_of("lan"), ["adopted"], "round {round}");
            assert_eq!(platform.apply(CHAIN), [""; 0], "all is as desired");
            assert!(!streaming.is_finished(), "the stream goes on");
        }
        is_over.store(true, Relaxed);
        let blocks = streaming.join().expect("no byte was lost");
        assert!(blocks > 0, "something was sent");
    });
}

// promise: 2.43
#[test]
fn a_level_that_cannot_fall_falls_when_it_can_and_holds_up_no_other() {
    let Some(platform) = two_hosts("a_level_that_cannot_fall_falls_when_it_can") else {
        return;
    };
    platform.apply(CHAIN);
    let_in(&platform, "super");
    let mode = |name: &str| platform.uplink(name)["mode"].clone();
    let edge = std::path::Path::new("/run/netns").join(platform.edge());
    let mut other = within(&edge, || {
        let firewall = Firewall::load(&[], &[]).expect("the kernel takes it");
        let member = firewall.member_at(Hook::Xdp).expect("a member");
        let mut chain = Chain::new(vec![member]).expect("a chain");
        chain.attach("client").expect("XDP is free");
        chain
    });
    platform.apply(&held_back());
    let_in(&platform, "plain");
    eventually("the other one is at XDP again", || mode("wan") != "tc");
    assert_eq!(mode("lan"), "tc", "another program is at XDP");
    stream(&platform, 1 << 20);
    other.detach();
    eventually("both are at XDP again", || mode("lan") != "tc");
    stream(&platform, 1 << 20);
}

// promise: 2.40
#[test]
fn an_interface_that_comes_back_has_the_level_again() {
    let Some(platform) = two_hosts("an_interface_that_comes_back_has_the_level_again") else {
        return;
    };
    platform.apply(CHAIN);
    let_in(&platform, "super");
    let edge = platform.edge();
    must(&format!("ip -n {edge} link set client name away"));
    eventually("it is missed", || platform.uplink("lan")["state"] == "down");
    must(&format!("ip -n {edge} link set away name client"));
    must(&format!("ip -n {edge} link set client up"));
    eventually("it is back", || platform.uplink("lan")["state"] == "up");
    let_in(&platform, "super");
    stream(&platform, 1 << 20);
}
