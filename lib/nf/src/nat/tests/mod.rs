//! Packet-in, packet-out: each test is a table of events and their results, in text.
//!
//! A line of a table is `inside udp 10.0.0.2:5000 > 192.0.2.9:53` (a frame arrives), or `wait 300` (seconds pass).
//! The result of a frame is the same text for the frame that leaves, or `drop <reason>`. Frames that leave are
//! checked whole: lengths and all checksums.

mod bad_config;
mod commands;
mod fragments;
mod hairpin;
mod half_open;
mod icmp_errors;
mod idents;
mod large;
mod limits;
mod mappings;
mod neighbours;
mod properties;
mod refusals;
mod super_frames;
mod tcp_sessions;

use crate::function::{Metric, Nanos, NetworkFunction, PortInfo};
use crate::testing::{Collected, Sent, ports, run};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use nfluid_wire::ChecksumState::Complete;
use nfluid_wire::build::Frame;
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{IpProtocol, PacketMeta, TcpFlags, VlanTag};
use serde_json::{Value, json};
use std::format;
use std::net::{IpAddr, SocketAddr};
use std::string::ToString;
use std::vec::Vec;

/// A NAT with its clock.
pub(super) struct Bench {
    nf: Box<dyn NetworkFunction>,
    now: Nanos,
}

impl Bench {
    /// A NAT at 203.0.113.1, with `extra` keys in its configuration.
    pub(super) fn new(extra: Value) -> Bench {
        Bench::with_mtus(extra, [1500; 2])
    }

    /// Makes a bench with these MTUs inside and outside.
    pub(super) fn with_mtus(extra: Value, mtus: [u16; 2]) -> Bench {
        let mut ports = ports(2);
        for (port, mtu) in ports.iter_mut().zip(mtus) {
            port.mtu = mtu;
        }
        let nf = super::build(&config(extra), &ports).expect("a valid configuration");
        let now = Nanos::from_secs(1000);
        Bench { nf, now }
    }

    pub(super) fn send(&mut self, port: u8, frame: &[u8]) -> Vec<Sent> {
        run(&mut *self.nf, self.now, &[(port, frame.to_vec())])
    }

    pub(super) fn send_all(&mut self, frames: &[Sent]) -> Vec<Sent> {
        run(&mut *self.nf, self.now, frames)
    }

    /// Plays a line and returns the result.
    pub(super) fn play(&mut self, line: &str) -> String {
        if let Some(seconds) = line.strip_prefix("wait ") {
            self.wait(seconds.parse().expect("seconds"));
            return String::new();
        }
        let before = self.drops();
        let (port, frame) = frame(line);
        let sent = self.send(port, &frame);
        match &sent[..] {
            // An ICMP error about a dropped frame is looked at by `refusals` and `large`.
            [_] if self.drops() != before => self.drops_since(&before),
            [(port, frame)] => describe(*port, frame),
            [] => self.drops_since(&before),
            more => format!("{} frames", more.len()),
        }
    }

    /// Plays a table and compares.
    pub(super) fn table(&mut self, lines: &[(&str, &str)]) {
        for (number, (line, expected)) in lines.iter().enumerate() {
            assert_eq!(&self.play(line), expected, "line {number}: {line}");
        }
    }

    /// Time passes, with ticks often enough for a whole round of the sweep.
    pub(super) fn wait(&mut self, seconds: u64) {
        self.now = Nanos(self.now.0 + seconds * 1_000_000_000);
        for _ in 0..256 {
            self.nf.tick(self.now, &mut Collected::default());
        }
    }

    pub(super) fn metric(&self, name: &str, label: Option<&str>) -> f64 {
        let mut sum = 0.0;
        self.nf.metrics(&mut |m: Metric| {
            if m.name == name && label.is_none_or(|l| m.labels.iter().any(|(_, v)| v == l)) {
                sum += m.value;
            }
        });
        sum
    }

    fn drops(&self) -> BTreeMap<String, f64> {
        let mut drops = BTreeMap::new();
        self.nf.metrics(&mut |m: Metric| {
            if m.name == "packets_dropped_total" {
                drops.insert(m.labels[0].1.clone(), m.value);
            }
        });
        drops
    }

    fn drops_since(&self, before: &BTreeMap<String, f64>) -> String {
        let after = self.drops();
        let grown: Vec<&str> = after
            .iter()
            .filter(|(reason, count)| before[*reason] != **count)
            .map(|(reason, _)| reason.as_str())
            .collect();
        assert_eq!(grown.len(), 1, "one drop, one reason");
        format!("drop {}", grown[0])
    }

    pub(super) fn command(&mut self, name: &str, args: &[&str]) -> Value {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        self.nf
            .command(self.now, name, &args)
            .expect("a valid command")
    }

    pub(super) fn reconfigure(&mut self, extra: Value) {
        let config = config(extra);
        self.nf
            .reconfigure(&config, &ports(2))
            .expect("a valid configuration");
    }
}

pub(super) fn config(extra: Value) -> Value {
    let mut config = json!({"pool": ["203.0.113.1"], "seed": 7});
    for (key, value) in extra.as_object().expect("a map") {
        config[key] = value.clone();
    }
    config
}

pub(super) fn two_ports() -> Vec<PortInfo> {
    ports(2)
}

