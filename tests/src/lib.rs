//! Harness shared by the tests of this folder. The tests themselves are in `tests/`, one file per promise.

pub mod harness;
