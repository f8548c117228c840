//! Messages of another host's daemon while an instance is moved: reading them does not panic, and a message that was read and
//! written is read as the same again.
//! The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/formats/tests/exercise/mod.rs"]
#[allow(dead_code)]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::messages(input);
});
