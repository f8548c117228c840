//! Network functions whose common case runs in XDP or at tc, before the kernel's stack, and whose rest runs behind it.

pub mod balancer;
pub mod chain;
pub mod firewall;
pub mod guard;
mod handed;
pub mod hook;
pub mod inspector;
mod interface;
pub mod load;
pub mod nft;
pub mod slow;
