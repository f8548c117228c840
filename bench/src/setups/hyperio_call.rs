//! CPU time of hyperio calls, and of frames that they forward, on one core.

use crate::roles::work::cpu_seconds;
use nfluid_ring::port::{Port, WhenFull};

/// Returns the CPU time per frame of `len` bytes in nanoseconds, from the sender's slots to the receiver that releases
/// them, as the mean of `calls` calls of `batch` frames. The content of the slots is not written.
pub fn ns_per_frame(from: &mut Port, to: &mut Port, len: usize, batch: usize, calls: usize) -> f64 {
    let start = cpu_seconds();
    for _ in 0..calls {
        for _ in 0..batch {
            // A slot is free: the last flush consumed everything.
            let _ = from.send(|_| len);
        }
        let _ = from.flush(WhenFull::Drop);
        to.receive(batch, |_| ());
    }
    (cpu_seconds() - start) * 1e9 / (calls * batch) as f64
}

/// Returns the CPU time of one call in nanoseconds, as the mean of `calls`.
pub fn ns_per_call(calls: usize, mut call: impl FnMut()) -> f64 {
    let start = cpu_seconds();
    for _ in 0..calls {
        call();
    }
    (cpu_seconds() - start) * 1e9 / calls as f64
}
