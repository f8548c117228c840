//! The promise: super-frames are cut into the packets that the Linux kernel makes of them. The kernel cuts the frames of
//! a packet socket on a veth pair without segmentation offload; the other end has the packets, byte for byte.

mod uplink_fixture;

use nfluid_ring::Offload;
use nfluid_ring::offload::{SegmentKind, Segmentation};
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::random::Random;
use nfluid_tests::harness::patience::PATIENCE;
use nfluid_tests::harness::skip::is_root;
use nfluid_tests::harness::within;
use nfluid_wire::build::{Frame, Transport};
use nfluid_wire::{EtherType, TcpFlags, VlanTag};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use uplink_fixture::Raw;

const FRAMES: usize = 400;
/// No-operation options of TCP.
const OPTIONS: [u8; 40] = [1; 40];

/// A super-frame of at least two packets: the kernel does not cut a frame that is one.
fn super_frame(random: &mut Random) -> (Vec<u8>, Offload) {
    let (src, dst) = ends(random);
    let is_tcp = random.below(3) > 0;
    let mut tags = vec![tag(random, EtherType::QINQ), tag(random, EtherType::VLAN)];
    tags.drain(..random.below(3) as usize);
    let frame = if is_tcp {
        Frame::tcp(src, dst, TcpFlags(random.below(256) as u8))
            .sequence(random.below(u32::MAX), random.below(u32::MAX))
            .tcp_options(&OPTIONS[..4 * random.below(11) as usize])
    } else {
        Frame::udp(src, dst)
    };
    let mut frame = frame
        .vlans(&tags)
        .ident(random.below(1 << 16) as u16)
        .traffic_class(random.below(256) as u8)
        .partial_checksum();
    if random.one_in(2) {
        frame = frame.dont_fragment();
    }
    let size = 48 + random.below(1300);
    let rest = if random.one_in(4) {
        size
    } else {
        1 + random.below(size)
    };
    let payload_len = size * (1 + random.below(12)) + rest;
    let payload: Vec<u8> = (0..payload_len).map(|_| random.below(256) as u8).collect();
    let mut bytes = vec![0; frame.header_len() + payload.len()];
    frame.write(&mut bytes, &payload).expect("it fits");
    let (kind, is_ecn) = match frame.transport {
        Transport::Tcp { flags, .. } if src.is_ipv4() => {
            (SegmentKind::TcpV4, flags.contains(TcpFlags::CWR))
        }
        Transport::Tcp { flags, .. } => (SegmentKind::TcpV6, flags.contains(TcpFlags::CWR)),
        _ => (SegmentKind::Udp, false),
    };
    let cut = Segmentation {
        kind,
        header_len: frame.header_len(),
        payload_len: size as usize,
        is_ecn,
    };
    let start = frame.header_len() - frame.transport.header_len();
    (bytes, Offload::segmented(start, cut))
}

fn tag(random: &mut Random, kind: EtherType) -> VlanTag {
    VlanTag::from_tci(kind, random.below(1 << 16) as u16)
}

fn ends(random: &mut Random) -> (SocketAddr, SocketAddr) {
    let is_ipv4 = random.one_in(2);
    let mut end = || -> SocketAddr {
        let (host, port) = (random.below(1 << 24), random.below(1 << 16) as u16);
        if is_ipv4 {
            (Ipv4Addr::from_bits(10 << 24 | host), port).into()
        } else {
            let network = 0xfd00_u128 << 112;
            (Ipv6Addr::from_bits(network | u128::from(host)), port).into()
        }
    };
    (end(), end())
}

fn ours((bytes, offload): &(Vec<u8>, Offload)) -> Vec<Vec<u8>> {
    let mut segments = offload.packets_of(bytes).expect("a proper super-frame");
    let mut buffer = vec![0; segments.packet_len()];
    let mut packets = Vec::new();
    while let Some(len) = segments.write_next(&mut buffer) {
        packets.push(buffer[..len].to_vec());
    }
    packets
}

// promise: 9.5
#[test]
fn super_frames_are_cut_as_the_kernel_cuts_them() {
    if !is_root("super_frames_are_cut_as_the_kernel_cuts_them") {
        return;
    }
    let made = |end| Namespace::named(format!("nfl-{}-seg-{end}", std::process::id()));
    let (near, far) = (made("a").expect("made"), made("b").expect("made"));
    Namespace::join((&near, "near"), (&far, "far")).expect("a veth pair");
    let off = "ethtool -K near tso off gso off tx off sg off tx-udp-segmentation off";
    near.run(off).expect("veth cuts nothing");
    let mut sender = within(&near.path(), || Raw::open("near")).expect("a socket");
    sender.takes_headers();
    let receiver = within(&far.path(), || Raw::open("far")).expect("a socket");
    let mut random = Random(0x6e66_6c75_6964);
    for number in 0..FRAMES {
        let frame = super_frame(&mut random);
        let (bytes, offload) = &frame;
        sender.send(&[&offload.to_kernel()[..], bytes].concat());
        for (at, packet) in ours(&frame).iter().enumerate() {
            let kernels = receiver.receive(PATIENCE).expect("the kernel sends it");
            let place = format!("packet {at} of frame {number}, {offload:?}");
            assert!(kernels == *packet, "{place}\n{kernels:x?}\n{packet:x?}");
        }
    }
}
