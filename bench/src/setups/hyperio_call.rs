//! CPU time of hyperio calls, and of frames that they forward, on one core.

use crate::roles::work::cpu_seconds;
use nfluid_ring::port::{Port, WhenFull};

/// CPU time per frame of `len` bytes in nanoseconds, from the sender's slots to the receiver that releases them, mean of
/// `calls` of `batch` frames. Of what is in the slots nothing is written.
pub fn ns_per_frame(from: &mut Port, to: &mut Port, len: usize, batch: usize, calls: usize) -> f64 {
    let start = cpu_seconds();
    for _ in 0..calls {
        for _ in 0..batch {
            // Room is certain: the last flush consumed everything.
            let _ = from.send(|_| len);
        }
        let _ = from.flush(WhenFull::Drop);
        to.receive(batch, |_| ());
    }
    (cpu_seconds() - start) * 1e9 / (calls * batch) as f64
}

/// CPU time of one call in nanoseconds, mean of `calls`.
pub fn ns_per_call(calls: usize, mut call: impl FnMut()) -> f64 {
    let start = cpu_seconds();
    for _ in 0..calls {
        call();
    }
    (cpu_seconds() - start) * 1e9 / calls as f64
}
