//! From a frame with metadata to packets: what an NF does with [`Frame::offload`].
//!
//! | the NF | calls |
//! |---|---|
//! | decides by headers, or changes headers | [`Frame::settle`] first, for each frame |
//! | changes a TCP or UDP checksum | its view's function, with [`Frame::checksum_state`] |
//! | needs all bytes of a single packet as they will be on a wire | [`Frame::finish`] |
//! | needs the packets | [`Frame::segments`] |

use crate::batch::Frame;
use crate::offload::{Level, Offload};
use nfluid_wire::segment::{self, Segments};
use nfluid_wire::{ChecksumState, ParseError};

impl Offload {
    /// The packets that `frame`, to which this is still to be done, becomes on a wire.
    ///
    /// # Errors
    /// A super-frame that no packets can be made of: see [`segment::check`].
    pub fn packets_of<'a>(&self, frame: &'a [u8]) -> Result<Segments<'a>, ParseError> {
        match (self.checksum(), self.segmentation()) {
            (None, _) => Ok(Segments::plain(frame)),
            (Some(checksum), None) => Segments::with_checksum(frame, checksum),
            (Some(checksum), Some(cut)) => Segments::cut(frame, checksum.start, cut),
        }
    }

    /// The state of the packet's own TCP or UDP checksum, in a frame that [`Frame::settle`] has taken.
    #[inline]
    #[must_use]
    pub const fn checksum_state(&self) -> ChecksumState {
        if self.is_none() {
            ChecksumState::Complete
        } else {
            ChecksumState::Partial
        }
    }
}

