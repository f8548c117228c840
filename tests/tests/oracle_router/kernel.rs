//! The Linux kernel as a router in a network namespace of its own, joined by veth pairs to another one, in which the test
//! injects and captures raw frames.

use super::traffic::Routes;
use super::{HOSTS, MTUS, OnPort, PORTS, host_addresses, host_mac, own_addresses, port_mac};
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Payload of the packet whose arrival tells that the kernel is done with the one before.
const MARKER: &[u8; 16] = b"nfluid-oracle-mk";

/// Two namespaces, removed when dropped.
struct Namespaces {
    router: String,
    hosts: String,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.router, &self.hosts] {
            let _gone = Command::new("ip")
                .args(["netns", "del", namespace])
                .output();
        }
    }
}

pub struct Kernel {
    _namespaces: Namespaces,
    senders: Vec<InterfaceSender>,
    receivers: Vec<InterfaceReceiver>,
    marker: Vec<u8>,
}

/// Runs a program that must succeed, with this standard input.
fn run(line: &str, input: &str) {
    let mut words = line.split_whitespace();
    let mut child = Command::new(words.next().expect("a program"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(input.as_bytes()).expect("it reads");
    drop(pipe);
    let status = child.wait().expect("our child");
    assert!(status.success(), "{line}: {status}");
}

impl Kernel {
    /// A kernel with these routes, the addresses and neighbours of the router under test. Moves the calling thread into
    /// the hosts' namespace and pins it to one CPU, so that the kernel handles its frames in order.
    pub fn new(name: &str, routes: Option<&Routes>) -> Kernel {
        let id = std::process::id();
        let namespaces = Namespaces {
            router: format!("nfl-{id}-{name}-r"),
            hosts: format!("nfl-{id}-{name}-h"),
        };
        let Namespaces { router, hosts } = &namespaces;
        for namespace in [router, hosts] {
            run(&format!("ip netns add {namespace}"), "");
        }
        let quiet = "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
        run(&format!("ip netns exec {hosts} sysctl -qw {quiet}"), "");
        let settings = "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.forwarding=1 \
             net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
             net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0 \
             net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
             net.ipv6.conf.default.dad_transmits=0 net.ipv6.conf.default.router_solicitations=0 \
             net.ipv4.conf.all.accept_source_route=0 net.ipv4.conf.default.accept_source_route=0 \
             net.ipv6.auto_flowlabels=0 net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0";
        run(&format!("ip netns exec {router} sysctl -qw {settings}"), "");
        run(&format!("ip -n {router} -batch -"), &links(hosts));
        for port in 0..PORTS {
            run(
                &format!("ip -n {hosts} link set h{port} arp off promisc on mtu 9000 up"),
                "",
            );
            // Else the kernel leaves the checksums of its own TCP segments to the interface.
            run(
                &format!("ip netns exec {router} ethtool -K r{port} tx off"),
                "",
            );
            run(&format!("ip -n {router} link set r{port} up"), "");
        }
        // Addresses after the links are up, routes after the addresses.
        run(&format!("ip -n {router} -batch -"), &addresses());
        for (family, lines) in routes
            .map(|r| [(4, &r.v4), (6, &r.v6)])
            .into_iter()
            .flatten()
        {
            let mut batch = String::new();
            for line in lines {
                let _ = writeln!(batch, "route add {line}");
            }
            run(&format!("ip -n {router} -{family} -batch -"), &batch);
        }
        wait_for_link_local(router);
        let mut cpu = CpuSet::new();
        cpu.set(0);
        sched_setaffinity(None, &cpu).expect("CPU 0 exists");
        let namespace = File::open(format!("/run/netns/{hosts}")).expect("just made");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may");
        let name = |port| format!("h{port}");
        let sender = |port| InterfaceSender::open(&name(port)).expect("just made");
        let receiver = |port| InterfaceReceiver::open(&name(port)).expect("just made");
        let mut kernel = Kernel {
            senders: (0..PORTS).map(sender).collect(),
            receivers: (0..PORTS).map(receiver).collect(),
            marker: super::traffic::marker(MARKER),
            _namespaces: namespaces,
        };
        kernel.settle();
        kernel
    }

    /// Until the addresses are usable: a marker comes through.
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
    pub fn forward(&mut self, (port, frame): &OnPort) -> Vec<OnPort> {
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

    /// Takes what has arrived; whether the marker is among it. It comes last on its port, and after everything that the
    /// packet before it led to, so the other ports are asked after it has been seen.
    fn collect(&mut self, frames: &mut Vec<OnPort>) -> bool {
        let mut marked = false;
        for (receiver, port) in self.receivers.iter_mut().zip(0..PORTS).rev() {
            let mut take = |frame: &[u8]| {
                if frame.ends_with(MARKER) {
                    marked = true;
                } else if !is_background(frame) {
                    frames.push((port, frame.to_vec()));
                }
            };
            while receiver.receive(256, &mut take).expect("it receives") > 0 {}
        }
        marked && {
            // Once more: the first pass may have asked a port before the kernel was done.
            for (receiver, port) in self.receivers.iter_mut().zip(0..PORTS) {
                let mut take = |frame: &[u8]| {
                    if !is_background(frame) && !frame.ends_with(MARKER) {
                        frames.push((port, frame.to_vec()));
                    }
                };
                while receiver.receive(256, &mut take).expect("it receives") > 0 {}
            }
            true
        }
    }
}

/// Multicast listener reports, which a kernel sends by itself, and IPv6 redirects, which it has no switch for.
fn is_background(frame: &[u8]) -> bool {
    let is_ipv6 = frame.len() > 62 && frame[12..14] == [0x86, 0xdd];
    let report = frame.len() > 62 && frame[20] == 0 && frame[62] == 143;
    let redirect = frame.len() > 62 && frame[20] == 58 && frame[54] == 137;
    is_ipv6 && (report || redirect)
}

/// Until every port has a link-local address that may be used.
fn wait_for_link_local(namespace: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let listed = Command::new("ip")
            .args(["-n", namespace, "-6", "-o", "addr", "show", "scope", "link"])
            .output()
            .expect("ip starts");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let ready = listed.lines().filter(|line| !line.contains("tentative"));
        if ready.count() == usize::from(PORTS) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no link-local addresses: {listed}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn links(hosts: &str) -> String {
    let mut batch = String::new();
    for port in 0..PORTS {
        let mac = port_mac(port);
        let mtu = MTUS[usize::from(port)];
        let _ = writeln!(
            batch,
            "link add r{port} address {mac} mtu {mtu} type veth peer name h{port} netns {hosts}"
        );
    }
    batch
}

fn addresses() -> String {
    let mut batch = String::new();
    for port in 0..PORTS {
        for address in own_addresses(port) {
            let _ = writeln!(batch, "addr add {address} dev r{port}");
        }
        for host in 0..HOSTS {
            for address in host_addresses(port, host) {
                let mac = host_mac(port, host);
                let _ = writeln!(
                    batch,
                    "neigh add {address} lladdr {mac} dev r{port} nud permanent"
                );
            }
        }
    }
    batch
}
