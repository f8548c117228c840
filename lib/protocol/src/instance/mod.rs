//! The instance's side of its control socket.

mod connection;
mod control;

pub use control::{Control, Received};
