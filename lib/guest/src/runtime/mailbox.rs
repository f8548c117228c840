//! The mailbox, the device page and the doorbell. While the guest runs, the monitor writes nothing: it does so only
//! within [`ring`].

use crate::abi::{self, Call, DEVICE, DOORBELL, Device, MEMORY, Mailbox, Reply};
use core::ptr;

const MAILBOX: *mut Mailbox = MEMORY as *mut Mailbox;

/// Returns the device page as it is now.
pub fn device() -> Device {
    // SAFETY: the monitor maps the page, readable, for as long as the guest runs; any bits are a `Device`.
    unsafe { ptr::read_volatile(DEVICE as *const Device) }
}

/// Leaves the guest. Returns when the monitor lets it go on.
pub fn ring(what: u32) {
    // SAFETY: the page is the doorbell; the write reaches no memory. Everything that was written before is seen by the
    // monitor, which runs on the same CPU.
    unsafe { ptr::write_volatile(DOORBELL as *mut u32, what) };
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

/// Says that the last call is done, and returns the next one.
pub fn next_call() -> Call {
    ring(abi::ring::READY);
    // SAFETY: the mailbox is memory of the guest, aligned, and only the monitor writes the call.
    unsafe { ptr::read_volatile(&raw const (*MAILBOX).call) }
}

/// Puts the reply to the call into the mailbox.
pub fn put_reply(reply: &Reply) {
    let reply = Reply {
        version: abi::VERSION,
        ..*reply
    };
    // SAFETY: as in `next_call`; no reference to the reply exists.
    unsafe { ptr::write_volatile(&raw mut (*MAILBOX).reply, reply) };
}

/// Returns the request of a call. The bytes stay until the call is answered.
pub fn request(call: &Call) -> &'static [u8] {
    // SAFETY: the monitor has written these bytes into the mailbox or into the room that the guest has made, and
    // neither is written before the call is answered.
    unsafe { core::slice::from_raw_parts(call.address as *const u8, call.length as usize) }
}

/// The frames of the batch and those that are made.
pub fn frames() -> *mut abi::FrameWords {
    // SAFETY: only computes an address within the mailbox.
    unsafe { (&raw mut (*MAILBOX).frames).cast() }
}

/// The list of made frames.
pub fn made() -> *mut abi::MadeWords {
    // SAFETY: as above.
    unsafe { (&raw mut (*MAILBOX).made).cast() }
}

/// The bytes of made frames.
pub fn made_bytes() -> *mut u8 {
    // SAFETY: as above.
    unsafe { (&raw mut (*MAILBOX).bytes).cast() }
}

/// Writes a line to the instance's log.
pub fn log(text: &str) {
    say(abi::ring::LOG, text);
}

/// Hands a text to the monitor. The mailbox's reply is the one of the call at hand again afterwards.
pub fn say(what: u32, text: &str) {
    // SAFETY: as in `next_call`.
    let before = unsafe { ptr::read_volatile(&raw const (*MAILBOX).reply) };
    put_reply(&Reply {
        address: text.as_ptr() as u64,
        length: text.len() as u64,
        ..Reply::default()
    });
    ring(what);
    put_reply(&before);
}
