//! eFW: those rules of the host's firewall that can be decided before the kernel sees a packet.

pub mod program;
pub mod rules;
pub mod tuples;

pub use program::{Exit, Firewall, Sharing};
pub use rules::{Family, Pattern, Prefix, Rule, Stage, Traffic, Verdict};
