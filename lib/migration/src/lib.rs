//! Instances move between hosts (docs/adr/0021-migration.md): over TLS, from the daemon that has an instance to a daemon that
//! listens.
//!
//! | | source | target |
//! |---|---|---|
//! | before the instance stops | `hello`: specification, links, chains | makes all of it, with closed ports: `prepared` |
//! | | `rehearsal`: the current state | takes the state in and forgets it, so that the memory is there: `rehearsed` |
//! | the instance stands still | `state` | takes the state in: `ready` |
//! | | holds the instance for good: `go` | records that this host has the instance, opens the ports: `started` |
//! | the instance runs at the target | forwards the frames that waited: `frames`; those were all: `announce`; and what still comes: `frames`, `end` | puts them into the rings; tells the network; all is on the disk: `kept` |
//! | | removes the instance: `done` | forgets the move |
//!
//! **Which host has the instance**: before `go` the source, whatever happens; the target withdraws when the conversation ends.
//! From then on the target, if the target has recorded so. A source that does not hear `started` lets the instance stand still,
//! asks the target until the target answers, and lets the instance go on if the answer is no: after that answer the move cannot
//! be completed.
//!
//! | module | what it is |
//! |---|---|
//! | [`site`] | what a move asks of the host: `nfluidd` implements this, and tests do in memory |
//! | [`migration`] | the moves of a daemon |
//! | [`source`], [`target`] | the two ends of a move |
//! | `arrival` | an instance until the target has it |
//! | `guarded` | an instance with the firewalls in front of its ports |
//! | `frames`, `addresses` | forwarding frames, and announcing the instance's new place |
//! | [`tls`] | certificates, trust and revocation |
//! | [`callers`] | places for callers: known daemons, and strangers |
//! | [`channel`], `patience` | messages, and how long each end waits for them |
//! | [`wires`] | what another daemon may ask for |
//! | [`ledger`] | moves that are not settled, on the disk |
//! | [`priority`] | the priority of threads for whose next step an instance stands still |

#![forbid(unsafe_code)]

mod addresses;
mod arrival;
pub mod callers;
pub mod channel;
mod frames;
pub mod guarded;
pub mod ledger;
pub mod migration;
mod patience;
pub mod priority;
pub mod site;
pub mod source;
pub mod target;
pub mod tls;
pub mod wires;

pub use migration::Migration;
pub use target::listen;

#[cfg(test)]
mod tests;
