//! Names that follow from an engine's objects.

use sha2::{Digest, Sha256};

/// The beginning of names of interfaces that drivers have made, for tunnels. A simulated host has none of them yet, and every other interface.
pub const TUNNELS: &str = "ov-";

/// Returns the first hexadecimal digits of the SHA-256 sum of a text, 64 at most.
pub fn fingerprint(text: &str, digits: usize) -> String {
    let sum = Sha256::digest(text);
    let all: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    all[..digits].to_owned()
}
