//! The same through the kernel: frames enter a veth, nftables decides where they arrive at its other end, and those
//! that pass leave by another veth.
//!
//! ```text
//! send/receive  in0 <-> fw0  [ nftables, ingress of fw0 and fw1 ]  fw1 <-> in1  send/receive
//! ```

use crate::packets::{self, Packet};
use crate::rules::Rule;
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender, open};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_testbed::namespace::Namespace;
use nfluid_tests::harness::patience::PATIENCE;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Frames in flight, far below the kernel's backlog of 1000.
const BATCH: usize = 64;
/// Ethertype for experiments (IEEE 802): such a frame always passes and shows that the frames before it are through.
const FLUSH: [u8; 2] = [0x88, 0xb5];

/// Mark of later fragments. nftables, unless it reassembles, takes what stands there for a transport header (seen with
/// Linux 6.18); conditions on ports, flags and ICMP types exclude them by this mark.
pub const LATER_FRAGMENT: u32 = 1;

/// The kernel's side of the comparison.
pub struct Kernel {
    namespace: Namespace,
    ports: [(InterfaceSender, InterfaceReceiver); 2],
}

impl Kernel {
    /// Makes the namespace; the reason if this kernel cannot do it.
    pub fn new() -> Result<Kernel, String> {
        let namespace = Namespace::named(format!("nfl-fw-{}", std::process::id()));
        let namespace = namespace.map_err(complaint)?;
        namespace.disable_ipv6();
        for port in [0, 1] {
            let veth = format!("link add in{port} type veth peer name fw{port}");
            namespace.ip(&veth).map_err(complaint)?;
            for end in ["in", "fw"] {
                let up = namespace.ip(&format!("link set {end}{port} up"));
                up.map_err(complaint)?;
            }
        }
        // This thread is the test's own and ends with it.
        namespace.enter().map_err(complaint)?;
        let open = |name| open(name).map_err(|error| error.to_string());
        let ports = [open("in0")?, open("in1")?];
        let mut kernel = Kernel { namespace, ports };
        kernel.install(&[])?;
        Ok(kernel)
    }

    /// Which packets pass, and how many each rule matched.
    pub fn run(&mut self, rules: &[Rule], packets: &[Packet]) -> (BTreeSet<u32>, Vec<u64>) {
        self.install(rules)
            .unwrap_or_else(|error| panic!("{error}"));
        let mut passed = BTreeSet::new();
        for batch in packets.chunks(BATCH) {
            for in_port in [0, 1] {
                let frames: Vec<&Packet> = batch.iter().filter(|p| p.in_port == in_port).collect();
                self.send(usize::from(in_port), &frames);
                self.collect(usize::from(in_port ^ 1), &mut passed);
            }
        }
        (passed, self.hits(rules))
    }

    fn install(&mut self, rules: &[Rule]) -> Result<(), String> {
        let mut text = String::from(
            "table netdev oracle\ndelete table netdev oracle\ntable netdev oracle {\n",
        );
        for (port, other) in [(0, 1), (1, 0)] {
            text += &format!(
                "chain port{port} {{ type filter hook ingress device \"fw{port}\" priority 0; policy drop;\n\
                 ether type 0x{:02x}{:02x} fwd to \"fw{other}\"\n\
                 ip frag-off & 0x1fff != 0 meta mark set {LATER_FRAGMENT}\n\
                 frag frag-off != 0 meta mark set {LATER_FRAGMENT}\n",
                FLUSH[0], FLUSH[1]
            );
            for rule in rules
                .iter()
                .filter(|rule| rule.in_port.is_none_or(|p| p == port))
            {
                let action = rule.nft_action(&format!("fw{other}"));
                text += &format!("{} counter {action}\n", rule.nft());
            }
            text += "}\n";
        }
        text += "}\n";
        let installed = self.namespace.run_with_input("nft -f -", &text);
        let why = |error| format!("{error:#}\n{text}");
        installed.map(drop).map_err(why)
    }

    fn send(&mut self, port: usize, packets: &[&Packet]) {
        let flush = [&[2; 12][..], &FLUSH, &[0; 46]].concat();
        let frames: Vec<&[u8]> = packets
            .iter()
            .map(|p| &p.frame[..])
            .chain([&flush[..]])
            .collect();
        let (sender, _) = &mut self.ports[port];
        let mut sent = 0;
        while sent < frames.len() {
            let rest = &frames[sent..];
            let fill = |index: usize, slot: &mut [u8]| {
                slot[..rest[index].len()].copy_from_slice(rest[index]);
                rest[index].len()
            };
            sent += sender
                .send(rest.len(), fill)
                .expect("the veth takes frames");
            sender.flush().expect("the veth takes frames");
        }
    }

    /// Takes what comes out of `port` until the frame that follows each batch.
    fn collect(&mut self, port: usize, passed: &mut BTreeSet<u32>) {
        let (_, receiver) = &mut self.ports[port];
        let begin = Instant::now();
        let mut through = false;
        while !through {
            assert!(
                begin.elapsed() < PATIENCE,
                "the kernel lost the frame that always passes"
            );
            receiver
                .wait(Duration::from_millis(100))
                .expect("the veth is there");
            let handle = |frame: &[u8]| match packets::identifier(frame) {
                Some(identifier) => assert!(passed.insert(identifier), "{identifier} came twice"),
                None => through |= frame.get(12..14) == Some(&FLUSH),
            };
            receiver.receive(BATCH, handle).expect("the veth is there");
        }
    }

    /// Packets that each rule matched, on both ports.
    fn hits(&self, rules: &[Rule]) -> Vec<u64> {
        let mut hits = vec![0; rules.len()];
        for port in [0, 1] {
            let list = format!("nft list chain netdev oracle port{port}");
            let listing = self.namespace.run(&list).expect("a chain");
            let mut counters = listing.split("counter packets ").skip(1).map(|rest| {
                let number = rest.split_whitespace().next().expect("a number follows");
                number.parse::<u64>().expect("a number follows")
            });
            for (rule, hits) in rules.iter().zip(&mut hits) {
                if rule.in_port.is_none_or(|p| p == port) {
                    *hits += counters.next().expect("a counter for each rule");
                }
            }
            assert_eq!(counters.next(), None, "more counters than rules");
        }
        hits
    }
}

fn complaint(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}
