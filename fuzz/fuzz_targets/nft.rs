//! Outputs of 'nft -j list ruleset': reading and splitting a rule set does not panic, and every rule of a split can be looked up.
//! The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/evnf/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    exercise::ruleset(input);
});
