//! The guard: limits on what sources send and destinations get, and SYN cookies for protected ends.
//!
//! Limits are token buckets, one of each source in a table of a fixed size. A bucket that is full again leaves its place, so that a
//! flood from invented addresses holds places for a packet's worth of time each; what finds no place is dropped and counted.
//!
//! Protected ends are addresses and ports where **this** host listens. SYNs beyond what the kernel is left are answered by its own
//! cookies, which its sockets take (`net.ipv4.tcp_syncookies=2`, see `docs/adr/0023-guard.md`). For ends on other hosts there are
//! limits only.

mod program;
mod settings;

pub use program::{Exit, Guard};
pub use settings::{ENDS_MAX, Limit, PACKETS_MAX, Settings, Sizes};
