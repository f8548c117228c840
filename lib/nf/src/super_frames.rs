//! Frames with metadata for the tests of all network functions.
//!
//! The oracle: an NF treats a super-frame as it treats the packets that the super-frame becomes on a wire. What leaves
//! for a super-frame, cut into packets, is what leaves for these packets, and all counters are the same.

use crate::catalogue;
use crate::function::{Nanos, NetworkFunction, PortInfo};
use crate::testing::{Sent, SentOffload, on_wire, run, run_offload};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};
use nfluid_ring::{Level, Offload};
use nfluid_wire::build::{Frame, Transport};
use nfluid_wire::{EtherType, MacAddr, TcpFlags, VlanTag};
use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use serde_json::Value;
use std::net::SocketAddr;

/// A frame with metadata, but for its addresses.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) is_tcp: bool,
    pub(crate) tags: Vec<VlanTag>,
    pub(crate) options: Vec<u8>,
    pub(crate) flags: TcpFlags,
    pub(crate) seq: u32,
    pub(crate) ident: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) traffic_class: u8,
    pub(crate) payload: Vec<u8>,
    /// Payload of each packet of a super-frame; `None`: a single packet with a partial checksum.
    pub(crate) size: Option<usize>,
}

impl Shape {
    /// The frame between these hosts.
    pub(crate) fn between(&self, src: SocketAddr, dst: SocketAddr) -> Frame<'_> {
        let frame = if self.is_tcp {
            Frame::tcp(src, dst, self.flags)
                .sequence(self.seq, 77)
                .tcp_options(&self.options)
        } else {
            Frame::udp(src, dst)
        };
        let frame = frame
            .vlans(&self.tags)
            .ident(self.ident)
            .traffic_class(self.traffic_class);
        if self.dont_fragment {
            frame.dont_fragment()
        } else {
            frame
        }
    }

    /// The bytes and the metadata of the frame, which is one of [`Shape::between`] that the NF under test takes.
    pub(crate) fn written(&self, frame: &Frame<'_>) -> (Vec<u8>, Offload) {
        match self.size {
            Some(size) => super_frame(frame, &self.payload, size),
            None => partial(frame, &self.payload),
        }
    }
}

/// Any shape, of which the packets fit an MTU of 1500.
pub(crate) fn shapes() -> impl Strategy<Value = Shape> {
    let tpid = prop_oneof![Just(EtherType::VLAN), Just(EtherType::QINQ)];
    let tag = (tpid, any::<u16>()).prop_map(|(tpid, tci)| VlanTag::from_tci(tpid, tci));
    let options = (0..=10_usize).prop_map(|words| vec![1; words * 4]);
    let sizes = (1..=20_usize, 48..1_300_usize, 0..1_300_usize);
    let fields = any::<(bool, u8, u32, u16, bool, u8)>();
    (vec_of(tag, 0..=2), options, sizes, any::<bool>(), fields).prop_map(
        |(tags, options, (whole, size, rest), is_super, fields)| {
            let (is_tcp, flags, seq, ident, dont_fragment, traffic_class) = fields;
            let len = match is_super {
                true => whole * size + rest % size,
                false => rest,
            };
            Shape {
                is_tcp,
                tags,
                options,
                flags: TcpFlags(flags),
                seq,
                ident,
                dont_fragment,
                traffic_class,
                payload: (0..len as u32)
                    .map(|at| at.wrapping_mul(seq | 1) as u8)
                    .collect(),
                size: is_super.then_some(size),
            }
        },
    )
}

fn bytes_of(frame: &Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; frame.header_len() + payload.len()];
    let len = frame.partial_checksum().write(&mut bytes, payload);
    assert_eq!(len, Ok(bytes.len()));
    bytes
}

fn start_of(frame: &Frame<'_>) -> usize {
    frame.header_len() - frame.transport.header_len()
}

