//! Which flow a frame belongs to: [`PacketMeta`] parses a frame in one pass, [`FlowKey`] is the
//! 5-tuple with seeded hashes.

mod key;
mod meta;
mod parse;

pub use key::{FlowKey, FlowKeyV4, FlowKeyV6, HashSeed};
pub use meta::{Fragment, L3, PacketMeta};
