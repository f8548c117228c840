//! Answers and states of an NF on its control socket: reading them does not panic, each error has a reason, and the result does
//! not depend on the pieces in which the bytes come. The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/formats/tests/exercise/mod.rs"]
#[allow(dead_code)]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::answers(input);
});
