//! The promise: a process is the slow path of a fast path. Packets that neither decides alone are decided by the rules;
//! without the process the fast path continues with its known flows, and no other packets pass.

use super::fixture::{
    Servers, are_dropped, connect_to, metric, nft, nothing_is_left, program_on, routed, who,
};
use super::uplink_fixture::Raw;
use nfluid_testbed::process::signal;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::within;
use nfluid_wire::build::Frame;
use nfluid_wire::{MacAddr, VlanTag};
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Connections are the kernel's to know: what such a rule may match is handed up.
const RULES: &str = "table ip filter { chain forward { type filter hook forward priority 0; \
    udp dport 9 drop; udp dport 20-29 ct state invalid drop; \
    tcp dport 8080 ct state invalid drop; }; }";

const BESIDE: &str = "
version: 1
instances:
  fw:
    tier: xdp
    nf: efw
    interface: client
    netns: EDGE
    slow: { port: rest.in, back: rest.out }
  rest:
    nf: firewall
    restart: never
    config:
      rules: |
        deny udp from any to any 21
        allow ip from any to any
";

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
/// Allowed by the process, denied by it, dropped by the fast path, passed by the fast path.
const SLOW: u16 = 20;
const DENIED: u16 = 21;
const FORBIDDEN: u16 = 9;
const FAST: u16 = 30;

fn listen(platform: &Platform, port: u16) -> UdpSocket {
    let socket = within(&platform.host_netns("server"), || {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("it is free")
    });
    socket.set_nonblocking(true).expect("it can be");
    socket
}

fn send(platform: &Platform, port: u16) {
    within(&platform.host_netns("client"), || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        // A closed port may have caused an error.
        let _sent = socket.send_to(b"x", (SERVER, port));
    });
}

fn has_come(socket: &UdpSocket) -> bool {
    let mut any = false;
    while socket.recv(&mut [0; 8]).is_ok() {
        any = true;
    }
    any
}

/// Sends until something comes.
fn comes(platform: &Platform, socket: &UdpSocket, port: u16, when: &str) {
    has_come(socket);
    eventually(&format!("port {port} is reached {when}"), || {
        send(platform, port);
        has_come(socket)
    });
}

fn handed(platform: &Platform, verdict: &str, reason: &str) -> u64 {
    let name = format!("{{verdict=\"{verdict}\",reason=\"{reason}\"}}");
    metric(platform, "fw", &format!("xdp_packets{name}"))
        + metric(platform, "fw", &format!("xdp_slow_packets{name}"))
}

/// Returns the number of dropped packets of those that the slow path's uplink has sent.
fn dropped_behind_the_tap(platform: &Platform) -> u64 {
    let stats = platform.ask(&["stats"]);
    let ports = list(&stats["ports"]).filter(|port| port["name"] == "fw-slow");
    let drops = ports.flat_map(|port| port["counters"]["drops"].as_object().cloned());
    drops
        .flatten()
        .filter_map(|(_, count)| count.as_u64())
        .sum()
}

/// A frame with a VLAN tag comes back to where it came in as it was.
fn a_tag_comes_through(platform: &Platform) {
    let netns = Path::new("/run/netns").join(platform.edge());
    let behind = within(&netns, || Raw::open("client")).expect("a raw socket");
    let client = within(&platform.host_netns("client"), || Raw::open("eth0"));
    let (from, to) = ("10.0.7.2:7", "10.0.7.1:7");
    let frame = Frame::udp(from.parse().expect("valid"), to.parse().expect("valid"));
    let (mac, tags) = (MacAddr([2, 0, 0, 0, 7, 1]), [VlanTag::new(7)]);
    let mut buffer = [0; 128];
    let len = frame
        .macs(mac, mac)
        .vlans(&tags)
        .write(&mut buffer, b"a tag");
    let tagged = &buffer[..len.expect("it fits")];
    client.expect("a raw socket").send(tagged);
    let came = behind.receive_wanted(|frame| frame == tagged);
    assert!(came.is_some(), "what has a tag comes back with it");
    assert!(handed(platform, "up", "tagged") > 0);
}

