//! What the tests of this folder share. The tests themselves are in `tests/`, one file per promise.

pub mod harness;
