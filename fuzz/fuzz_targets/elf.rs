//! A file that is said to be a program: no panic, and a bounded part of it is read.
//! The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/sandbox/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::program(input);
});