// promise: 15.66
#[test]
fn a_process_is_the_slow_path_of_a_fast_path_which_goes_on_without_it() {
    let test = "a_process_is_the_slow_path_of_a_fast_path_which_goes_on_without_it";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    routed(&mut platform, &["client", "server"]);
    let edge = platform.edge();
    nft(&platform, RULES);
    platform.apply(BESIDE);
    let fw = platform.instance("fw");
    assert_eq!(fw["state"], "running", "{fw}");
    let slow_path = fw["fast"]["slow_path"].as_str().unwrap_or_default();
    assert!(slow_path.starts_with("tap nfslo"), "{fw}");

    // Verdicts are those of the rules, in the fast path or in the slow path.
    let [slow, denied, forbidden, fast] =
        [SLOW, DENIED, FORBIDDEN, FAST].map(|port| listen(&platform, port));
    comes(&platform, &fast, FAST, "by the fast path");
    assert_eq!(handed(&platform, "up", "ask"), 0, "nothing was handed up");
    send(&platform, DENIED);
    // Behind it on the same way.
    comes(&platform, &slow, SLOW, "through the process");
    assert!(!has_come(&denied), "the process denies it");
    are_dropped(&platform, FORBIDDEN);
    assert!(!has_come(&forbidden), "the fast path drops it");
    assert!(handed(&platform, "up", "ask") >= 2);
    assert!(handed(&platform, "pass", "returned") >= 1);
    let servers = Servers::start(&platform, &["server"]);
    let at = SocketAddr::from((SERVER, 8080));
    let connect = || connect_to(&platform, at).map(|mut stream| who(&mut stream));
    assert_eq!(connect().as_deref(), Some("se"), "TCP through the process");
    a_tag_comes_through(&platform);
    let long = platform.on("client", "ping -n -c 1 -W 60 -s 3000 10.0.1.2");
    assert!(long.succeeded(), "in fragments: {long:?}");
    assert!(handed(&platform, "up", "fragment") > 0);
    assert_eq!(handed(&platform, "drop", "late"), 0);

    // The slow path needs no daemon.
    platform.kill_daemon();
    comes(&platform, &slow, SLOW, "without a daemon");
    platform.start();
    comes(&platform, &slow, SLOW, "with another daemon");
    assert_eq!(platform.apply(BESIDE), [""; 0], "nothing to change");

    // Without the process the fast path continues, and no other packets pass.
    signal(platform.pids()["rest"], Signal::KILL);
    eventually("it is seen that the process is gone", || {
        !platform.pids().contains_key("rest")
    });
    comes(&platform, &fast, FAST, "while the slow path is dead");
    are_dropped(&platform, FORBIDDEN);
    has_come(&slow);
    let counted = dropped_behind_the_tap(&platform);
    eventually("what cannot be decided is dropped, and counted", || {
        send(&platform, SLOW);
        dropped_behind_the_tap(&platform) > counted
    });
    assert!(!has_come(&slow), "nobody has decided");
    let restarted = platform.nfluid(&["restart", "rest"]);
    assert!(restarted.succeeded(), "{restarted:?}");
    comes(&platform, &slow, SLOW, "when the process is there again");

    servers.end();
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client"]);
    assert_eq!(program_on(&platform, "client"), None);
    let links = must(&format!("ip -n {edge} link show"));
    assert!(!links.contains("nfslo"), "{links}");
}

const BY_TAP: &str = "
version: 1
instances:
  fw: { tier: xdp, nf: efw, interface: client, netns: EDGE, slow: { tap: mine } }
";

/// A program of a user's that lets everything pass: what it reads from its tap it writes back.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Echo {
    fn start(platform: &Platform) -> Self {
        let netns = Path::new("/run/netns").join(platform.edge());
        let mut tap = within(&netns, open_tap);
        must(&format!("ip -n {} link set mine up", platform.edge()));
        let stop = Arc::new(AtomicBool::new(false));
        let is_to_stop = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut frame = [0; 4096];
            while !is_to_stop.load(Ordering::Relaxed) {
                match tap.read(&mut frame) {
                    Ok(len) => tap.write_all(&frame[..len]).expect("it is up"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        });
        Echo { stop, thread }
    }

    /// Ends it, and the tap with it.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends");
    }
}

fn open_tap() -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let device = options.custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let device = device.expect("taps can be made here");
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(b"mine") {
        *to = *from as libc::c_char;
    }
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    };
    // SAFETY: the request is a live ifreq.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    device
}

// promise: 15.66
#[test]
fn a_program_of_the_users_with_a_tap_is_a_slow_path() {
    let Some(mut platform) = Platform::new("a_program_of_the_users_with_a_tap_is_a_slow_path")
    else {
        return;
    };
    routed(&mut platform, &["client", "server"]);
    nft(&platform, RULES);
    platform.apply(BY_TAP);
    let [slow, fast] = [SLOW, FAST].map(|port| listen(&platform, port));
    for _ in 0..2 {
        let why = platform.instance("fw")["unhealthy"].to_string();
        assert!(why.contains("there is no tap 'mine'"), "{why}");
        comes(&platform, &fast, FAST, "without a program");
        // Packets that were sent while a slow path existed.
        has_come(&slow);
        let dropped = handed(&platform, "drop", "no_slow_path");
        eventually("what cannot be decided is dropped, and counted", || {
            send(&platform, SLOW);
            handed(&platform, "drop", "no_slow_path") > dropped
        });
        assert!(!has_come(&slow), "nobody has decided");
        let program = Echo::start(&platform);
        comes(&platform, &slow, SLOW, "through the program");
        let fw = platform.instance("fw");
        assert_eq!(fw["state"], "running", "{fw}");
        assert!(handed(&platform, "pass", "returned") > 0);
        program.end();
        eventually("it is seen that the program is gone", || {
            platform.instance("fw")["state"] == "unhealthy"
        });
    }
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    nothing_is_left(&platform, &["client"]);
}
