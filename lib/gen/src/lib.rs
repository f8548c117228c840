//! Traffic for nfluid: generator, receiver, ping-pong, capture replay, and the search for the
//! highest rate without loss.
//!
//! | module | content |
//! |---|---|
//! | [`io`] | the two traits that a port implements; [`interface`] and [`memory`] do |
//! | [`spec`], [`script`] | the requested traffic: sizes, rates, flows, parsed from text |
//! | [`template`], [`payload`], [`pace`] | frames prepared in advance, their stream header, their schedule |
//! | [`send`], [`receive`], [`pingpong`], [`replay`] | the four loops, each over any port and clock |
//! | [`check`], [`latency`] | checks of received frames: loss, duplicates, order, corruption, delay |
//! | [`report`] | a line per second and the final figures, as text and JSON |
//! | [`search`] | NDR and PDR in one search (RFC 2544, MLRsearch) |
//! | `cli` | the arguments and runners of `nfluid gen` (feature `cli`) |
//!
//! Sizes are always those of the frame in its slot: without preamble and FCS. Input from a file, a command line or
//! the network is refused with a reason and never panics; memory is bounded whatever arrives.

#![forbid(unsafe_code)]

pub mod capture;
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod interface;
pub mod io;
pub mod latency;
pub mod memory;
pub mod pace;
pub mod payload;
pub mod pingpong;
pub mod receive;
pub mod replay;
pub mod report;
pub mod script;
pub mod search;
pub mod send;
pub mod spec;
pub mod template;
