//! Flavors: sizes of rings and of memory.

use crate::quantity::Bytes;
use serde::Serialize;

/// Size of rings and of memory, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flavor {
    /// Slots per ring: a power of two, 64 ..= 1024.
    pub ring: u32,
    /// Memory limit of an instance.
    pub memory: Bytes,
}

/// Flavors that need no definition in the document.
pub const BUILT_IN_FLAVORS: [(&str, Flavor); 3] = [
    (
        "small",
        Flavor {
            ring: 64,
            memory: Bytes::mib(16),
        },
    ),
    (
        "medium",
        Flavor {
            ring: 256,
            memory: Bytes::mib(64),
        },
    ),
    (
        "large",
        Flavor {
            ring: 1024,
            memory: Bytes::mib(256),
        },
    ),
];

/// The flavor of an instance that names none.
pub const DEFAULT_FLAVOR: &str = "medium";
