//! The Linux kernel as an oracle: it forwards in its own network namespace, joined by veth pairs to another namespace,
//! in which the test injects and captures raw frames.

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

/// Payload of the marker packet; its arrival shows that the kernel has finished the packet before.
pub const MARKER: &[u8; 16] = b"nfluid-oracle-mk";

/// Returns a packet with that payload, from a host beyond port 0 to a host beyond port 1. `kernel` and `hosts`: MAC
/// addresses at port 0.
///
/// # Panics
/// Never: the packet fits.
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
    /// The namespace in which the kernel forwards.
    pub kernel: Namespace,
    /// The namespace in which the test injects and captures.
    pub hosts: Namespace,
}

impl Namespaces {
    /// Makes the namespaces; `name` distinguishes them from those of other tests of the process.
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

    /// Changes settings in the namespace in which the kernel forwards.
    ///
    /// # Panics
    /// If a setting does not exist.
    pub fn set(&self, settings: &str) {
        let set = self.kernel.run(&format!("sysctl -qw {settings}"));
        set.expect("the kernel has the settings");
    }

    /// Makes a veth pair: `nPORT` with this MAC address at the kernel's end, `hPORT` at the test's end.
    ///
    /// # Panics
    /// If the pair cannot be made.
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

/// The order of what leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    /// Frames are handled in order, whatever their ports: the marker enters port 0, and leaves anywhere.
    PortZero,
    /// Frames are handled in order on each port: the marker enters the frame's port, and leaves by all ports.
    EachPort,
}

/// The hosts' ends of the veth pairs, `h0`, `h1`, ...
pub struct Oracle {
    senders: Vec<InterfaceSender>,
    receivers: Vec<InterfaceReceiver>,
    /// Sent after each frame; leaves last.
    marker: Vec<u8>,
    marks: Marks,
    /// Returns true for frames that the kernel sends by itself.
    is_background: fn(&[u8]) -> bool,
    namespaces: Namespaces,
}

impl Oracle {
    /// Moves the calling thread into the hosts' namespace and pins it to one CPU, so that the kernel handles its frames
    /// in order. Returns when the kernel forwards `marker`, which ends with [`MARKER`], from port 0.
    ///
    /// # Panics
    /// If the kernel does not forward.
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
            marks: Marks::PortZero,
            is_background,
            namespaces,
        };
        oracle.settle();
        oracle
    }

    /// From now on the marker enters the frame's port, and leaves by all ports: for a forwarder that keeps the order of frames on each port alone.
    pub fn marking_each_port(self) -> Self {
        Self {
            marks: Marks::EachPort,
            ..self
        }
    }

    /// Waits until links and addresses are usable, that is, until a marker is forwarded.
    fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let mut ignored = Vec::new();
        loop {
            self.inject(0, &self.marker.clone());
            std::thread::sleep(Duration::from_millis(20));
            if self.collect(&mut ignored) > 0 {
                break;
            }
            assert!(Instant::now() < deadline, "the kernel does not forward");
        }
        // Discards markers that were still queued.
        std::thread::sleep(Duration::from_millis(50));
        self.collect(&mut ignored);
    }

    /// Installs this ruleset of nftables where the kernel forwards, and forgets the connections that it has seen.
    ///
    /// # Panics
    /// If the kernel refuses the ruleset.
    pub fn set_rules(&mut self, ruleset: &str) {
        let kernel = &self.namespaces.kernel;
        let installed = kernel.run_with_input("nft -f -", ruleset);
        installed.unwrap_or_else(|error| panic!("{error:#}\n{ruleset}"));
        kernel.run("conntrack -F").expect("connections are tracked");
    }

    /// Injects a frame; returns the frames that leave.
    ///
    /// # Panics
    /// If the kernel stops forwarding.
    pub fn pass(&mut self, (port, frame): &OnPort) -> Vec<OnPort> {
        self.inject(*port, frame);
        let (marked, markers) = match self.marks {
            Marks::PortZero => (0, 1),
            Marks::EachPort => (*port, self.receivers.len()),
        };
        self.inject(marked, &self.marker.clone());
        let mut frames = Vec::new();
        let mut seen = 0;
        let deadline = Instant::now() + PATIENCE;
        loop {
            seen += self.collect(&mut frames);
            if seen >= markers {
                break;
            }
            assert!(Instant::now() < deadline, "the marker does not arrive");
            // The kernel may need this CPU to forward.
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

    /// Takes the frames that have arrived; returns how many markers are among them. The marker arrives last on its
    /// port, after all frames that the packet before it caused. Once the marker has arrived, all ports are read again,
    /// because the first pass may have read a port before the kernel was done.
    fn collect(&mut self, frames: &mut Vec<OnPort>) -> usize {
        let mut marked = self.take_all(frames);
        if marked > 0 {
            marked += self.take_all(frames);
        }
        marked
    }

    fn take_all(&mut self, frames: &mut Vec<OnPort>) -> usize {
        let mut marked = 0;
        for (receiver, port) in self.receivers.iter_mut().zip(0..) {
            let mut take = |frame: &[u8]| {
                if frame.ends_with(MARKER) {
                    marked += 1;
                } else if !(self.is_background)(frame) {
                    frames.push((port, frame.to_vec()));
                }
            };
            while receiver.receive(256, &mut take).expect("it receives") > 0 {}
        }
        marked
    }
}
