//! Rule text, a zero byte, then frames each behind its length: no panic, and every engine of the
//! firewall agrees with the reference. The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/nf/tests/firewall/exercise.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    let (text, frames) = input
        .iter()
        .position(|byte| *byte == 0)
        .map_or((input, &[][..]), |end| (&input[..end], &input[end + 1..]));
    exercise::rules_and_frames(&String::from_utf8_lossy(text), frames);
});
