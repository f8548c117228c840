use super::{Bench, check_sums};
use nfluid_wire::{PacketMeta, TcpFlags, VlanTag, build};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::vec::Vec;

/// A packet of one of few hosts, ports and peers, so that they meet again.
#[derive(Clone, Debug)]
struct Sample {
    protocol: u8,
    host: u8,
    port: u16,
    peer: u8,
    peer_port: u16,
    vlan: Option<u16>,
    payload: Vec<u8>,
}

fn sample() -> impl Strategy<Value = Sample> {
    (
        0..3u8,
        1..6u8,
        prop_oneof![1..4u16, 5000..5004u16],
        1..5u8,
        1..4u16,
        prop_oneof![Just(None), Just(Some(7))],
        proptest::collection::vec(any::<u8>(), 0..30),
    )
        .prop_map(
            |(protocol, host, port, peer, peer_port, vlan, payload)| Sample {
                protocol,
                host,
                port,
                peer,
                peer_port,
                vlan,
                payload,
            },
        )
}

impl Sample {
    fn frame(&self, src: SocketAddr, dst: SocketAddr, answer: bool) -> Vec<u8> {
        let frame = match (self.protocol, answer) {
            (0, _) => build::Frame::udp(src, dst),
            (1, false) => build::Frame::tcp(src, dst, TcpFlags::SYN),
            (1, true) => build::Frame::tcp(src, dst, TcpFlags::SYN | TcpFlags::ACK).sequence(0, 1),
            (_, false) => build::Frame::echo_request(src.ip(), dst.ip(), src.port(), 3),
            (_, true) => build::Frame::echo_reply(src.ip(), dst.ip(), dst.port(), 3),
        };
        let tags: Vec<VlanTag> = self.vlan.map(VlanTag::new).into_iter().collect();
        let mut buffer = [0; 128];
        let len = frame
            .vlans(&tags)
            .write(&mut buffer, &self.payload)
            .unwrap();
        buffer[..len].to_vec()
    }

    fn inside(&self) -> SocketAddr {
        (Ipv4Addr::new(10, 0, 0, self.host), self.port).into()
    }

    fn peer(&self) -> SocketAddr {
        (Ipv4Addr::new(192, 0, 2, self.peer), self.peer_port).into()
    }
}

/// Source and destination of a frame; an ICMP query has its identifier as port.
fn ends(frame: &[u8]) -> (SocketAddr, SocketAddr) {
    let meta = PacketMeta::parse(frame).unwrap();
    check_sums(frame, &meta);
    let (src, dst) = meta.addresses().unwrap();
    (
        (src, meta.src_port | meta.icmp_ident).into(),
        (dst, meta.dst_port | meta.icmp_ident).into(),
    )
}

fn configs() -> impl Strategy<Value = Value> {
    let filtering = prop_oneof![
        Just("endpoint-independent"),
        Just("address-dependent"),
        Just("address-and-port"),
    ];
    (filtering, any::<bool>(), any::<u64>(), 1..4u8).prop_map(
        |(filtering, preserve, seed, last)| {
            json!({
                "filtering": filtering,
                "port_preservation": preserve,
                "pool": [std::format!("203.0.113.1-203.0.113.{last}")],
                "seed": seed,
            })
        },
    )
}

proptest! {
    /// Every packet goes out with right checksums; one inside end point has one external one and
    /// the other way round; the answer comes back to where the question came from.
    // promise: 10.9
    #[test]
    fn mappings_are_a_bijection_and_answers_come_back(
        config in configs(),
        samples in proptest::collection::vec(sample(), 1..80),
    ) {
        let mut nat = Bench::new(config);
        let mut external = HashMap::new();
        let mut internal = HashMap::new();
        for sample in &samples {
            let (inside, peer) = (sample.inside(), sample.peer());
            let sent = nat.send(0, &sample.frame(inside, peer, false));
            prop_assert_eq!(sent.len(), 1);
            let (outside, destination) = ends(&sent[0].1);
            if sample.protocol != 2 {
                prop_assert_eq!(destination, peer);
            }
            let key = (sample.protocol, sample.vlan, inside);
            prop_assert_eq!(*external.entry(key).or_insert(outside), outside);
            let key_back = (sample.protocol, outside);
            prop_assert_eq!(*internal.entry(key_back).or_insert(key), key);

            let back = nat.send(1, &sample.frame(peer, outside, true));
            prop_assert_eq!(back.len(), 1);
            let (_, returned) = ends(&back[0].1);
            prop_assert_eq!(returned, inside);
        }
    }

    /// Translating out and back is the identity on the bytes, checksums included.
    // promise: 10.9
    #[test]
    fn the_inverse_translation_restores_every_byte(config in configs(), sample in sample()) {
        let mut nat = Bench::new(config);
        let (inside, peer) = (sample.inside(), sample.peer());
        let sent = nat.send(0, &sample.frame(inside, peer, false)).remove(0).1;
        let (outside, _) = ends(&sent);
        let to_outside = sample.frame(peer, outside, true);
        let to_inside = nat.send(1, &to_outside).remove(0).1;
        prop_assert_eq!(to_inside, sample.frame(peer, inside, true));
    }

    /// No bytes make the NAT panic, and only output that the contract allows comes out.
    #[test]
    fn random_frames_never_panic(
        frames in proptest::collection::vec(
            (0..2u8, proptest::collection::vec(any::<u8>(), 14..120)), 1..60),
    ) {
        let mut nat = Bench::new(json!({}));
        let count = frames.len() as f64;
        let sent = nat.send_all(&frames);
        prop_assert!(sent.len() as f64 + nat.metric("packets_dropped_total", None) >= count);
    }

    /// Valid packets with some bytes changed or cut off: the deep end of the parsers.
    #[test]
    fn damaged_frames_never_panic(
        samples in proptest::collection::vec(
            (sample(), 0..2u8, any::<prop::sample::Index>(), any::<u8>(), any::<u8>()), 1..60),
    ) {
        let mut nat = Bench::new(json!({"untranslated": "pass", "tcp_pickup": true}));
        for (sample, port, place, value, cut) in &samples {
            let outside = SocketAddr::from(([203, 0, 113, 1], sample.port));
            let mut frame = match port {
                0 => sample.frame(sample.inside(), sample.peer(), false),
                _ => sample.frame(sample.peer(), outside, false),
            };
            let at = place.index(frame.len());
            frame[at] = *value;
            if cut % 4 == 0 {
                frame.truncate((at + 14).min(frame.len()));
            }
            nat.send(*port, &frame);
        }
        nat.wait(10_000);
        nat.wait(400);
        prop_assert_eq!(nat.metric("sessions", None), 0.0);
        prop_assert_eq!(nat.metric("mappings", None), 0.0);
        prop_assert_eq!(nat.metric("hosts", None), 0.0);
        prop_assert_eq!(nat.metric("ports_taken", None), 0.0);
    }
}
