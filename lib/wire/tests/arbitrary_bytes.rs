//! No bytes whatever make a parser panic, and the fast parser agrees with the views.

mod exercise;

use nfluid_wire::build::Frame;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{IpProtocol, PacketMeta, TcpFlags, VlanTag};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A well-formed frame of one of the kinds that the parser knows, or of a random protocol.
fn valid_frame() -> impl Strategy<Value = Vec<u8>> {
    let addresses = prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ];
    let parts = (
        addresses,
        any::<(u16, u16)>(),
        0..5_u8,
        0..3_usize,
        vec(any::<u8>(), 0..64),
    );
    (parts, any::<Option<u16>>()).prop_map(|(parts, offset)| {
        let ((src, dst), ports, kind, tags, payload) = parts;
        let frame = match kind {
            0 => Frame::udp((src, ports.0).into(), (dst, ports.1).into()),
            1 => Frame::tcp(
                (src, ports.0).into(),
                (dst, ports.1).into(),
                TcpFlags(ports.0 as u8),
            )
            .tcp_options(&[2, 4, 5, 0xb4, 1, 3, 3, 7]),
            2 => Frame::echo_request(src, dst, ports.0, ports.1),
            3 => Frame::icmp(src, dst, 3, 4, [0, 0, 5, 0xdc]),
            _ => Frame::ip(src, dst, IpProtocol(ports.0 as u8)),
        };
        let tags = &[VlanTag::new(5), VlanTag::new(6)][..tags];
        let frame = match offset.filter(|offset| offset % 4 == 0) {
            Some(offset) => frame.fragment(FragmentInfo {
                offset,
                more: true,
                ident: 9,
            }),
            None => frame,
        };
        let mut buffer = vec![0; 256];
        let len = frame
            .vlans(tags)
            .write(&mut buffer, &payload)
            .expect("a frame that fits");
        buffer.truncate(len);
        buffer
    })
}

/// A well-formed frame with a few bytes changed and the end cut off or padded.
fn damaged_frame() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<Index>(), any::<u8>()), 0..4);
    (valid_frame(), changes, 0..300_usize).prop_map(|(mut frame, changes, length)| {
        for (index, value) in changes {
            let at = index.index(frame.len());
            frame[at] = value;
        }
        if length < 100 {
            frame.resize(length, 0);
        }
        frame
    })
}

/// IPv6 with a chain of mostly well-formed extension headers.
fn extension_chain() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop::sample::select(&[0_u8, 43, 44, 51, 60, 135, 17, 59][..]);
    vec((kinds, 0..2_u8), 0..12).prop_map(|headers| {
        let mut payload = Vec::new();
        for (kind, length) in &headers {
            payload.extend([*kind, *length, 0, 0, 0, 0, 0, 0]);
            payload.resize(payload.len() + usize::from(*length) * 8, 0);
        }
        let src = "2001:db8::1".parse().expect("an address");
        let mut buffer = vec![0; 512];
        let len = Frame::ip(src, src, IpProtocol(0)).write(&mut buffer, &payload);
        buffer.truncate(len.expect("a frame that fits"));
        buffer
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // promise: 9.1
    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..200)) {
        exercise::everything(&bytes);
    }

    // promise: 9.1
    #[test]
    fn damaged_frames(frame in damaged_frame()) {
        exercise::everything(&frame);
        for start in [14, 18, 22, 34, 54] {
            exercise::everything(frame.get(start..).unwrap_or_default());
        }
    }

    // promise: 9.1
    #[test]
    fn damaged_frames_with_metadata(frame in damaged_frame(), words in any::<[u8; 7]>()) {
        exercise::everything(&[&words[..], &frame].concat());
    }

    // promise: 9.1
    #[test]
    fn extension_chains(frame in extension_chain()) {
        exercise::everything(&frame);
    }

    #[test]
    fn every_prefix_of_a_valid_frame(frame in valid_frame()) {
        for end in 0..=frame.len() {
            exercise::frame(&frame[..end]);
        }
    }

    #[test]
    fn every_length_that_an_ip_header_can_claim(frame in valid_frame()) {
        let parsed = PacketMeta::parse_l3(&frame);
        prop_assume!(parsed.is_ok(), "a random protocol number may be an extension header's");
        let meta = parsed.expect("just assumed");
        let field = usize::from(meta.l3_offset) + if meta.is_ipv4() { 2 } else { 4 };
        let mut frame = frame;
        for length in 0..=frame.len() as u16 {
            frame[field..field + 2].copy_from_slice(&length.to_be_bytes());
            exercise::frame(&frame);
        }
    }
}
