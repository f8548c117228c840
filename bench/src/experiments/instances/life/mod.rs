//! An instance's life while frames pass: pause, save, restore, move to another host, upgrade, and scale-out.

pub mod losses;
mod setup;
pub use setup::number;
pub mod migration;
pub mod pause;
pub mod save_restore;
pub mod scaleout;
pub mod upgrade;
