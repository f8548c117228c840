//! Packet-in, packet-out tests. They read as prose: a configuration, a frame, the frames that come out.

mod answers;
pub(super) mod arbitrary;
mod captures;
mod claims;
mod connections;
mod engines;
mod language;
mod reconfiguring;
mod states;
mod super_frames;
mod verdicts;

use super::build;
use crate::function::{Nanos, NetworkFunction};
use crate::testing::{Sent, ports, run, run_one};
use core::net::{IpAddr, SocketAddr};
use nfluid_wire::build::Frame;
use nfluid_wire::{TcpFlags, VlanTag};
use serde_json::{Value, json};
use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

/// The port towards the protected side.
const INSIDE: u8 = 0;
/// The port towards all other hosts.
const OUTSIDE: u8 = 1;

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const RST: TcpFlags = TcpFlags::RST;
const FIN_ACK: TcpFlags = TcpFlags(0x11);
const SYN_ACK: TcpFlags = TcpFlags(0x12);

/// A firewall and a clock.
struct Bench {
    nf: Box<dyn NetworkFunction>,
    now: Nanos,
}

impl Bench {
    /// With these rules and default settings.
    fn with_rules(rules: &str) -> Self {
        Bench::new(json!({ "rules": rules }))
    }

    fn new(config: Value) -> Self {
        let nf = build(&config, &ports(2)).unwrap_or_else(|error| panic!("{error}"));
        let now = Nanos::from_secs(1);
        Bench { nf, now }
    }

    /// Returns the frames that leave when `frame` arrives on `port`.
    fn sent(&mut self, port: u8, frame: &[u8]) -> Vec<Sent> {
        run_one(&mut *self.nf, self.now, port, frame)
    }

    /// Returns true if the frame leaves on the other port, alone and unchanged.
    fn passes(&mut self, port: u8, frame: &[u8]) -> bool {
        let sent = self.sent(port, frame);
        assert!(sent.len() <= 1, "one frame in, several out");
        match sent.first() {
            None => false,
            Some((to, bytes)) => {
                assert_eq!(
                    (*to, bytes.as_slice()),
                    (port ^ 1, frame),
                    "changed on the way"
                );
                true
            }
        }
    }

    fn wait_s(&mut self, seconds: u64) {
        self.now.0 += seconds * 1_000_000_000;
    }

    fn tick(&mut self) {
        self.nf
            .tick(self.now, &mut crate::testing::Collected::default());
    }

    fn command(&mut self, name: &str, args: &[&str]) -> Value {
        let args: Vec<String> = args.iter().map(|arg| (*arg).into()).collect();
        self.nf
            .command(self.now, name, &args)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The metric, of which one label has this value; labels are ignored if `label` is empty.
    fn metric(&self, name: &str, label: &str) -> u64 {
        let mut found = None;
        self.nf.metrics(&mut |metric| {
            let labelled = metric.labels.iter().any(|(_, value)| value == label);
            if metric.name == name && (labelled || label.is_empty()) {
                found = Some(metric.value as u64);
            }
        });
        found.unwrap_or_else(|| panic!("no metric {name} {label}"))
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.metric("packets_dropped_total", reason)
    }
}

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("address:port")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

fn bytes(frame: Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 2032];
    let len = frame.write(&mut buffer, payload).expect("fits");
    buffer[..len].to_vec()
}

fn tcp(from: &str, to: &str, flags: TcpFlags) -> Vec<u8> {
    bytes(Frame::tcp(socket(from), socket(to), flags), b"")
}

fn segment(from: &str, to: &str, flags: TcpFlags, seq: u32, ack: u32) -> Vec<u8> {
    let frame = Frame::tcp(socket(from), socket(to), flags);
    bytes(frame.sequence(seq, ack), b"")
}

fn udp(from: &str, to: &str) -> Vec<u8> {
    bytes(Frame::udp(socket(from), socket(to)), b"data")
}

fn ping(from: &str, to: &str, id: u16) -> Vec<u8> {
    bytes(Frame::echo_request(ip(from), ip(to), id, 1), b"ping")
}

fn pong(from: &str, to: &str, id: u16) -> Vec<u8> {
    bytes(Frame::echo_reply(ip(from), ip(to), id, 1), b"ping")
}

fn tagged(frame: Frame<'_>, vlan: u16) -> Vec<u8> {
    bytes(frame.vlans(&[VlanTag::new(vlan)]), b"data")
}
