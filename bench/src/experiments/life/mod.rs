//! The life of an instance while frames pass: paused, saved, restored, moved to another host, upgraded; and of one that becomes several.

mod books;
mod setup;
pub use setup::number;
pub mod l7;
pub mod l8;
pub mod migrate;
pub mod scaleout;
pub mod upgrade;
