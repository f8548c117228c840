//! The conversation of two daemons between which an instance moves (docs/adr/0021-migration.md), and what each must not forget.
//!
//! | module | what it is |
//! |---|---|
//! | [`tls`] | certificates, trust and revocation |
//! | [`callers`] | places for those who call: known daemons, and strangers |
//! | [`channel`] | messages with patience |
//! | [`wires`] | what another daemon may ask for |
//! | [`ledger`] | moves that are not settled, on the disk |
//! | [`priority`] | the priority of threads for whose next step an instance stands still |
//!
//! The order of the conversation is the daemon's (`bin/nfluidd/src/migration`): the room moves no instance.

#![forbid(unsafe_code)]

pub mod callers;
pub mod channel;
pub mod ledger;
pub mod priority;
pub mod tls;
pub mod wires;
