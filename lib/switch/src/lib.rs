//! User half of nfluid's eBPF switch: loads it, owns its maps, makes and connects ports.
//!
//! - [`program`]: loading, the two loop forms, attaching, pinning.
//! - [`instance`]: the memory, sockets and doorbells of one instance, and its port table.
//! - `registry`: entering instances into the tables, removing them.
//! - `grace`: threads that wait for the kernel.
//! - `quiet`: waiting until no call is under way that has seen the switch as it was.
//! - `gaps`: what is reserved in a ring and will never be published.
//! - `way`: where a port's frames go.
//! - [`group`]: pools that several instances share, and who owns which slot.
//! - [`ports`]: connecting ports, counters, reclaiming.
//! - [`fdb`]: pinned and learned addresses.
//! - [`classifier`], `queues`: which port takes a frame that an interface has received.
//! - `uplink`: what a port that is backed by an interface needs of the switch.
//! - [`serve`]: the switch run by I/O threads.
//! - [`signal`]: congestion signals and refusals.
//! - [`spread`]: ports behind which are several instances.
//! - [`abi`]: the trusted state, shared with the program.

pub mod abi;
pub mod capture;
pub mod classifier;
pub mod client;
mod deposit;
pub mod fdb;
mod gaps;
mod grace;
pub mod group;
pub mod handover;
pub mod instance;
pub mod ports;
pub mod program;
mod queues;
mod quiet;
mod registry;
pub mod serve;
pub mod signal;
pub mod spread;
mod states;
mod uplink;
mod way;

pub use abi::DropReason;
pub use deposit::Inlet;
pub use gaps::Gaps;
pub use group::Group;
pub use handover::{Handover, Maps};
pub use instance::{InstanceMemory, PortSpec, Wake};
pub use ports::{Destination, PortCounters, RingLook, WatchedRing};
pub use program::{Form, Options, Switch};
pub use queues::{QUEUES_MAX, Queues};
pub use signal::PortSignal;
pub use uplink::PortAccount;

use std::io;
use std::path::PathBuf;

/// Why something about the switch failed.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The kernel refused the program in both loop forms.
    #[error(
        "the kernel refused the switch program (with may_goto: {goto}; with bpf_loop: {call}); it needs Linux 6.1 or newer, root, and BPF enabled: run 'nfluid doctor'"
    )]
    Load {
        /// Error of the form with may_goto.
        goto: String,
        /// Error of the form with bpf_loop.
        call: String,
    },
    /// A bpf operation failed.
    #[error("{what}: {source}")]
    Bpf {
        /// What was attempted.
        what: String,
        /// The cause.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The platform's own limit.
    #[error("{0}")]
    Limit(String),
    /// A path that should exist does not.
    #[error("{what} {path}: not found")]
    Missing {
        /// What the path is for.
        what: &'static str,
        /// The path.
        path: PathBuf,
    },
}

impl SwitchError {
    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.into();
        move |source| SwitchError::Bpf { what, source }
    }

    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| SwitchError::System {
            what,
            source: source.into(),
        }
    }
}
