//! A port table and rings that a peer writes as it likes: every frame that is handed out lies in a
//! slot of its port, has the length of a frame, and is handed out once. The body is that of the
//! property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/ring/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| exercise::table_and_rings(input));
