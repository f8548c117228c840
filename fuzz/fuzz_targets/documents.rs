//! Any text as a deployment: no panic, what is printed is read as the same, every plan is possible.
//! The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/control/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::document(&String::from_utf8_lossy(input));
});
