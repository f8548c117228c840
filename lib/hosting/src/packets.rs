//! Frames that leave the rings for a file or another host, as the packets that they become on a wire. The format of these
//! frames has no metadata, and not every receiver takes super-frames.

use nfluid_ring::Offload;

/// Calls `see` for each packet of a frame to which `offload` is still to be done. A super-frame of which no packets can
/// be made has none: every network function drops such a frame.
pub fn for_each(frame: &[u8], offload: Offload, see: &mut dyn FnMut(&[u8])) {
    if offload.is_none() {
        return see(frame);
    }
    let Ok(mut packets) = offload.packets_of(frame) else {
        return;
    };
    let mut packet = vec![0; packets.packet_len()];
    while let Some(len) = packets.write_next(&mut packet) {
        see(&packet[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};

    /// A TCP segment over IPv4 with 250 bytes of payload, behind headers of 54 bytes.
    fn frame() -> Vec<u8> {
        let mut frame = vec![7; 304];
        frame[..54].fill(0);
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[16..18].copy_from_slice(&290u16.to_be_bytes());
        frame[23] = 6;
        frame[46] = 0x50;
        frame
    }

    fn lengths(offload: Offload) -> Vec<usize> {
        let mut lengths = Vec::new();
        for_each(&frame(), offload, &mut |packet| lengths.push(packet.len()));
        lengths
    }

    #[test]
    fn a_super_frame_leaves_as_its_packets() {
        let cut = Segmentation {
            kind: SegmentKind::TcpV4,
            header_len: 54,
            payload_len: 100,
            is_ecn: false,
        };
        assert_eq!(lengths(Offload::segmented(34, cut)), [154, 154, 104]);
        let of_udp = Segmentation {
            kind: SegmentKind::Udp,
            header_len: 42,
            ..cut
        };
        assert!(lengths(Offload::segmented(34, of_udp)).is_empty());
    }

    #[test]
    fn a_frame_leaves_with_its_checksum() {
        let (mut seen, partial): (Vec<Vec<u8>>, _) = (Vec::new(), frame());
        let checksum = Offload::partial_checksum(PartialChecksum {
            start: 34,
            offset: 16,
        });
        for offload in [Offload::NONE, checksum] {
            for_each(&partial, offload, &mut |packet| seen.push(packet.to_vec()));
        }
        assert_eq!(seen[0], partial);
        assert_ne!(seen[1][50..52], [0, 0]);
        seen[1][50..52].fill(0);
        assert_eq!(seen[1], partial);
    }
}
