//! Packets in, packets out. The router of these tests stands between two networks:
//!
//! ```text
//! alice 10.0.0.9, 2001:db8::9  --- p0 [10.0.0.1, 2001:db8::1] router [10.0.1.1, 2001:db8:1::1] p1 ---
//!     bob 10.0.1.9, 2001:db8:1::9 and the gateway 10.0.1.254, 2001:db8:1::fe to everything else
//! ```

mod arbitrary;
mod captures;
mod changes;
mod commands;
mod configuration;
mod discovery;
mod errors;
mod forwarding;
mod itself;
mod large;
mod listening;
mod redirects;
mod resolution;
mod super_frames;

use super::Router;
use super::config::Config;
use crate::function::{Metric, Nanos, NetworkFunction, PortInfo};
use crate::testing::{Collected, Sent, ports, run};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfluid_wire::arp::{ArpRepr, Operation};
use nfluid_wire::build::{self, Frame};
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::icmpv6::Icmpv6Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::Ipv6Packet;
use nfluid_wire::{EtherType, EthernetFrame, IpProtocol, MacAddr};
use serde_json::{Value, json};
use std::string::{String, ToString};
use std::vec::Vec;

const P0: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);
const P1: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ALICE: MacAddr = MacAddr([2, 0xa, 0, 0, 0, 9]);
const BOB: MacAddr = MacAddr([2, 0xb, 0, 0, 0, 9]);
const GATEWAY: MacAddr = MacAddr([2, 0xb, 0, 0, 0, 254]);

/// Addresses, a default route each, and no known neighbour.
fn plain() -> Value {
    json!({
        "addresses": {
            "p0": ["10.0.0.1/24", "2001:db8::1/64"],
            "p1": ["10.0.1.1/24", "2001:db8:1::1/64"],
        },
        "routes": [
            {"to": "default", "via": "10.0.1.254"},
            {"to": "::/0", "via": "2001:db8:1::fe"},
            {"to": "203.0.113.0/24", "type": "blackhole"},
            {"to": "198.51.100.0/24", "type": "unreachable"},
            {"to": "2001:db8:dead::/48", "type": "unreachable"},
        ],
    })
}

/// As [`plain`], with alice, bob and the gateway configured as neighbours.
fn acquainted() -> Value {
    let mut config = plain();
    let neighbour = |port, address, mac: MacAddr| json!({"port": port, "address": address, "mac": mac.to_string()});
    config["neighbours"] = json!([
        neighbour("p0", "10.0.0.9", ALICE),
        neighbour("p0", "2001:db8::9", ALICE),
        neighbour("p1", "10.0.1.9", BOB),
        neighbour("p1", "2001:db8:1::9", BOB),
        neighbour("p1", "10.0.1.254", GATEWAY),
        neighbour("p1", "2001:db8:1::fe", GATEWAY),
    ]);
    config
}

/// A router and its clock.
struct Bench {
    nf: Router,
    now: Nanos,
}

impl Bench {
    fn new(config: &Value) -> Bench {
        Bench::on(config, &ports(2))
    }

    fn on(config: &Value, ports: &[PortInfo]) -> Bench {
        let config = Config::parse(config, ports).expect("a valid configuration");
        let mut bench = Bench {
            nf: Router::new(config),
            now: Nanos::from_secs(1000),
        };
        // The announcements of the router's addresses and groups have tests of their own.
        bench.tick();
        bench.wait(1_000);
        bench
    }

    /// Returns the frames that leave when this frame arrives on the port.
    fn send(&mut self, port: u8, frame: Vec<u8>) -> Vec<Sent> {
        run(&mut self.nf, self.now, &[(port, frame)])
    }

    /// The one frame that leaves, and its port.
    fn send_one(&mut self, port: u8, frame: Vec<u8>) -> Sent {
        let mut sent = self.send(port, frame);
        assert_eq!(sent.len(), 1, "one frame leaves: {sent:02x?}");
        sent.remove(0)
    }

    /// Checks that no frame leaves, and that the reason is counted.
    fn refuses(&mut self, port: u8, frame: Vec<u8>, reason: &str) {
        let before = self.dropped(reason);
        let sent = self.send(port, frame);
        assert!(sent.is_empty(), "nothing leaves: {sent:02x?}");
        assert_eq!(self.dropped(reason), before + 1, "counted as {reason}");
    }

    fn tick(&mut self) -> Vec<Sent> {
        let mut sent = Collected::default();
        self.nf.tick(self.now, &mut sent);
        sent.plain()
    }

    /// Returns the frames that leave while time passes, with a tick every 100 ms.
    fn wait(&mut self, millis: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        for _ in 0..millis / 100 {
            self.now.0 += 100_000_000;
            sent.append(&mut self.tick());
        }
        sent
    }

