//! The application of a slice: a graph, its kernels, its input and its results.

use nfluid_dataflow::engine::{Application, Finished};
use nfluid_dataflow::graph::Graph;
use std::sync::Arc;

/// Longest result in bytes: it has room in one packet of 1280 bytes, the least that IPv6 carries.
pub const RESULT_BYTES_MAX: usize = 1200;

/// The application of a slice. Its kernels are its [`Application`].
pub trait SliceApplication: Application {
    /// The graph of an interval, with costs before any has been measured.
    fn graph(&self) -> &Graph;

    /// Names of the kinds of tasks, by number.
    fn kinds(&self) -> &'static [&'static str];

    /// Bytes of an interval's input, as messages bring it: a multiple of 4.
    fn input_bytes(&self) -> usize;

    /// The input as kernels take it; `input` has [`Self::input_bytes`], `phase` is what messages say of the interval.
    fn external(&self, input: &[u8], _phase: u8) -> Arc<[u8]> {
        input.into()
    }

    /// Hands each result of a graph that is done to `sink`, at most [`RESULT_BYTES_MAX`] bytes each.
    fn results(&self, finished: &Finished, sink: &mut dyn FnMut(&[u8]));
}
