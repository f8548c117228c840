//! The interface between the traffic library and a carrier of its frames: a ring port, a network interface, a queue
//! in memory.
//!
//! A frame is the bytes from the Ethernet destination on, without preamble and without FCS; every
//! size in this crate is counted that way. Frames are written and read where they lie: a sender
//! lends its slots, a receiver lends its frames, nothing is copied for the library's sake, and the
//! calls are generic so that no packet costs an indirect call.

use std::error::Error;
use std::time::Duration;

/// Bytes that a slot lent by a [`Sender`] has at least.
pub const SLOT_MIN: usize = 2032;
/// Shortest frame in bytes: an Ethernet header.
pub const FRAME_MIN: usize = 14;
/// Longest frame in bytes.
pub const FRAME_MAX: usize = 2032;
/// Most frames handed over or taken at once.
pub const BATCH_MAX: usize = 256;

/// A port that takes frames.
pub trait Sender {
    /// Lends up to `count` free slots one after the other to `fill`, which gets the position in
    /// this call (0, 1, ..) and at least [`SLOT_MIN`] bytes, writes a frame and returns its length
    /// in bytes. A length of 0 ends the call early and sends nothing for that slot; a length above
    /// [`FRAME_MAX`] is an error of the caller's and may be counted as a drop.
    ///
    /// Returns how many frames were taken: fewer than `count`, and 0 too, when no slot is free.
    /// Frames may be held back until [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`IoError`] when the port is gone or refused a frame that it had held back.
    fn send(
        &mut self,
        count: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, IoError>;

    /// Hands everything held back to the other side.
    ///
    /// # Errors
    /// As for [`send`](Self::send). [`IoError::Refused`] concerns one frame, which is gone; calling
    /// again carries on behind it.
    fn flush(&mut self) -> Result<(), IoError>;

    /// Lends every slot that [`send`](Self::send) will ever lend once to `write`, so that later
    /// sends may leave the contents as they are and only return a length. `false`, and nothing
    /// done, where slots do not keep their contents from one use to the next.
    fn prefill(&mut self, write: impl FnMut(&mut [u8])) -> bool {
        let _ = write;
        false
    }

    /// Returns the frames that this side took and then could not hand over, since it was opened. Such frames have not
    /// been sent, and reports say so. 0 where a frame once taken is always handed over.
    fn dropped(&self) -> u64 {
        0
    }
}

/// A port at which frames arrive.
pub trait Receiver {
    /// Lends the frames that wait, at most `max`, in their order of arrival. Never blocks. Returns
    /// how many there were.
    ///
    /// # Errors
    /// [`IoError`] when the port is gone.
    fn receive(&mut self, max: usize, handle: impl FnMut(&[u8])) -> Result<usize, IoError>;

    /// Blocks until a frame waits, at most for `timeout`. May return early without a frame.
    ///
    /// # Errors
    /// [`IoError`] when the port is gone.
    fn wait(&mut self, timeout: Duration) -> Result<(), IoError>;
}

/// The reason why a port could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// The port could not be opened.
    #[error("cannot open {port}: {cause}; {remedy}")]
    Open {
        /// The port as the user named it.
        port: String,
        /// The cause.
        cause: Box<dyn Error + Send + Sync>,
        /// The user's remedy.
        remedy: &'static str,
    },
    /// The port failed while in use.
    #[error("{port} failed while {action}: {cause}")]
    Failed {
        /// The port as the user named it.
        port: String,
        /// The operation that failed, as in "sending".
        action: &'static str,
        /// The cause.
        cause: Box<dyn Error + Send + Sync>,
    },
    /// A single frame was refused and is gone; the port still works.
    #[error("{port} refused a frame of {length} bytes: longer than its MTU allows")]
    Refused {
        /// The port as the user named it.
        port: String,
        /// Length of the frame in bytes.
        length: usize,
    },
}
