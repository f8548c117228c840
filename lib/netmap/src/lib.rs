//! `libnfluid-netmap.so`: the ports of an instance for programs on [netmap](https://github.com/luigirizzo/netmap), which are
//! neither changed nor compiled again. `LD_PRELOAD` puts its functions before those of the C library: `open("/dev/netmap")`
//! gives a descriptor of this library, and `ioctl`, `mmap`, `poll` and their like know it. Everything else goes on to the C
//! library. The guide is `docs/guide/netmap.md`.
//!
//! - `abi`: netmap's structures. `request`: from a request to a `descriptor`.
//! - `region`: the memory that programs map. `buffers`: whose the buffers are.
//! - `lane`: from netmap's rings to those of the switch.
//! - `waiting`: `poll`, and what is made of it: `select`, `events` (epoll).
//! - `calls`: the functions that stand before the C library's. `next`: those of the C library.
//!
//! What a program writes into the region is its own affair: the process is one instance, and the switch trusts none. But
//! each word is read once and checked, so that an error of the program is an error here, and no crash.

mod abi;
mod buffers;
pub mod calls;
mod descriptor;
pub mod events;
mod instance;
mod lane;
mod next;
mod region;
mod request;
pub mod select;
mod waiting;

/// Writes a line for the operator: the instance's log has it.
fn say(what: std::fmt::Arguments<'_>) {
    eprintln!("nfluid-netmap: {what}");
}
