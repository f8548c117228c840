//! The view that a network function has of the rings: a batch of frames, in place. The NF sends on, drops, or leaves
//! undecided each frame.
//!
//! A [`Frame`] borrows its slot in the instance's own memory; nothing is copied between arrival
//! and the switch. Frames that an NF creates itself (an ICMP error, an ARP request) go through the
//! [`Outbox`], which copies them once.
//!
//! **Order.** A frame that an NF emits while it handles another frame leaves behind all frames before the handled
//! frame in the batch, and before the handled frame itself and all frames behind it: an NF that looks at its frames
//! through [`frame_at`] gets this order without doing anything. Emitted frames leave in the order in which they are
//! emitted. So no frame of a flow overtakes another frame of the flow because one of them was made (a fragment, a
//! packet that waited for its neighbour) and the other was passed on in place.

use crate::layout::{BATCH_MAX, FRAME_MIN, LONG_MAX};
use crate::offload::Offload;
use arrayvec::ArrayVec;

/// The decision about a frame, carried out when its batch has been processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give the frame to the switch on this port of the instance (index into its port list).
    Send(u8),
    /// Free the slot. The NF has counted the reason.
    Drop,
}

/// A received frame, in place in its slot.
#[derive(Debug)]
pub struct Frame<'a> {
    slot: &'a mut [u8],
    len: u16,
    in_port: u8,
    action: Action,
    offload: Offload,
}

impl<'a> Frame<'a> {
    /// Wraps the frame in the first `len` bytes of `slot`, received on port `in_port`. Until an NF
    /// decides otherwise it will be dropped.
    ///
    /// # Panics
    /// If `len` is outside [`FRAME_MIN`]..=[`LONG_MAX`] or longer than the slot: the caller has
    /// read the length from its own ring and checked it.
    #[inline]
    pub fn new(slot: &'a mut [u8], len: u16, in_port: u8) -> Self {
        assert!(
            usize::from(len) <= slot.len() && (FRAME_MIN..=LONG_MAX).contains(&usize::from(len))
        );
        Frame {
            slot,
            len,
            in_port,
            action: Action::Drop,
            offload: Offload::NONE,
        }
    }

    /// What is still to be done to the frame before it can be on a wire: always nothing unless the NF has declared
    /// that it takes such frames.
    #[inline]
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Says what is still to be done to the frame, after a change of its headers.
    #[inline]
    pub fn set_offload(&mut self, offload: Offload) {
        self.offload = offload;
    }

    /// The frame, from the Ethernet destination on, without FCS.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.slot[..usize::from(self.len)]
    }

    /// The frame, to be changed in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.slot[..usize::from(self.len)]
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Never true: the shortest frame has [`FRAME_MIN`] bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The longest frame that the slot can hold, in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.slot.len().min(LONG_MAX)
    }

    /// Changes the length; bytes beyond the old end hold whatever the slot held before.
    /// Returns `false`, and changes nothing, when `len` does not fit the slot or a frame.
    #[inline]
    #[must_use]
    pub fn resize(&mut self, len: usize) -> bool {
        let fits = (FRAME_MIN..=self.capacity()).contains(&len);
        if fits {
            self.len = len as u16;
        }
        fits
    }

    /// Index of the port on which the frame arrived.
    #[inline]
    pub fn in_port(&self) -> u8 {
        self.in_port
    }

    /// Decides to send the frame on port `port` of the instance.
    #[inline]
    pub fn send(&mut self, port: u8) {
        self.action = Action::Send(port);
    }

    /// Decides to drop the frame. The NF counts the reason in its own metrics.
    #[inline]
    pub fn discard(&mut self) {
        self.action = Action::Drop;
    }

    /// Returns the decision.
    #[inline]
    pub fn action(&self) -> Action {
        self.action
    }
}

/// The receiver of frames that an NF makes itself.
pub trait Outbox {
    /// Queues a copy of `frame` for port `port`. `false`: no room or a bad length; the frame is
    /// not sent and the NF counts that.
    #[must_use]
    fn emit(&mut self, port: u8, frame: &[u8]) -> bool {
        self.emit_offload(port, frame, Offload::NONE)
    }

    /// As [`Outbox::emit`], of a frame to which `offload` is still to be done. There is room for frames longer than a
    /// slot only in instances that take such frames.
    #[must_use]
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: Offload) -> bool;

    /// Declares that the NF has decided about `decided`, the first frames of its batch, and changes neither the
    /// frames nor the decisions: they leave before every frame that is emitted from now on. [`frame_at`] calls this
    /// function when there is a frame to emit. Without the call, `decided` leaves behind the emitted frames.
    fn commit(&mut self, decided: &[Frame<'_>]);
}

/// Returns frame `at` of a batch, and an outbox for the frames that the NF emits because of frame `at`. Frames in the
/// outbox leave behind the frames before `at`, about which the NF must have decided, and before frame `at`. The
/// outbox costs nothing unless a frame is emitted.
///
/// # Panics
/// If there is no such frame.
#[inline]
pub fn frame_at<'b, 'f>(
    frames: &'b mut [Frame<'f>],
    at: usize,
    outbox: &'b mut dyn Outbox,
) -> (&'b mut Frame<'f>, impl Outbox + use<'b, 'f>) {
    let (decided, rest) = frames.split_at_mut(at);
    (&mut rest[0], Behind { decided, outbox })
}

/// An outbox whose frames leave behind those decided about.
struct Behind<'b, 'f> {
    decided: &'b [Frame<'f>],
    outbox: &'b mut dyn Outbox,
}

impl Outbox for Behind<'_, '_> {
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: Offload) -> bool {
        self.outbox.commit(self.decided);
        self.outbox.emit_offload(port, frame, offload)
    }

    fn commit(&mut self, decided: &[Frame<'_>]) {
        self.outbox.commit(decided);
    }
}

/// At most [`BATCH_MAX`] frames, in order of arrival, and the outbox.
pub struct Batch<'f, 'b> {
    frames: &'b mut ArrayVec<Frame<'f>, BATCH_MAX>,
    outbox: &'b mut dyn Outbox,
}

impl<'f, 'b> Batch<'f, 'b> {
    /// A batch over `frames`, with `outbox` for frames that the NF makes itself.
    pub fn new(frames: &'b mut ArrayVec<Frame<'f>, BATCH_MAX>, outbox: &'b mut dyn Outbox) -> Self {
        Batch { frames, outbox }
    }

    /// The frames, in order of arrival.
    #[inline]
    pub fn frames(&mut self) -> &mut [Frame<'f>] {
        self.frames
    }

    /// The frames and the outbox at once, for NFs that answer while they iterate, with [`frame_at`].
    #[inline]
    pub fn split(&mut self) -> (&mut [Frame<'f>], &mut dyn Outbox) {
        (self.frames, self.outbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 1.11
    #[test]
    fn a_frame_is_dropped_unless_decided() {
        let mut slot = [0u8; 128];
        let frame = Frame::new(&mut slot, 64, 1);
        assert_eq!(frame.action(), Action::Drop);
        assert_eq!((frame.len(), frame.in_port()), (64, 1));
    }

    #[test]
    fn resize_refuses_what_does_not_fit() {
        let mut slot = [0u8; 128];
        let mut frame = Frame::new(&mut slot, 64, 0);
        assert!(!frame.resize(129) && !frame.resize(13));
        assert_eq!(frame.len(), 64);
        assert!(frame.resize(128));
        assert_eq!(frame.bytes().len(), 128);
    }
}
