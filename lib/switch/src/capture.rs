//! Copies of the frames that a port sends or receives, for an operator.

use crate::SwitchError;
use crate::abi::PORT_CAPTURE;
use crate::program::Switch;
use libbpf_rs::{MapHandle, RingBufferBuilder};
use nfluid_ring::layout::{FRAME_MAX, LONG_MAX, SLOT_SIZE};
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The port that sent it.
    pub from: u32,
    /// The port that received it.
    pub to: u32,
    /// The time of the capture, on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// The first bytes of the frame, at most [`FRAME_MAX`], without FCS, with the content of its receiver's slot right
    /// after the frame was copied there. If the receiver writes there in this very moment, the record has the
    /// receiver's bytes.
    pub frame: &'a [u8],
    /// Length of the whole frame in bytes.
    pub len: u32,
}

impl<'a> Captured<'a> {
    /// Reads a record, which the switch has written: as long as a slot, its last 16 bytes `struct nfl_captured`.
    fn parse(record: &'a [u8]) -> Option<Self> {
        let tail = record.get(FRAME_MAX..SLOT_SIZE)?;
        let half = |at: usize| tail[at..at + 2].try_into().map(u16::from_ne_bytes).ok();
        let len = u32::from_ne_bytes(tail[4..8].try_into().ok()?);
        let time: [u8; 8] = tail[8..16].try_into().ok()?;
        Some(Captured {
            from: u32::from(half(0)?),
            to: u32::from(half(2)?),
            time_ns: u64::from_ne_bytes(time),
            frame: &record[..(len as usize).min(FRAME_MAX)],
            len: Some(len).filter(|len| *len as usize <= LONG_MAX)?,
        })
    }
}

/// Reads captured frames; there is one reader per platform.
#[derive(Debug)]
pub struct CaptureReader {
    map: MapHandle,
}

impl Switch {
    /// Starts or ends the capture of a port's frames.
    pub fn set_capture(&self, port: u32, on: bool) {
        let flags = &self.state(port).flags;
        if on {
            flags.fetch_or(PORT_CAPTURE, Release);
        } else {
            flags.fetch_and(!PORT_CAPTURE, Release);
        }
    }

    /// The reader of captured frames.
    ///
    /// # Errors
    /// When the map cannot be opened.
    pub fn capture_reader(&self) -> Result<CaptureReader, SwitchError> {
        Ok(CaptureReader {
            map: MapHandle::try_from(self.map("nfl_captures")?)
                .map_err(SwitchError::bpf("opening map nfl_captures"))?,
        })
    }
}

impl CaptureReader {
    /// Hands every captured frame to `handle`, as they come, until it returns `false`; it is also
    /// called with `None` when none came for `patience`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn run(
        &self,
        patience: Duration,
        mut handle: impl FnMut(Option<Captured<'_>>) -> bool,
    ) -> Result<(), SwitchError> {
        let handle = std::cell::RefCell::new(&mut handle);
        let go_on = std::cell::Cell::new(true);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.map, |slot| {
                if let Some(captured) = Captured::parse(slot)
                    && !(handle.borrow_mut())(Some(captured))
                {
                    go_on.set(false);
                }
                0
            })
            .map_err(SwitchError::bpf("reading captures"))?;
        let ring = builder
            .build()
            .map_err(SwitchError::bpf("reading captures"))?;
        while go_on.get() {
            ring.poll(patience)
                .map_err(SwitchError::bpf("reading captures"))?;
            if !(handle.borrow_mut())(None) {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_frame_with_a_tail() {
        let mut slot = [7u8; SLOT_SIZE];
        slot[FRAME_MAX..].copy_from_slice(&[3, 0, 5, 0, 60, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let captured = Captured::parse(&slot).expect("valid");
        assert_eq!((captured.from, captured.to, captured.time_ns), (3, 5, 1));
        assert_eq!((captured.frame, captured.len), (&[7u8; 60][..], 60));
        slot[FRAME_MAX + 4..FRAME_MAX + 6].copy_from_slice(&9014u16.to_ne_bytes());
        let long = Captured::parse(&slot).expect("valid");
        assert_eq!((long.frame.len(), long.len), (FRAME_MAX, 9014));
    }

    #[test]
    fn nonsense_is_no_record() {
        assert!(Captured::parse(&[0; 100]).is_none());
        let mut slot = [0u8; SLOT_SIZE];
        slot[FRAME_MAX + 4..FRAME_MAX + 8].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(Captured::parse(&slot).is_none());
    }
}