/// The frame of a line, and the port where it arrives.
pub(super) fn frame(line: &str) -> Sent {
    let mut words = line.split_whitespace().peekable();
    let port = match words.next() {
        Some("inside") => 0,
        Some("outside") => 1,
        other => panic!("{other:?} is no port: {line}"),
    };
    let mut tags = Vec::new();
    while words.next_if_eq(&"vlan").is_some() {
        tags.push(VlanTag::new(
            words.next().expect("an id").parse().expect("an id"),
        ));
    }
    let protocol = words.next().expect("a protocol");
    let src = words.next().expect("a source");
    assert_eq!(words.next(), Some(">"), "{line}");
    let dst = words.next().expect("a destination");
    let rest: Vec<&str> = words.collect();
    let frame = match protocol {
        "udp" => Frame::udp(socket(src), socket(dst)),
        "tcp" => tcp(socket(src), socket(dst), &rest),
        "icmp" => icmp(address(src), address(dst), &rest),
        "gre" => Frame::ip(address(src), address(dst), IpProtocol::GRE),
        "esp" => Frame::ip(address(src), address(dst), IpProtocol(50)),
        "sctp" => Frame::ip(address(src), address(dst), IpProtocol(132)),
        "ospf" => Frame::ip(address(src), address(dst), IpProtocol(89)),
        "igmp" => Frame::ip(address(src), address(dst), IpProtocol(2)),
        other => panic!("{other} is no protocol: {line}"),
    };
    let mut buffer = [0; 200];
    // With sequence numbers there is none, so that they are easily counted.
    let payload: &[u8] = match rest.last() {
        Some(last) if last.contains('/') => b"",
        _ => b"some payload, odd",
    };
    // As most hosts send: then the identification stays.
    let len = frame
        .dont_fragment()
        .vlans(&tags)
        .write(&mut buffer, payload)
        .expect("fits");
    (port, buffer[..len].to_vec())
}

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address and port")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Flags, and `seq/ack` at the end, which is 0/0 if it is not there.
fn tcp(src: SocketAddr, dst: SocketAddr, rest: &[&str]) -> Frame<'static> {
    let numbers = rest.last().and_then(|last| last.split_once('/'));
    let names = &rest[..rest.len() - usize::from(numbers.is_some())];
    let number = |text: &str| text.parse().expect("a number");
    let (seq, ack) = numbers.map_or((0, 0), |(seq, ack)| (number(seq), number(ack)));
    Frame::tcp(src, dst, flags(names)).sequence(seq, ack)
}

fn flags(names: &[&str]) -> TcpFlags {
    let flag = |name: &&str| TcpFlags::from_name(name).expect("a flag");
    names
        .iter()
        .map(flag)
        .fold(TcpFlags::NONE, |all, flag| all | flag)
}

fn icmp(src: IpAddr, dst: IpAddr, rest: &[&str]) -> Frame<'static> {
    let number = |text: &str| text.parse().expect("a number");
    match *rest {
        ["echo", ident] => Frame::echo_request(src, dst, number(ident), 1),
        ["reply", ident] => Frame::echo_reply(src, dst, number(ident), 1),
        ["type", kind] => Frame::icmp(src, dst, kind.parse().expect("a type"), 0, [0; 4]),
        _ => panic!("{rest:?} is no ICMP message"),
    }
}

/// The line of a frame; panics if a length or checksum in it is wrong.
pub(super) fn describe(port: u8, frame: &[u8]) -> String {
    let mut text = match port {
        0 => String::from("inside"),
        _ => String::from("outside"),
    };
    let meta = PacketMeta::parse(frame).expect("a well-formed frame");
    check_sums(frame, &meta);
    for tag in 0..usize::from(meta.vlan_count) {
        text += &format!(" vlan {}", meta.vlan_tci[tag] & 0xfff);
    }
    let (src, dst) = meta.addresses().expect("IP");
    let sockets = || {
        let src = SocketAddr::new(src, meta.src_port);
        format!("{src} > {}", SocketAddr::new(dst, meta.dst_port))
    };
    text += &match meta.protocol {
        IpProtocol::UDP => format!(" udp {}", sockets()),
        IpProtocol::TCP => {
            let flags = format!("{}", meta.tcp_flags).replace(',', " ");
            let tcp = TcpPacket::new_unchecked(&frame[usize::from(meta.l4_offset)..]);
            match (tcp.seq(), tcp.ack()) {
                (0, 0) => format!(" tcp {} {flags}", sockets()),
                (seq, ack) => format!(" tcp {} {flags} {seq}/{ack}", sockets()),
            }
        }
        IpProtocol::ICMPV4 => {
            let what = match meta.icmp_type {
                8 => format!("echo {}", meta.icmp_ident),
                0 => format!("reply {}", meta.icmp_ident),
                other => format!("type {other}"),
            };
            format!(" icmp {src} > {dst} {what}")
        }
        other => format!(" {other} {src} > {dst}"),
    };
    text
}

/// Panics unless all checksums of a whole IPv4 packet are right.
pub(super) fn check_sums(frame: &[u8], meta: &PacketMeta) {
    let ip = Ipv4Packet::new_checked(&frame[usize::from(meta.l3_offset)..]).expect("IPv4");
    assert!(ip.verify_checksum(), "IPv4 header checksum");
    if ip.is_fragment() {
        return;
    }
    let (payload, pseudo) = (ip.payload(), ip.pseudo_header());
    let right = match meta.protocol {
        IpProtocol::UDP => {
            UdpPacket::new_checked(payload).is_ok_and(|p| p.verify_checksum(pseudo, Complete))
        }
        IpProtocol::TCP => {
            TcpPacket::new_checked(payload).is_ok_and(|p| p.verify_checksum(pseudo, Complete))
        }
        IpProtocol::ICMPV4 => Icmpv4Packet::new_checked(payload).is_ok_and(|p| p.verify_checksum()),
        _ => true,
    };
    assert!(right, "transport checksum");
}