    fn metric(&self, name: &str, label: Option<&str>) -> u64 {
        let mut sum = 0.0;
        self.nf.metrics(&mut |metric: Metric| {
            let labelled = |wanted| metric.labels.iter().any(|(_, value)| value == wanted);
            if metric.name == name && label.is_none_or(labelled) {
                sum += metric.value;
            }
        });
        sum as u64
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.metric("packets_dropped_total", Some(reason))
    }

    fn command(&mut self, name: &str, args: &[&str]) -> Value {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        self.nf
            .command(self.now, name, &args)
            .expect("a valid command")
    }

    /// State of a neighbour in the listing, `"none"` if it is not there.
    fn state_of(&mut self, address: &str) -> String {
        let listed = self.command("neighbours", &[]);
        let entries = listed["neighbours"].as_array().expect("a list");
        let found = entries.iter().find(|entry| entry["address"] == address);
        found.map_or("none".into(), |entry| {
            entry["state"].as_str().expect("text").into()
        })
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn written(frame: &Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    let length = frame.write(&mut buffer, payload).expect("it fits");
    buffer.truncate(length);
    buffer
}

/// A datagram that alice sends by way of the router.
fn from_alice(to: &str) -> Frame<'static> {
    let from = if ip(to).is_ipv4() {
        "10.0.0.9"
    } else {
        "2001:db8::9"
    };
    datagram(from, to).macs(ALICE, P0)
}

fn datagram(from: &str, to: &str) -> Frame<'static> {
    Frame::udp((ip(from), 4000).into(), (ip(to), 5000).into())
}

fn arp_frame(packet: &ArpRepr) -> Vec<u8> {
    let mut buffer = vec![0; 64];
    let length = build::arp(&mut buffer, &[], packet).expect("it fits");
    buffer.truncate(length);
    buffer
}

/// The reply of the neighbour `ip` at `mac` to the router's question on p1.
fn arp_reply(mac: MacAddr, ip: [u8; 4]) -> Vec<u8> {
    arp_frame(&ArpRepr {
        operation: Operation::REPLY,
        sender_mac: mac,
        sender_ip: ip.into(),
        target_mac: P1,
        target_ip: [10, 0, 1, 1].into(),
    })
}

fn link(frame: &[u8]) -> (MacAddr, MacAddr, EtherType) {
    let frame = EthernetFrame::new_checked(frame).expect("a frame");
    (frame.dst(), frame.src(), frame.ethertype())
}

/// The IPv4 packet in a frame; its checksum is right.
fn ipv4(frame: &[u8]) -> Ipv4Packet<&[u8]> {
    assert_eq!(link(frame).2, EtherType::IPV4);
    let packet = Ipv4Packet::new_checked(&frame[14..]).expect("an IPv4 packet");
    assert!(packet.verify_checksum(), "header checksum");
    packet
}

fn ipv6(frame: &[u8]) -> Ipv6Packet<&[u8]> {
    assert_eq!(link(frame).2, EtherType::IPV6);
    Ipv6Packet::new_checked(&frame[14..]).expect("an IPv6 packet")
}

fn arp(frame: &[u8]) -> ArpRepr {
    assert_eq!(link(frame).2, EtherType::ARP);
    ArpRepr::parse(&frame[14..]).expect("an ARP packet")
}

/// An ICMP error as its receiver sees it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    from: IpAddr,
    to: IpAddr,
    kind: u8,
    code: u8,
    rest: [u8; 4],
    quoted: Vec<u8>,
}

/// Reads an ICMP message and checks its checksums.
fn icmp(frame: &[u8]) -> Seen {
    if link(frame).2 == EtherType::IPV4 {
        let length = usize::from(ipv4(frame).total_len());
        let packet = Ipv4Packet::new_unchecked(&frame[14..14 + length]);
        assert_eq!(packet.protocol(), IpProtocol::ICMPV4);
        let message = Icmpv4Packet::new_checked(packet.payload()).expect("ICMP");
        assert!(message.verify_checksum());
        return Seen {
            from: packet.src().into(),
            to: packet.dst().into(),
            kind: message.msg_type().0,
            code: message.code(),
            rest: message.rest(),
            quoted: message.payload().to_vec(),
        };
    }
    let packet = ipv6(frame);
    assert_eq!(packet.next_header(), IpProtocol::ICMPV6);
    let message = Icmpv6Packet::new_checked(packet.payload()).expect("ICMPv6");
    assert!(message.verify_checksum(packet.src(), packet.dst()));
    Seen {
        from: packet.src().into(),
        to: packet.dst().into(),
        kind: message.msg_type().0,
        code: message.code(),
        rest: message.rest(),
        quoted: message.payload().to_vec(),
    }
}
