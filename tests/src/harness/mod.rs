//! The ground that tests stand on: what they need, what they make, and that it is removed.

pub mod attempt;
pub mod cell;
pub mod conversation;
pub mod evidence;
pub mod flood;
pub mod loopback;
pub mod measure;
pub mod mishaps;
pub mod mounts;
pub mod netns;
pub mod oracle;
pub mod platform;
pub mod program;
pub mod random;
pub mod skip;
pub mod soak;
pub mod two_hosts;
