//! Wake-up conditions of a sleeping instance: every frame, or several frames at once.

use crate::quantity::Micros;
use serde::Serialize;
use std::fmt;

/// Minimum number of frames to wait for. Fewer frames mean "every frame", which an absent `wake` stands for.
pub const FRAMES_MIN: u32 = 2;
/// Maximum number of frames to wait for: half of the longest ring.
pub const FRAMES_MAX: u32 = 512;
/// Maximum time that a frame can wait for others.
pub const AFTER_MAX: Micros = Micros(1_000_000);

/// Wake-up condition: enough frames wait at one of the instance's ports, or the first of them has waited long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wake {
    /// Number of frames, from [`FRAMES_MIN`] to half of the ring.
    pub frames: u32,
    /// Maximum time that the first frame waits for further frames, up to [`AFTER_MAX`].
    pub after: Micros,
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for {} frames or after {}", self.frames, self.after)
    }
}

/// Returns the wake-up condition in words; absent: for each frame.
pub fn words(wake: Option<Wake>) -> String {
    wake.map_or_else(|| "for each frame".to_owned(), |wake| wake.to_string())
}
