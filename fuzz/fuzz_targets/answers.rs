//! What an NF answers on its control socket, and what it hands over: no panic, no error without a reason, and the same however
//! it comes in pieces. The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/formats/tests/exercise/mod.rs"]
#[allow(dead_code)]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::answers(input);
});
