//! The Linux kernel as a NAT in a network namespace of its own, joined by veth pairs to another one, in which the test
//! injects and captures raw frames.

use super::{EXTERNAL, HOSTS, INSIDE_MACS, OUTSIDE_MACS, OnPort, SERVER, UPSTREAM};
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_wire::build::Frame;
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Payload of the packet whose arrival tells that the kernel is done with the one before.
const MARKER: &[u8; 16] = b"nfluid-oracle-mk";

/// Two namespaces, removed when dropped.
struct Namespaces {
    nat: String,
    hosts: String,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.nat, &self.hosts] {
            let _gone = Command::new("ip")
                .args(["netns", "del", namespace])
                .output();
        }
    }
}

pub struct Kernel {
    senders: [InterfaceSender; 2],
    receivers: [InterfaceReceiver; 2],
    marker: Vec<u8>,
    _namespaces: Namespaces,
}

/// Runs a program that must succeed, with this standard input.
fn run(line: &str, input: &str) {
    let mut words = line.split_whitespace();
    let mut child = Command::new(words.next().expect("a program"))
        .args(words)
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(input.as_bytes()).expect("it reads");
    drop(pipe);
    let status = child.wait().expect("our child");
    assert!(status.success(), "{line}: {status}");
}

impl Kernel {
    /// Moves the calling thread into the hosts' namespace and pins it to one CPU, so that the kernel handles its frames in
    /// order.
    pub fn new() -> Kernel {
        let id = std::process::id();
        let namespaces = Namespaces {
            nat: format!("nfl-{id}-nat-k"),
            hosts: format!("nfl-{id}-nat-h"),
        };
        let Namespaces { nat, hosts } = &namespaces;
        for namespace in [nat, hosts] {
            run(&format!("ip netns add {namespace}"), "");
            let off = "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
            run(&format!("ip netns exec {namespace} sysctl -qw {off}"), "");
        }
        let settings = "net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
             net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0";
        run(&format!("ip netns exec {nat} sysctl -qw {settings}"), "");
        for (port, (own, _)) in [INSIDE_MACS, OUTSIDE_MACS].into_iter().enumerate() {
            let link =
                format!("link add n{port} address {own} type veth peer name h{port} netns {hosts}");
            run(&format!("ip -n {nat} {link}"), "");
            run(
                &format!("ip -n {hosts} link set h{port} arp off promisc on up"),
                "",
            );
            run(&format!("ip -n {nat} link set n{port} up"), "");
        }
        run(&format!("ip -n {nat} -batch -"), &addresses());
        run(&format!("ip netns exec {nat} nft -f -"), &rules());
        let mut cpu = CpuSet::new();
        cpu.set(0);
        sched_setaffinity(None, &cpu).expect("CPU 0 exists");
        let namespace = File::open(format!("/run/netns/{hosts}")).expect("just made");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may");
        let sender = |name| InterfaceSender::open(name).expect("just made");
        let receiver = |name| InterfaceReceiver::open(name).expect("just made");
        let mut kernel = Kernel {
            senders: [sender("h0"), sender("h1")],
            receivers: [receiver("h0"), receiver("h1")],
            marker: marker(),
            _namespaces: namespaces,
        };
        kernel.settle();
        kernel
    }

    /// Until the links carry frames: a marker comes through.
    fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut ignored = Vec::new();
        loop {
            self.inject(0, &self.marker.clone());
            std::thread::sleep(Duration::from_millis(20));
            if self.collect(&mut ignored) {
                break;
            }
            assert!(Instant::now() < deadline, "the kernel does not forward");
        }
        // Markers that waited.
        std::thread::sleep(Duration::from_millis(50));
        self.collect(&mut ignored);
    }

    /// What leaves when this frame arrives.
    pub fn translate(&mut self, (port, frame): &OnPort) -> Vec<OnPort> {
        self.inject(*port, frame);
        self.inject(0, &self.marker.clone());
        let mut frames = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.collect(&mut frames) {
            assert!(Instant::now() < deadline, "the marker does not arrive");
        }
        frames
    }

    fn inject(&mut self, port: u8, frame: &[u8]) {
        let sender = &mut self.senders[usize::from(port)];
        let taken = sender.send(1, |_, slot| {
            slot[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        assert_eq!(taken.expect("veth takes it"), 1);
        sender.flush().expect("veth takes it");
    }

    /// Takes what has arrived; whether the marker is among it. The marker leaves on the outside port after everything
    /// that the frame before it led to, so the inside port is asked again after it has been seen.
    fn collect(&mut self, frames: &mut Vec<OnPort>) -> bool {
        let mut marked = false;
        for port in [0, 1, 0] {
            let mut take = |frame: &[u8]| {
                if frame.ends_with(MARKER) {
                    marked = true;
                } else {
                    frames.push((port, frame.to_vec()));
                }
            };
            let receiver = &mut self.receivers[usize::from(port)];
            while receiver.receive(256, &mut take).expect("it receives") > 0 {}
        }
        marked
    }
}

fn marker() -> Vec<u8> {
    let (own, hosts) = INSIDE_MACS;
    let (src, dst) = ("10.0.0.250:9", "192.0.2.250:9");
    let frame =
        Frame::udp(src.parse().expect("valid"), dst.parse().expect("valid")).macs(hosts, own);
    let mut buffer = [0; 100];
    let len = frame.write(&mut buffer, MARKER).expect("it fits");
    buffer[..len].to_vec()
}

fn addresses() -> String {
    let mut batch = format!(
        "addr add 10.0.0.1/24 dev n0\naddr add {EXTERNAL}/24 dev n1\n\
         neigh add {UPSTREAM} lladdr {} dev n1 nud permanent\nroute add default via {UPSTREAM}\n",
        OUTSIDE_MACS.1
    );
    for host in HOSTS {
        batch += &format!(
            "neigh add {host} lladdr {} dev n0 nud permanent\n",
            INSIDE_MACS.1
        );
    }
    batch
}

/// The same translation as the configuration of the NAT under test says. What nobody is mapped to would go to the kernel
/// itself, which would answer.
fn rules() -> String {
    format!(
        "table ip nat {{
            chain pre {{
                type nat hook prerouting priority dstnat;
                ip daddr {EXTERNAL} tcp dport 80 dnat to {SERVER}:8080;
            }}
            chain post {{
                type nat hook postrouting priority srcnat;
                ip saddr 10.0.0.0/24 snat to {EXTERNAL};
            }}
            chain in {{ type filter hook input priority filter; policy drop; }}
        }}"
    )
}