/// One packet with a partial checksum.
pub(crate) fn partial(frame: &Frame<'_>, payload: &[u8]) -> (Vec<u8>, Offload) {
    let offset = match frame.transport {
        Transport::Udp { .. } => 6,
        _ => 16,
    };
    let start = start_of(frame);
    let offload = Offload::partial_checksum(PartialChecksum { start, offset });
    (bytes_of(frame, payload), offload)
}

/// A super-frame of packets with `size` bytes of payload each.
pub(crate) fn super_frame(frame: &Frame<'_>, payload: &[u8], size: usize) -> (Vec<u8>, Offload) {
    let (kind, is_ecn) = match (frame.transport, frame.src.is_ipv4()) {
        (Transport::Tcp { flags, .. }, true) => (SegmentKind::TcpV4, flags.contains(TcpFlags::CWR)),
        (Transport::Tcp { flags, .. }, false) => {
            (SegmentKind::TcpV6, flags.contains(TcpFlags::CWR))
        }
        _ => (SegmentKind::Udp, false),
    };
    let cut = Segmentation {
        kind,
        header_len: frame.header_len(),
        payload_len: size,
        is_ecn,
    };
    let offload = Offload::segmented(start_of(frame), cut);
    (bytes_of(frame, payload), offload)
}

/// All metrics, by name and labels.
pub(crate) fn metrics(nf: &dyn NetworkFunction) -> Vec<(String, Vec<String>, f64)> {
    let mut metrics = Vec::new();
    nf.metrics(&mut |metric| {
        let labels = metric.labels.into_iter().map(|(_, value)| value);
        metrics.push((metric.name.into_owned(), labels.collect(), metric.value));
    });
    metrics
}

/// Panics unless both NFs, which are alike, treat the frames as the packets that they become.
pub(crate) fn assert_same_as_packets(
    whole: &mut dyn NetworkFunction,
    cut: &mut dyn NetworkFunction,
    now: Nanos,
    frames: &[SentOffload],
) -> Vec<Sent> {
    let by_frames = on_wire(&run_offload(whole, now, frames));
    let by_packets = run(cut, now, &on_wire(frames));
    assert_eq!(by_frames, by_packets);
    assert_eq!(metrics(whole), metrics(cut));
    by_frames
}

/// Metadata that the switch lets through beside a frame of `len` bytes, whatever the frame is.
pub(crate) fn any_offload(len: usize) -> impl Strategy<Value = Offload> {
    let kind = prop::sample::select(vec![
        SegmentKind::TcpV4,
        SegmentKind::TcpV6,
        SegmentKind::Udp,
    ]);
    let fields = (14..256_usize, 0..60_usize, 48..2_000_usize, any::<u8>());
    (kind, fields).prop_map(move |(kind, (start, more, payload_len, choice))| {
        let (offset, headers) = match kind {
            SegmentKind::Udp => (6, 8),
            _ => (16, 20 + more / 4 * 4),
        };
        let offload = match choice % 4 {
            0 => Offload::NONE,
            1 => Offload::partial_checksum(PartialChecksum { start, offset }),
            _ => {
                let cut = Segmentation {
                    kind,
                    header_len: start + headers,
                    payload_len,
                    is_ecn: kind != SegmentKind::Udp && choice > 127,
                };
                Offload::segmented(start, cut)
            }
        };
        Offload::check(offload.words(len), len).unwrap_or_default()
    })
}

