//! Formats that untrusted parties write and the daemon reads.
//!
//! | module | writer | content |
//! |---|---|---|
//! | [`saved`] | a client of the API, from a file of any origin | a saved instance |
//! | [`message`] | the daemon of another host | the conversation that moves an instance |
//! | [`answer`] | an NF, through its control socket | its answer, and the state that it hands over |
//! | [`frames`] | an NF, or the daemon of another host | frames that waited in rings |
//! | [`json`] | all of them | JSON within the formats above |
//!
//! Each reader takes bytes or a stream, and gives a value or a reason. A reader does not panic, ends, and takes memory in
//! proportion to the bytes that have come, not to a length that they state. JSON is bounded in bytes and in values. There is
//! no file, socket or clock in this crate: the daemon opens, waits and gives up.

#![forbid(unsafe_code)]

pub mod answer;
mod cut;
pub mod frames;
pub mod json;
pub mod message;
pub mod saved;
