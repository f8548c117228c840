//! The promise: a guard in XDP is an instance like any other, and connections come about and go on through it while
//! others flood it.

use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_wire::build::Frame;
use nfluid_wire::{MacAddr, TcpFlags};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;
use nfluid_tests::harness::within;
use uplink_fixture::Raw;

const END: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 80);

/// The kernel gets one SYN in a second.
fn guard(limits: &str) -> String {
    format!(
        "version: 1\ninstances:\n  g:\n    tier: xdp\n    nf: guard\n    interface: client\n    netns: EDGE\n    config:\n      \
         limits: {{ {limits} }}\n      syn: {{ protect: ['10.0.0.1:80'], to_kernel: {{ packets: 1 }} }}\n"
    )
}

/// A thread with a stop flag.
struct Task {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Task {
    fn start(mut step: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                step();
                thread::sleep(Duration::from_millis(1));
            }
        });
        Task { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends");
    }
}

/// Answers all clients.
fn serve(listener: TcpListener) -> Task {
    listener.set_nonblocking(true).expect("it can be");
    let mut clients: Vec<TcpStream> = Vec::new();
    Task::start(move || {
        while let Ok((client, _)) = listener.accept() {
            client.set_nonblocking(true).expect("it can be");
            clients.push(client);
        }
        for client in &mut clients {
            if client.read(&mut [0; 1]).is_ok_and(|got| got > 0) {
                // The client may have gone meanwhile.
                let _sent = client.write_all(b"!");
            }
        }
    })
}

/// SYNs from everywhere, also from where no route leads.
fn flood(raw: Raw, to: MacAddr) -> Task {
    let mut number = 0u32;
    Task::start(move || {
        for _ in 0..50 {
            number = number.wrapping_add(0x9e37_79b9);
            let from = Ipv4Addr::from_bits(198 << 24 | number >> 8);
            let frame = Frame::tcp((from, number as u16 | 1).into(), END.into(), TcpFlags::SYN);
            let mut buffer = [0; 128];
            let frame = frame.macs(MacAddr([2, 0, 0, 0, 0, 9]), to);
            let length = frame.write(&mut buffer, &[]).expect("it fits");
            raw.send(&buffer[..length]);
        }
    })
}

fn connect(client: &Path) -> Option<TcpStream> {
    within(client, || {
        let at = SocketAddr::from(END);
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(5)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        Some(stream)
    })
}

/// Returns true if a connection is answered. The server may have refused the cookie.
fn is_answered(stream: &mut TcpStream) -> bool {
    let asked = stream.write_all(b"?");
    asked.is_ok() && stream.read_exact(&mut [0]).is_ok()
}

/// Packets that left the guard like that.
fn packets(platform: &Platform, verdict: &str, reason: &str) -> u64 {
    let stats = platform.ask(&["stats"]);
    let found = list(&stats["instances"]).find(|one| one["name"] == "g");
    let metrics = found.map(|one| one["metrics"].clone()).unwrap_or_default();
    let name = format!("xdp_packets{{verdict=\"{verdict}\",reason=\"{reason}\"}}");
    metrics[name].as_f64().unwrap_or(0.0) as u64
}

fn hardware_address(edge: &str) -> MacAddr {
    let links = must(&format!("ip -n {edge} -j link show client"));
    let links: Value = serde_json::from_str(&links).expect("JSON was asked for");
    let text = links[0]["address"].as_str().expect("it has one");
    text.parse().expect("it is one")
}

// promise: 15.33
#[test]
fn connections_come_about_and_go_on_behind_a_guard_while_it_is_flooded() {
    let test = "connections_come_about_and_go_on_behind_a_guard_while_it_is_flooded";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.host("client", "10.0.0.2/24");
    let edge = platform.edge();
    must(&format!("ip -n {edge} address add 10.0.0.1/24 dev client"));
    let cookies = format!("ip netns exec {edge} sysctl -qw net.ipv4.tcp_syncookies");
    must(&format!("{cookies}=1"));
    let refused = platform.try_apply(&guard(""));
    assert!(refused.stderr.contains("tcp_syncookies"), "{refused:?}");
    must(&format!("{cookies}=2"));
    let netns = PathBuf::from("/run/netns").join(&edge);
    let listener = within(&netns, || TcpListener::bind(END)).expect("a port");
    let server = serve(listener);
    let client = platform.host_netns("client");
    let mut before = connect(&client).expect("nobody is in the way");

    assert_eq!(platform.apply(&guard("")), ["created instance g"]);
    let raw = within(&client, || Raw::open("eth0")).expect("a raw socket");
    let flooding = flood(raw, hardware_address(&edge));
    eventually("it answers a flood", || {
        packets(&platform, "send", "answered") > 1000
    });
    // Sockets believe in cookies once they have sent one, which the flood may keep them from: then who is known is
    // heard.
    let mut kept = vec![];
    eventually("connections come about", || {
        let new = connect(&client);
        kept.extend(new.and_then(|mut stream| is_answered(&mut stream).then_some(stream)));
        kept.len() >= 10
    });
    assert!(packets(&platform, "pass", "acknowledged") > 0);
    let mut all_go_on = |when: &str| {
        for stream in kept.iter_mut().chain([&mut before]) {
            assert!(is_answered(stream), "{when}");
        }
    };
    all_go_on("in a flood");

    // Another limit is in force at once, and disturbs no connection.
    let limited = guard("destination: { packets: 1 }");
    assert_eq!(platform.apply(&limited), ["changed instance g"]);
    let datagrams = within(&client, || UdpSocket::bind("0.0.0.0:0")).expect("a port");
    eventually("what is too much for a destination is dropped", || {
        // No socket listens there, which may cause an error.
        let _sent = datagrams.send_to(b"x", (END.0, 9));
        packets(&platform, "drop", "destination") > 0
    });
    all_go_on("with another limit");
    let answered = packets(&platform, "send", "answered");
    platform.kill_daemon();
    all_go_on("without a daemon");
    platform.start();
    assert!(platform.events_of("g").contains(&"adopted".to_owned()));
    assert!(
        packets(&platform, "send", "answered") > answered,
        "it counts on"
    );
    all_go_on("with another daemon");
    // No other traffic is in flight that would carry an answer along.
    flooding.end();
    for number in 0..5 {
        let mut stream = connect(&client).expect("nobody is in the way");
        assert!(
            is_answered(&mut stream),
            "connection {number} without a flood"
        );
    }
    let sized = limited.replace(
        "      limits",
        "      tables: { sources: 1000 }\n      limits",
    );
    let refused = platform.try_apply(&sized);
    assert!(
        refused.stderr.contains("cannot change its size"),
        "{refused:?}"
    );
    let deleted = platform.nfluid(&["delete", "instance", "g"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    all_go_on("without it");
    server.end();
    let links = must(&format!("ip -n {edge} -j link show client"));
    let links: Value = serde_json::from_str(&links).expect("JSON was asked for");
    assert!(
        links[0]["xdp"]["prog"].is_null(),
        "nothing is left: {links}"
    );
}
