//! Any bytes, given to every parser of `nfluid-wire`: no panic, and the fast parser agrees with
//! the views. The body is that of the crate's property tests.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lib/wire/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|bytes: &[u8]| exercise::everything(bytes));
