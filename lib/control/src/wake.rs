//! When an instance that sleeps is woken: for each frame, or for several at once.

use crate::quantity::Micros;
use serde::Serialize;
use std::fmt;

/// Fewest frames to wait for: fewer are "for each frame", which an absent `wake` says.
pub const FRAMES_MIN: u32 = 2;
/// Most: half of the longest ring.
pub const FRAMES_MAX: u32 = 512;
/// Longest time that a frame may wait for others.
pub const AFTER_MAX: Micros = Micros(1_000_000);

/// An instance is woken as soon as enough frames wait at one of its ports, or the first of them has waited long
/// enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wake {
    /// Frames, [`FRAMES_MIN`] to half of the ring.
    pub frames: u32,
    /// Longest time that the first of fewer waits, up to [`AFTER_MAX`].
    pub after: Micros,
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for {} frames or after {}", self.frames, self.after)
    }
}

/// When an instance is woken, in words; absent: for each frame.
pub fn words(wake: Option<Wake>) -> String {
    wake.map_or_else(|| "for each frame".to_owned(), |wake| wake.to_string())
}
