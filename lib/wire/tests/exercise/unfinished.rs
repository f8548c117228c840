//! Frames with metadata, both from anybody: nothing panics, and a frame that is cut becomes well-formed packets.

use nfluid_wire::PacketMeta;
use nfluid_wire::segment::{self, PartialChecksum, SegmentKind, Segmentation, Segments};

/// Most packets that are looked at: a frame of some KB may be cut into as many.
const PACKETS_MAX: usize = 64;

/// Reads metadata from the first bytes, and cuts the rest. Headers of other lengths are refused, so the parser's are
/// tried too.
pub fn frame(bytes: &[u8]) {
    let Some((&words, frame)) = bytes.split_first_chunk::<7>() else {
        return;
    };
    let [start, offset, kind, header_len, high, low, own] = words.map(usize::from);
    finish(frame, PartialChecksum { start, offset });
    let mut cut = Segmentation {
        kind: [SegmentKind::TcpV4, SegmentKind::TcpV6, SegmentKind::Udp][kind % 3],
        header_len,
        // Small ones, so that a short frame becomes several packets.
        payload_len: if own % 8 == 1 {
            high << 8 | low
        } else {
            low % 64
        },
        is_ecn: kind > 127,
    };
    let mut start = start;
    if let Ok(meta) = PacketMeta::parse(frame)
        && own % 4 != 0
    {
        (start, cut.header_len) = (meta.l4_offset.into(), meta.payload_offset.into());
        cut.kind = match (meta.protocol.0, meta.is_ipv4()) {
            (6, true) => SegmentKind::TcpV4,
            (6, false) => SegmentKind::TcpV6,
            _ => SegmentKind::Udp,
        };
    }
    if let Ok(mut segments) = Segments::cut(frame, start, cut) {
        packets(frame, &mut segments);
    }
}

fn finish(frame: &[u8], checksum: PartialChecksum) {
    let mut copy = frame.to_vec();
    let is_own = segment::check(frame, checksum, None).is_ok();
    let is_finished = segment::finish(&mut copy, checksum);
    assert!(is_finished || !is_own, "a checksum of the packet's own");
    match Segments::with_checksum(frame, checksum) {
        Ok(mut one) => {
            let mut buffer = vec![0; frame.len()];
            assert_eq!(one.write_next(&mut buffer), Some(frame.len()));
            assert_eq!(buffer, copy, "in place and in a copy");
        }
        Err(_) => assert!(!is_finished && copy == frame, "refused alike"),
    }
}

fn packets(frame: &[u8], segments: &mut Segments<'_>) {
    let mut buffer = vec![0; segments.packet_len()];
    let (count, headers) = (segments.remaining(), segments.header_len());
    let mut payload = 0;
    for _ in 0..count.min(PACKETS_MAX) {
        let len = segments.write_next(&mut buffer).expect("one is left");
        let meta = PacketMeta::parse(&buffer[..len]).expect("a packet");
        assert_eq!(meta.l3_end(), len, "the packet's own length");
        assert_eq!(usize::from(meta.payload_offset), headers);
        payload += len - headers;
    }
    let rest = frame.len() - headers - payload;
    assert!(count > PACKETS_MAX || rest == 0, "all of the payload");
}
