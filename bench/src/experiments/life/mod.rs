//! The life of an instance while frames pass: paused, saved, restored, moved to another host, upgraded; and of one that becomes several.

mod bed;
mod books;
pub use bed::number;
pub mod l7;
pub mod l8;
pub mod migrate;
pub mod scaleout;
pub mod upgrade;
