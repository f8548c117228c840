//! Frames between the rings and the network stack: smoltcp's view of one call of the network function.

use nfluid_ring::layout::FRAME_MAX;
use nfluid_ring::{Frame, Outbox};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Counters of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Frames that have arrived.
    pub received: u64,
    /// Frames that have left.
    pub sent: u64,
    /// Frames for which the port had no room. TCP sends them again.
    pub without_room: u64,
}

/// The frames of a call, and the way out.
pub struct Exchange<'a, 'f> {
    /// Frames that have arrived and were not looked at yet.
    pub arrived: &'a [Frame<'f>],
    /// The way out.
    pub outbox: &'a mut dyn Outbox,
    /// Counters.
    pub frames: &'a mut Frames,
    /// Largest IP packet in bytes.
    pub mtu: usize,
}

/// A frame that has arrived.
pub struct Arrived<'a>(&'a [u8]);

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(self.0)
    }
}

/// Room for a frame that leaves.
pub struct Leaving<'a> {
    outbox: &'a mut dyn Outbox,
    frames: &'a mut Frames,
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut slot = [0; FRAME_MAX];
        let result = write(&mut slot[..length.min(FRAME_MAX)]);
        if self.outbox.emit(0, &slot[..length.min(FRAME_MAX)]) {
            self.frames.sent += 1;
        } else {
            self.frames.without_room += 1;
        }
        result
    }
}

impl<'f> Device for Exchange<'_, 'f> {
    type RxToken<'t>
        = Arrived<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Leaving<'t>
    where
        Self: 't;

    fn receive(&mut self, _now: Instant) -> Option<(Arrived<'_>, Leaving<'_>)> {
        let (first, rest) = self.arrived.split_first()?;
        self.arrived = rest;
        self.frames.received += 1;
        let leaving = Leaving {
            outbox: self.outbox,
            frames: self.frames,
        };
        Some((Arrived(first.bytes()), leaving))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Leaving<'_>> {
        Some(Leaving {
            outbox: self.outbox,
            frames: self.frames,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = (self.mtu + ETHERNET).min(FRAME_MAX);
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}
