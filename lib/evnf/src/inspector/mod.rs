//! eDPI's fast path: counts and treats the packets of flows that are decided, hands out copies of all others.

mod copies;
mod program;

pub use copies::{Copied, Copies};
pub use program::{Action, Entry, Exit, FlowKey, Inspector, Sizes};
