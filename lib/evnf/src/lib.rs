//! Network functions whose common case runs in XDP, before the kernel's stack, and whose rest runs behind it.

pub mod balancer;
pub mod chain;
pub mod firewall;
pub mod inspector;
mod interface;
pub mod load;
pub mod nft;
