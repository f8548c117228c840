//! The life of an instance while frames pass: paused, saved, restored, moved to another host, upgraded; and of one that becomes several.

mod losses;
mod setup;
pub use setup::number;
pub mod migration;
pub mod pause;
pub mod save_restore;
pub mod scaleout;
pub mod upgrade;
