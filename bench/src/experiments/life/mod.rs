//! The life of an instance while frames pass: paused, saved, restored, moved to another host, upgraded.

mod bed;
mod books;
pub mod l7;
pub mod l8;
pub mod migrate;
pub mod upgrade;
