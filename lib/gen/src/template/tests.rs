use std::collections::HashMap;

use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::Ipv6Packet;
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{ChecksumState, PacketMeta, checksum};
use proptest::prelude::*;

use super::*;
use crate::io::SLOT_MIN;

fn spec(sizes: &str, count: u32) -> TrafficSpec {
    TrafficSpec {
        sizes: sizes.parse().unwrap(),
        flows: FlowSpec {
            count,
            ..FlowSpec::default()
        },
        ..TrafficSpec::default()
    }
}

fn ipv6(mut spec: TrafficSpec) -> TrafficSpec {
    spec.flows.src = "2001:2::/64".parse().unwrap();
    spec.flows.dst = "2001:2:0:1::1".parse().unwrap();
    spec
}

/// Checks lengths and checksums as a host would and returns the payload.
fn receive(frame: &[u8]) -> (PacketMeta, &[u8]) {
    let meta = PacketMeta::parse(frame).unwrap();
    assert_eq!(meta.l3_end(), frame.len(), "IP length");
    let packet = &frame[usize::from(meta.l3_offset)..];
    let transport = &frame[usize::from(meta.l4_offset)..];
    let pseudo_header = if meta.is_ipv4() {
        let packet = Ipv4Packet::new_checked(packet).unwrap();
        assert!(packet.verify_checksum());
        packet.pseudo_header()
    } else {
        let packet = Ipv6Packet::new_checked(packet).unwrap();
        checksum::pseudo_header_v6(
            packet.src(),
            packet.dst(),
            meta.protocol.0,
            transport.len() as u32,
        )
    };
    if meta.protocol.0 == 17 {
        let packet = UdpPacket::new_checked(transport).unwrap();
        assert_eq!(usize::from(packet.length()), transport.len(), "UDP length");
        assert!(packet.verify_checksum(pseudo_header, ChecksumState::Complete));
        assert_ne!(packet.checksum(), 0);
    } else {
        assert!(
            TcpPacket::new_checked(transport)
                .unwrap()
                .verify_checksum(pseudo_header, ChecksumState::Complete)
        );
    }
    (meta, &frame[usize::from(meta.payload_offset)..])
}

proptest! {
    #[test]
    fn every_frame_is_valid_and_stamped(
        size in 122usize..=2032, minimal: bool, tcp: bool, v6: bool,
        vlans in prop::collection::vec(0u16..4096, 0..3), flows in 1u32..70, now in 0u64..1 << 50,
    ) {
        let mut spec = spec("2032", flows);
        if v6 {
            spec = ipv6(spec);
        }
        if tcp {
            spec.flows.transport = Transport::Tcp;
        }
        spec.flows.vlans = vlans.clone();
        let headers = Layout::new(&spec.flows).payload;
        let size = if minimal { headers + HEADER_LEN } else { size };
        spec.sizes = size.to_string().parse().unwrap();
        let mut templates = Templates::new(&spec, Kind::Data).unwrap();
        let mut slot = vec![0xaa; SLOT_MIN];
        for number in 0..2 * flows {
            let length = templates.write(&mut slot, now);
            prop_assert_eq!(length, size);
            let (meta, payload) = receive(&slot[..length]);
            prop_assert_eq!(usize::from(meta.vlan_count), vlans.len());
            let header = StreamHeader::parse(payload).unwrap();
            prop_assert_eq!(header, StreamHeader {
                kind: Kind::Data,
                stream: number % flows,
                tx_time_ns: now % payload::TIME_MODULUS_NS,
                sequence: number / flows,
            });
        }
    }
}

#[test]
fn imix_and_flows_are_not_in_step() {
    let mut templates = Templates::new(&spec("imix", 12), Kind::Data).unwrap();
    let mut slot = vec![0; SLOT_MIN];
    let mut seen: HashMap<(u32, usize), u32> = HashMap::new();
    for _ in 0..12 * 12 * 12 {
        let length = templates.write(&mut slot, 0);
        let (_, payload) = receive(&slot[..length]);
        *seen
            .entry((StreamHeader::parse(payload).unwrap().stream, length))
            .or_default() += 1;
    }
    assert_eq!(seen.len(), 36, "every flow has every size");
    let small: u32 = seen
        .iter()
        .filter(|(key, _)| key.1 == 60)
        .map(|(_, count)| count)
        .sum();
    let share = f64::from(small) / f64::from(12 * 12 * 12);
    assert!((share - 28.0 / 48.0).abs() < 0.02, "{share}");
}

#[test]
fn constant_frames_never_change() {
    let mut spec = spec("64", 1);
    spec.content = Content::Constant;
    let mut templates = Templates::new(&spec, Kind::Data).unwrap();
    assert!(templates.can_prefill());
    let (mut first, mut second) = (vec![0; SLOT_MIN], vec![0; SLOT_MIN]);
    templates.prefill(&mut first);
    templates.write(&mut second, 99);
    receive(&first[..64]);
    assert_eq!(first, second);
    assert_eq!(templates.next_len(), 64);
}

#[test]
fn frames_without_room_are_refused_with_the_size_that_would_do() {
    for (spec, needed) in [
        (spec("59", 1), "60"),
        (ipv6(spec("64", 1)), "80"),
        (
            TrafficSpec {
                flows: FlowSpec {
                    transport: Transport::Tcp,
                    ..FlowSpec::default()
                },
                ..spec("64", 1)
            },
            "72",
        ),
    ] {
        let error = Templates::new(&spec, Kind::Data).unwrap_err().to_string();
        assert!(error.contains(&format!("take {needed} bytes")), "{error}");
        let constant = TrafficSpec {
            content: Content::Constant,
            ..spec
        };
        assert!(Templates::new(&constant, Kind::Data).is_ok());
    }
}
