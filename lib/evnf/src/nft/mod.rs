//! The host's rule set as `nft -j list ruleset` prints it (libnftables-json(5)), and the part of it that the fast path
//! can decide.
//!
//! **The split changes no verdict.** Chains are processed in the order in which packets pass them, and so are the rules
//! of each chain. A rule whose conditions and verdict the fast path supports is taken unchanged. Of any other rule, the
//! supported conditions are kept and the others are left out: the result matches at least the packets of the original
//! rule, and those are left to the kernel. The fast path drops packets that a supported rule drops and that no rule
//! before it may have matched; all other packets go to the kernel.
//!
//! **At egress** the kernel has already evaluated its chains ([`split_leaving`]). The fast path applies them to packets
//! that bypass the chains: packets that programs at tc redirect, that packet sockets send, or that a bridge forwards.

mod chain;
mod condition;
mod interval;
mod ruleset;
mod split;

pub use ruleset::{Error, Ruleset, legacy_tables};
pub use split::{Decided, Interface, Line, Split, split, split_leaving};
