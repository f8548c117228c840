//! eDPI's fast path: counts and treats the packets of flows that are decided, hands out copies of all others.

mod copies;
mod entry;
mod program;
mod tables;

pub use crate::handed::Words;
pub use copies::{Copied, Copies};
pub use entry::{Action, Entry, FlowKey};
pub use program::{Exit, Inspector, Sizes, cpus};
pub use tables::Tables;