/// Any frame with any metadata that the switch lets through: well-formed ones, damaged ones, and noise.
pub(crate) fn any_frame(
    ends: impl Strategy<Value = (SocketAddr, SocketAddr)>,
    macs: (MacAddr, MacAddr),
) -> impl Strategy<Value = (Vec<u8>, Offload)> {
    let damage = vec_of((0..120_usize, any::<u8>()), 0..3);
    let damaged = (shapes(), ends, damage, any::<Option<i8>>());
    let damaged = damaged.prop_map(move |(shape, (src, dst), damage, resized)| {
        let frame = shape.between(src, dst).macs(macs.0, macs.1);
        let (mut bytes, offload) = shape.written(&frame);
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Some(by) = resized {
            let len = bytes.len().saturating_add_signed(by.into()).max(14);
            bytes.resize(len, 0);
        }
        (bytes, Some(offload))
    });
    let noise = vec_of(any::<u8>(), 14..600).prop_map(|bytes| (bytes, None));
    prop_oneof![4 => damaged, 1 => noise].prop_flat_map(|(bytes, own)| {
        let len = bytes.len();
        let own = own.unwrap_or_default();
        let own = Offload::check(own.words(len), len).unwrap_or_default();
        let offload = prop_oneof![3 => Just(own).boxed(), 1 => any_offload(len).boxed()];
        (Just(bytes), offload)
    })
}

/// Two hosts of either IP version.
pub(crate) fn ends() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let ports = any::<(u16, u16)>();
    (any::<bool>(), any::<(u8, u8)>(), ports).prop_map(|(is_v4, (a, b), ports)| {
        let end = |host: u8, port| -> SocketAddr {
            match is_v4 {
                true => ([10, 0, 0, host], port).into(),
                false => ([0xfc00, 0, 0, 0, 0, 0, 0, host.into()], port).into(),
            }
        };
        (end(a, ports.0), end(b, ports.1))
    })
}

/// An NF of the catalogue, which takes super-frames.
pub(crate) fn build(name: &str, config: &Value, ports: &[PortInfo]) -> Box<dyn NetworkFunction> {
    let entry = catalogue::find(name).expect("an NF");
    assert_eq!(entry.frames, Level::Super, "{name} takes super-frames");
    catalogue::build(name, config, ports).expect("a valid configuration")
}

mod tests {
    use super::*;
    use crate::testing::{Collected, ports};
    use serde_json::json;

    /// An NF that has no test of its own with any metadata, with a configuration that looks at packets.
    fn others() -> Vec<(&'static str, Value)> {
        let per = json!({"address": "destination", "prefixes_max": 2});
        let limits =
            json!({"cir": 8_000, "cbs": 9_000, "ebs": 9_000, "per": per, "yellow": {"dscp": 9}});
        let selection = json!({"ports": [80], "prefixes": ["10.0.0.0/25", "::/0"]});
        vec![
            ("bridge", Value::Null),
            ("counter", Value::Null),
            ("limiter", json!({"forward": limits, "reverse": limits})),
            (
                "mirror",
                json!({"match": selection, "snaplen": 300, "rate": 100}),
            ),
            ("vlan", json!({"push": {"id": 7}})),
            (
                "vlan",
                json!({"translate": [{"access": 1, "trunk": 2}], "unmatched": "pass"}),
            ),
        ]
    }

    proptest! {
        /// Catches: panics, and metadata that the switch would refuse: the bench looks.
        // promise: 10.45
        #[test]
        fn any_metadata_are_survived(
            frames in vec_of((0..2_u8, any_frame(ends(), (MacAddr([2; 6]), MacAddr([4; 6])))), 1..40),
            gap in 0..3_000_000_000_u64,
        ) {
            for (name, config) in others() {
                let mut nf = build(name, &config, &ports(2));
                let mut now = Nanos::from_secs(1);
                let mut passed = 0;
                for (port, (bytes, offload)) in &frames {
                    let frame = (*port, bytes.clone(), *offload);
                    passed += run_offload(&mut *nf, now, &[frame]).len();
                    now.0 += gap;
                    nf.tick(now, &mut Collected::default());
                }
                prop_assert!(passed <= frames.len(), "{}", name);
            }
        }
    }

    /// Catches: an NF that is added to the catalogue without a word about super-frames.
    // promise: 10.44
    #[test]
    fn every_network_function_says_what_it_takes() {
        for entry in catalogue::ENTRIES {
            let is_plain = entry.frames == Level::Plain;
            assert_eq!(is_plain, entry.name == "signature", "{}", entry.name);
        }
    }
}
