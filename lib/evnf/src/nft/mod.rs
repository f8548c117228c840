//! The host's rule set as `nft -j list ruleset` prints it (libnftables-json(5)), and which part of it the fast path can decide.
//!
//! **The split changes no verdict.** Chains are taken in the order in which packets pass them, the rules of each in theirs. A
//! rule whose conditions and verdict the fast path knows is taken as it is. Of any other, the conditions that it knows are kept
//! and the others are left out, so that it matches at least the packets that it matched, and those are left to the kernel. The
//! fast path drops what a known rule drops and no rule before it may have matched; it lets everything else go on to the kernel.
//!
//! **On the way out** the kernel has asked its chains before ([`split_leaving`]). The fast path has them hold for what goes around
//! them: what programs at tc redirect, what packet sockets send, what a bridge hands on.

mod chain;
mod condition;
mod interval;
mod ruleset;
mod split;

pub use ruleset::{Error, Ruleset, legacy_tables};
pub use split::{Decided, Interface, Line, Split, split, split_leaving};
