//! What the daemon of another host says while an instance is moved: no panic, and what is read is written as the same.
//! The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/formats/tests/exercise/mod.rs"]
#[allow(dead_code)]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::messages(input);
});
