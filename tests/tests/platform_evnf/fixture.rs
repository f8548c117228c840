//! A router with clients and servers around it, what is asked of them, and of the fast paths on the router's
//! interfaces.

use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::within;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A router between a client and servers, in the namespace of the platform's interfaces: the network of number N is
/// 10.0.N.0/24, the host there has 2, the router 1.
pub fn routed(platform: &mut Platform, hosts: &[&str]) {
    let edge = platform.edge();
    for (number, host) in hosts.iter().enumerate() {
        let gateway = format!("10.0.{number}.1");
        platform.host(host, &format!("10.0.{number}.2/24"));
        must(&format!("ip -n {edge} address add {gateway}/24 dev {host}"));
        let routed = platform.on(host, &format!("ip route add default via {gateway}"));
        assert!(routed.succeeded(), "{routed:?}");
    }
    must(&format!(
        "ip netns exec {edge} sysctl -qw net.ipv4.ip_forward=1"
    ));
}

pub fn nft(platform: &Platform, rules: &str) {
    let file = platform.directory().join("rules.nft");
    fs::write(&file, rules).expect("the directory is ours");
    let edge = platform.edge();
    must(&format!(
        "ip netns exec {edge} nft -f {}",
        file.to_str().expect("text")
    ));
}

/// The XDP program on an interface of the edge, by its number.
pub fn program_on(platform: &Platform, interface: &str) -> Option<u64> {
    let edge = platform.edge();
    let links = must(&format!("ip -n {edge} -j link show {interface}"));
    let links: Value = serde_json::from_str(&links).expect("JSON was asked for");
    links[0]["xdp"]["prog"]["id"].as_u64()
}

/// A figure of an instance.
pub fn metric(platform: &Platform, instance: &str, name: &str) -> u64 {
    let stats = platform.ask(&["stats"]);
    let found = list(&stats["instances"]).find(|one| one["name"] == instance);
    let metrics = found.map(|one| one["metrics"].clone()).unwrap_or_default();
    metrics[name].as_f64().unwrap_or(0.0) as u64
}

pub fn dropped(platform: &Platform) -> u64 {
    metric(
        platform,
        "fw",
        "xdp_packets{verdict=\"drop\",reason=\"rule\"}",
    )
}

/// Sends datagrams until the fast path has dropped one more.
pub fn are_dropped(platform: &Platform, port: u16) {
    let before = dropped(platform);
    eventually(
        &format!("the fast path drops what is for port {port}"),
        || {
            send(platform, port);
            dropped(platform) > before
        },
    );
}

fn send(platform: &Platform, port: u16) {
    let netns = platform.host_netns("client");
    within(&netns, || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        // A closed port may have caused an error.
        let _sent = socket.send_to(b"x", (Ipv4Addr::new(10, 0, 1, 2), port));
    });
}

pub fn nothing_is_left(platform: &Platform, interfaces: &[&str]) {
    for interface in interfaces {
        assert_eq!(program_on(platform, interface), None, "{interface}");
    }
    for folder in [
        platform.pins().join("fast"),
        platform.run_dir().join("fast"),
        platform.pins().join("rows"),
        platform.run_dir().join("rows"),
    ] {
        let left: Vec<_> = fs::read_dir(&folder).expect("it is there").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

const VIP: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 1), 80);

/// Two servers that say who they are, whenever they are asked.
pub struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    pub fn start(platform: &Platform, hosts: &[&'static str]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = hosts.iter().map(|host| {
            let listener = within(&platform.host_netns(host), || {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8080))
            });
            let listener = listener.expect("a port");
            listener.set_nonblocking(true).expect("it can be");
            let (host, stop) = (*host, Arc::clone(&stop));
            thread::spawn(move || serve(&listener, host, &stop))
        });
        let threads = threads.collect();
        Servers { stop, threads }
    }

    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it ends");
        }
    }
}

fn serve(listener: &TcpListener, host: &str, stop: &AtomicBool) {
    let mut clients: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Ok((client, _)) = listener.accept() {
            client.set_nonblocking(true).expect("it can be");
            clients.push(client);
        }
        for client in &mut clients {
            if client.read(&mut [0; 1]).is_ok_and(|got| got > 0) {
                // The client may have gone meanwhile.
                let _sent = client.write_all(host.as_bytes());
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The client's connection to the service that most tests have.
pub fn connect(platform: &Platform) -> Option<TcpStream> {
    connect_to(platform, SocketAddr::from(VIP))
}

/// The client's connection to a service.
pub fn connect_to(platform: &Platform, at: SocketAddr) -> Option<TcpStream> {
    within(&platform.host_netns("client"), || {
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(2)).ok()?;
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).expect("a time");
        Some(stream)
    })
}

/// Returns the server that answers on a connection.
pub fn who(stream: &mut TcpStream) -> String {
    let mut name = [0; 2];
    stream.write_all(b"?").expect("it is connected");
    stream.read_exact(&mut name).expect("it is answered");
    String::from_utf8_lossy(&name).into_owned()
}

/// Returns the servers that answer `times` new connections.
pub fn asked(platform: &Platform, times: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for _ in 0..times {
        if let Some(mut stream) = connect(platform) {
            found.insert(who(&mut stream));
        }
    }
    found
}
