//! Set-ups of several experiments: instances, their processes, and their links.

pub mod chain;
pub mod ends;
pub mod fleet;
pub mod forwarders;
pub mod hyperio_call;
pub mod io_threads;
pub mod layout;
pub mod loopback;
pub mod pairs;
pub mod pipe_chain;
pub mod segments;
pub mod stream;
pub mod wire;
