//! Kinds of frames, by the work that they have left to be done.

use serde::Serialize;
use std::fmt;

/// Kinds of frames, by the work that they may have left to be done. Each kind includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// Nothing: frames are as on a wire.
    #[default]
    Plain,
    /// Also the transport checksum.
    Checksums,
    /// Also the cut into packets.
    Super,
}

impl Frames {
    /// All kinds, by their names in documents.
    pub const ALL: [(&'static str, Frames); 3] = [
        ("plain", Frames::Plain),
        ("checksums", Frames::Checksums),
        ("super", Frames::Super),
    ];

    /// Returns the number of the kind, 0 to 2.
    pub fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn is_plain(&self) -> bool {
        *self == Frames::Plain
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Frames::ALL.iter().find(|(_, frames)| frames == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}
