//! The life of an instance while frames pass: paused, saved, restored, upgraded.

mod bed;
pub mod l7;
pub mod l8;
pub mod upgrade;