impl Frame<'_> {
    /// Makes sure that the metadata is about the TCP or UDP header of the frame's own packet, so that nothing that an
    /// NF looks at changes after the NF has looked: the metadata is a sender's, and the sender can have placed the
    /// checksum over an address. A checksum at any other place (of an inner packet of a tunnel, or of an attack) is
    /// computed here, and nothing is left to be done to the frame. Free of cost for a frame without metadata.
    ///
    /// # Errors
    /// A super-frame with metadata about anything but its own headers: drop the frame. Linux does so too.
    #[inline]
    pub fn settle(&mut self) -> Result<(), ParseError> {
        if self.offload().is_none() {
            return Ok(());
        }
        self.settle_metadata()
    }

    #[inline(never)]
    fn settle_metadata(&mut self) -> Result<(), ParseError> {
        let offload = self.offload();
        let Some(checksum) = offload.checksum() else {
            return Ok(());
        };
        match segment::check(self.bytes(), checksum, offload.segmentation()) {
            Err(_) if offload.level() == Level::Checksums && self.finish() => Ok(()),
            checked => checked.map(drop),
        }
    }

    /// The state of the packet's own TCP or UDP checksum, of a frame that [`Frame::settle`] has taken.
    #[inline]
    pub fn checksum_state(&self) -> ChecksumState {
        self.offload().checksum_state()
    }

    /// Computes a partial checksum in place: nothing is left to be done to the frame. Returns false, and changes
    /// nothing, for a super-frame.
    pub fn finish(&mut self) -> bool {
        let offload = self.offload();
        let is_finished = match (offload.checksum(), offload.segmentation()) {
            (None, _) => true,
            (Some(checksum), None) => segment::finish(self.bytes_mut(), checksum),
            (Some(_), Some(_)) => false,
        };
        if is_finished {
            self.set_offload(Offload::NONE);
        }
        is_finished
    }

    /// The packets that the frame becomes on a wire, with all lengths and checksums. A frame that is no super-frame is
    /// one packet. The writer of the packets is the caller: [`Segments::write_next`].
    ///
    /// # Errors
    /// A super-frame that no packets can be made of: see [`segment::check`].
    #[inline]
    pub fn segments(&self) -> Result<Segments<'_>, ParseError> {
        self.offload().packets_of(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::{PartialChecksum, SegmentKind, Segmentation};
    use nfluid_wire::PacketMeta;
    use nfluid_wire::TcpFlags;
    use nfluid_wire::build::Frame as Description;

    const PAYLOAD: [u8; 300] = [7; 300];

    fn description() -> Description<'static> {
        let (src, dst) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
        Description::tcp(src, dst, TcpFlags::ACK)
    }

    fn written(description: &Description<'_>) -> Vec<u8> {
        let mut bytes = vec![0; 354];
        description.write(&mut bytes, &PAYLOAD).expect("it fits");
        bytes
    }

    fn frame(bytes: &mut [u8], offload: Offload) -> Frame<'_> {
        let mut frame = Frame::new(bytes, 354, 0);
        frame.set_offload(offload);
        frame
    }

    fn partial(start: usize) -> Offload {
        Offload::partial_checksum(PartialChecksum { start, offset: 16 })
    }

    fn super_frame(header_len: usize) -> Offload {
        let cut = Segmentation {
            kind: SegmentKind::TcpV4,
            header_len,
            payload_len: 100,
            is_ecn: false,
        };
        Offload::segmented(34, cut)
    }

    #[test]
    fn a_settled_frame_keeps_what_is_its_own() {
        let partial_bytes = written(&description().partial_checksum());
        for offload in [Offload::NONE, partial(34), super_frame(54)] {
            let mut bytes = partial_bytes.clone();
            let mut frame = frame(&mut bytes, offload);
            assert_eq!(frame.settle(), Ok(()));
            assert_eq!(frame.offload(), offload);
            assert_eq!(frame.bytes(), partial_bytes);
            let is_partial = frame.checksum_state() == ChecksumState::Partial;
            assert_eq!(is_partial, !offload.is_none());
        }
    }

    /// Catches: an attack: the checksum is written over the destination address after a firewall has looked at it.
    #[test]
    fn a_checksum_elsewhere_is_computed_before_anybody_looks() {
        let mut bytes = written(&description());
        let mut frame = frame(&mut bytes, partial(14));
        assert_eq!(frame.settle(), Ok(()));
        assert!(frame.offload().is_none());
        let meta = PacketMeta::parse(frame.bytes()).expect("a packet");
        let description = description();
        assert_ne!(meta.addresses(), Some((description.src, description.dst)));
    }

    #[test]
    fn a_super_frame_of_other_headers_is_refused() {
        let mut bytes = written(&description().partial_checksum());
        let mut frame = frame(&mut bytes, super_frame(58));
        assert_eq!(frame.settle(), Err(ParseError::OffloadMismatch));
        assert!(frame.segments().is_err());
        assert!(!frame.finish(), "a super-frame has no checksum to compute");
        assert_eq!(frame.offload(), super_frame(58));
    }

    #[test]
    fn a_finished_frame_is_the_one_packet_of_its_segments() {
        let mut bytes = written(&description().partial_checksum());
        let mut frame = frame(&mut bytes, partial(34));
        let mut packet = vec![0; 354];
        let len = frame.segments().map(|mut one| one.write_next(&mut packet));
        assert_eq!(len, Ok(Some(354)));
        assert!(frame.finish() && frame.offload().is_none());
        assert_eq!(frame.bytes(), packet);
        assert_eq!(packet, written(&description()));
        assert!(frame.finish(), "nothing is left to be done");
        let plain = frame.segments().map(|segments| segments.remaining());
        assert_eq!(plain, Ok(1));
    }

    #[test]
    fn a_super_frame_has_as_many_packets_as_it_says() {
        let mut bytes = written(&description().partial_checksum());
        let frame = frame(&mut bytes, super_frame(54));
        let segments = frame.segments().expect("a super-frame");
        assert_eq!(segments.remaining(), frame.offload().segments(354));
        assert_eq!(segments.packet_len(), frame.offload().packet_len(354));
    }
}
