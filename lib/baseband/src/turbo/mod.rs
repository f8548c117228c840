//! The turbo code (TS 36.212, section 5.1.3): two recursive encoders of eight states, rate 1/3.

mod decode;
mod encode;
mod qpp;

pub use decode::{Decoded, Decoder, Settings};
pub use encode::encode;
pub use qpp::{Interleaver, block_for, is_block};

/// Bits by which each encoder returns to state 0.
const TAIL: usize = 3;
/// Coded bits of each of the three streams behind a block's own.
pub const STREAM_TAIL: usize = 4;
