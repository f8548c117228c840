//! A TLS terminator's configuration, or a file of certificates: no panic, and what is accepted has bounds.
//! The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/tls/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::configuration_or_certificate(input);
});
