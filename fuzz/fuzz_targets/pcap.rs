//! A capture: no panic, an end, and the same frames in whatever pieces it comes.
//! The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/gen/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::capture(input);
});
