//! Packets and bytes forwarded, by arrival port: what every network function reports alike.
//!
//! Packets are those on a wire: a super-frame counts as all of its packets, with the bytes of all their headers. So
//! counters do not depend on whether a kernel has put packets together.

use crate::function::{Metric, PortInfo};
use crate::stateful::{Reader, StateError, Writer};
use alloc::string::String;
use nfluid_ring::{Frame, Offload};

/// The packets that a frame is on a wire, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnWire {
    packets: u64,
    bytes: u64,
}

impl OnWire {
    /// Of a frame.
    #[inline]
    pub fn of(frame: &Frame<'_>) -> Self {
        if frame.offload().is_none() {
            return Self {
                packets: 1,
                bytes: frame.len() as u64,
            };
        }
        Self::of_metadata(frame)
    }

    /// Apart, so that a frame without metadata costs one comparison.
    #[inline(never)]
    fn of_metadata(frame: &Frame<'_>) -> Self {
        Self::of_bytes(frame.len(), frame.offload())
    }

    /// Of a frame of `len` bytes to which `offload` is still to be done.
    pub const fn of_bytes(len: usize, offload: Offload) -> Self {
        Self {
            packets: offload.segments(len) as u64,
            bytes: offload.wire_len(len) as u64,
        }
    }

    /// Packets: 1 unless the frame is a super-frame.
    #[inline]
    pub const fn packets(self) -> u64 {
        self.packets
    }

    /// Bytes of all these packets, from the Ethernet header on, without FCS.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }
}

#[derive(Clone, Debug, Default)]
struct Arrivals {
    port_name: String,
    packets: u64,
    bytes: u64,
}

/// Counters of what an NF with `PORTS` ports has forwarded.
#[derive(Clone, Debug)]
pub struct Forwarded<const PORTS: usize>([Arrivals; PORTS]);

impl<const PORTS: usize> Forwarded<PORTS> {
    /// Counters at zero, labelled with the names of `ports`.
    pub fn new(ports: &[PortInfo]) -> Self {
        let mut counters = Forwarded(core::array::from_fn(|_| Arrivals::default()));
        counters.rename(ports);
        counters
    }

    /// Takes new names of the ports; the counts stay.
    pub fn rename(&mut self, ports: &[PortInfo]) {
        for (arrivals, port) in self.0.iter_mut().zip(ports) {
            arrivals.port_name.clone_from(&port.name);
        }
    }

    /// Counts a frame that arrived on port `from` and is sent on.
    #[inline]
    pub fn count(&mut self, from: u8, frame: OnWire) {
        if let Some(arrivals) = self.0.get_mut(usize::from(from)) {
            arrivals.packets += frame.packets();
            arrivals.bytes += frame.bytes();
        }
    }

    /// Writes the counts into an image.
    pub fn export(&self, writer: &mut Writer) {
        writer.list(self.0.iter().map(|from| (from.packets, from.bytes)));
    }

    /// Adds the counts of an image.
    ///
    /// # Errors
    /// The counters are of another number of ports.
    pub fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        let mut arrivals = self.0.iter_mut();
        reader.list(|(packets, bytes): (u64, u64)| {
            let from = arrivals.next().ok_or("counts of more ports")?;
            from.packets = from.packets.saturating_add(packets);
            from.bytes = from.bytes.saturating_add(bytes);
            Ok(())
        })
    }

    /// Reports `packets_forwarded_total` and `bytes_forwarded_total` with the label `from`.
    pub fn report(&self, sink: &mut dyn FnMut(Metric)) {
        for arrivals in &self.0 {
            let from = &arrivals.port_name;
            sink(Metric::new("packets_forwarded_total", arrivals.packets).with("from", from));
            sink(Metric::new("bytes_forwarded_total", arrivals.bytes).with("from", from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};

    /// Catches: a super-frame that counts as one packet, or without the headers of the others.
    #[test]
    fn a_super_frame_is_all_of_its_packets() {
        let cut = Segmentation {
            kind: SegmentKind::Udp,
            header_len: 42,
            payload_len: 100,
            is_ecn: false,
        };
        let count = |len, offload| {
            let on_wire = OnWire::of_bytes(len, offload);
            (on_wire.packets(), on_wire.bytes())
        };
        let super_frame = Offload::segmented(34, cut);
        assert_eq!(count(42 + 201, super_frame), (3, 42 * 3 + 201));
        let checksum = PartialChecksum {
            start: 34,
            offset: 6,
        };
        for offload in [Offload::NONE, Offload::partial_checksum(checksum)] {
            assert_eq!(count(60, offload), (1, 60));
        }
    }
}
