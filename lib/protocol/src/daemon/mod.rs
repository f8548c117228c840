//! The daemon's side of an instance's control socket.
//!
//! The instance is hostile. The daemon waits for a bounded time, reads a bounded number of bytes, and takes no number of an
//! answer for true.

mod ask;
mod beat;
mod file;

pub use ask::{
    Asked, Budget, ByDeadline, ask, ask_about, ask_each, ask_within, await_answers, open,
};
pub use beat::Beat;
pub use file::memory_file;
