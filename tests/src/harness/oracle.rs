//! The Linux kernel as an oracle: it forwards in a network namespace of its own, joined by veth pairs to another one, in
//! which the test injects and captures raw frames.

use super::patience::PATIENCE;
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_testbed::namespace::Namespace;
use nfluid_wire::MacAddr;
use nfluid_wire::build::Frame;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::time::{Duration, Instant};

/// A frame, and the port on which it arrives or leaves.
pub type OnPort = (u8, Vec<u8>);

/// Payload of the packet whose arrival tells that the kernel is done with the one before.
pub const MARKER: &[u8; 16] = b"nfluid-oracle-mk";

/// A packet with that payload, from a host beyond port 0 to one beyond port 1. `kernel` and `hosts`: MAC addresses at port 0.
///
/// # Panics
/// Never: it fits.
pub fn marker(kernel: MacAddr, hosts: MacAddr) -> Vec<u8> {
    let (src, dst) = ("10.0.0.250:9", "192.0.2.250:9");
    let frame =
        Frame::udp(src.parse().expect("valid"), dst.parse().expect("valid")).macs(hosts, kernel);
    let mut buffer = [0; 100];
    let len = frame.write(&mut buffer, MARKER).expect("it fits");
    buffer[..len].to_vec()
}

/// Two namespaces, removed when dropped.
#[derive(Debug)]
pub struct Namespaces {
    /// Where the kernel forwards.
    pub kernel: Namespace,
    /// Where the test is.
    pub hosts: Namespace,
}

impl Namespaces {
    /// Makes them; `name` tells them from those of other tests of the process.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn new(name: &str) -> Self {
        let id = std::process::id();
        let made = |end| Namespace::named(format!("nfl-{id}-{name}-{end}")).expect("a namespace");
        let (kernel, hosts) = (made("k"), made("h"));
        hosts.disable_ipv6();
        Self { kernel, hosts }
    }

    /// Changes settings where the kernel forwards.
    ///
    /// # Panics
    /// If it has no such setting.
    pub fn set(&self, settings: &str) {
        let set = self.kernel.run(&format!("sysctl -qw {settings}"));
        set.expect("the kernel has the settings");
    }

    /// Makes a veth pair: `nPORT` with this MAC address where the kernel forwards, `hPORT` where the test is.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn join(&self, port: usize, mac: impl std::fmt::Display) {
        let Namespaces { kernel, hosts } = self;
        let on = |namespace: &Namespace, line: String| {
            namespace
                .ip(&line)
                .unwrap_or_else(|error| panic!("{error:#}"))
        };
        let peer = format!("peer name h{port} netns {}", hosts.name());
        on(
            kernel,
            format!("link add n{port} address {mac} type veth {peer}"),
        );
        on(hosts, format!("link set h{port} arp off promisc on up"));
        on(kernel, format!("link set n{port} up"));
    }
}

/// The hosts' ends of the veth pairs, `h0`, `h1`, ...
pub struct Oracle {
    senders: Vec<InterfaceSender>,
    receivers: Vec<InterfaceReceiver>,
    /// Enters at port 0, and leaves last.
    marker: Vec<u8>,
    /// What a kernel sends by itself.
    is_background: fn(&[u8]) -> bool,
    _namespaces: Namespaces,
}

impl Oracle {
    /// Moves the calling thread into the hosts' namespace and pins it to one CPU, so that the kernel handles its frames in
    /// order. Returns when the kernel forwards `marker`, which ends with [`MARKER`], from port 0.
    ///
    /// # Panics
    /// If it does not forward.
    pub fn new(
        namespaces: Namespaces,
        ports: u8,
        marker: Vec<u8>,
        is_background: fn(&[u8]) -> bool,
    ) -> Self {
        let mut cpu = CpuSet::new();
        cpu.set(0);
        sched_setaffinity(None, &cpu).expect("CPU 0 exists");
        namespaces.hosts.enter().expect("root may");
        let name = |port| format!("h{port}");
        let sender = |port| InterfaceSender::open(&name(port)).expect("just made");
        let receiver = |port| InterfaceReceiver::open(&name(port)).expect("just made");
        let mut oracle = Self {
            senders: (0..ports).map(sender).collect(),
            receivers: (0..ports).map(receiver).collect(),
            marker,
            is_background,
            _namespaces: namespaces,
        };
        oracle.settle();
        oracle
    }

    /// Until links and addresses are usable: a marker comes through.
    fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
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
    ///
    /// # Panics
    /// If the kernel stops forwarding.
    pub fn pass(&mut self, (port, frame): &OnPort) -> Vec<OnPort> {
        self.inject(*port, frame);
        self.inject(0, &self.marker.clone());
        let mut frames = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while !self.collect(&mut frames) {
            assert!(Instant::now() < deadline, "the marker does not arrive");
            // The kernel may want this CPU for it.
            std::thread::yield_now();
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
    /// packet before it led to: once it has been seen, all ports are asked again, because the first pass may have asked
    /// one before the kernel was done.
    fn collect(&mut self, frames: &mut Vec<OnPort>) -> bool {
        let marked = self.take_all(frames);
        if marked {
            self.take_all(frames);
        }
        marked
    }

    fn take_all(&mut self, frames: &mut Vec<OnPort>) -> bool {
        let mut marked = false;
        for (receiver, port) in self.receivers.iter_mut().zip(0..) {
            let mut take = |frame: &[u8]| {
                if frame.ends_with(MARKER) {
                    marked = true;
                } else if !(self.is_background)(frame) {
                    frames.push((port, frame.to_vec()));
                }
            };
            while receiver.receive(256, &mut take).expect("it receives") > 0 {}
        }
        marked
    }
}
