//! The frames that a network function makes: they lie in the mailbox until the monitor sends them.

use super::mailbox;
use crate::abi::{self, MADE_BYTES, MADE_MAX, MadeWords, Reply};
use nfluid_ring::layout::{FRAME_MIN, LONG_MAX};
use nfluid_ring::{Action, Frame, Offload, Outbox};

/// The outbox of one call.
#[derive(Default)]
pub struct Made {
    /// Frames in the mailbox.
    count: usize,
    /// Bytes of these frames.
    bytes: usize,
    /// Frames of the batch whose decisions are in the mailbox.
    decided: usize,
}

impl Made {
    /// Adds what is in the mailbox to a reply.
    pub fn report(&self, reply: &mut Reply) {
        reply.made = self.count as u32;
        reply.decided = self.decided as u32;
    }

    /// Has the monitor send what is in the mailbox.
    fn hand_over(&mut self) {
        let mut reply = Reply::default();
        self.report(&mut reply);
        mailbox::put_reply(&reply);
        mailbox::ring(abi::ring::MADE);
        self.count = 0;
        self.bytes = 0;
    }
}

impl Outbox for Made {
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: Offload) -> bool {
        if !(FRAME_MIN..=LONG_MAX).contains(&frame.len()) {
            return false;
        }
        if self.count == MADE_MAX || self.bytes + frame.len() > MADE_BYTES {
            self.hand_over();
        }
        let words = MadeWords {
            at: self.bytes as u32,
            length: frame.len() as u16,
            port,
            decided: self.decided as u8,
            offload: words_of(offload, frame.len()),
        };
        // SAFETY: the position is below `MADE_MAX`, the bytes end below `MADE_BYTES`, and no reference to the mailbox exists.
        unsafe {
            mailbox::made().add(self.count).write_volatile(words);
            let to = mailbox::made_bytes().add(self.bytes);
            to.copy_from_nonoverlapping(frame.as_ptr(), frame.len());
        }
        self.count += 1;
        self.bytes += frame.len();
        true
    }

    fn commit(&mut self, decided: &[Frame<'_>]) {
        for (at, frame) in decided.iter().enumerate().skip(self.decided) {
            // SAFETY: a batch has at most `BATCH_MAX` frames, and no reference to the mailbox exists.
            unsafe {
                let words = mailbox::frames().add(at);
                (*words).length = frame.len() as u16;
                (*words).out = match frame.action() {
                    Action::Send(port) => port.saturating_add(1),
                    Action::Drop => 0,
                };
                (*words).offload = words_of(frame.offload(), frame.len());
            }
            self.decided = at + 1;
        }
    }
}

/// The words of an offload; zeros if nothing is to be done.
fn words_of(offload: Offload, len: usize) -> [u8; abi::OFFLOAD_BYTES] {
    if offload.is_none() {
        [0; abi::OFFLOAD_BYTES]
    } else {
        offload.words(len)
    }
}
