//! What is counted, and the signatures themselves: exposed, so that computing them is never
//! optimised away.

use crate::function::{Metric, PortInfo};
use alloc::string::String;

/// A metric is an `f64`: 48 bits of a signature survive in it unrounded.
const METRIC_MASK: u64 = (1 << 48) - 1;

#[derive(Debug, Default)]
struct Direction {
    port_name: String,
    packets: u64,
    bytes: u64,
}

/// Counters of both directions, by arrival port, and of signatures.
#[derive(Debug, Default)]
pub(super) struct Counters {
    directions: [Direction; 2],
    /// Frames dropped because their signature is forbidden.
    pub(super) forbidden: u64,
    /// Signature of the latest frame.
    pub(super) last: u64,
    /// All signatures so far, folded by exclusive or.
    pub(super) fold: u64,
}

impl Counters {
    pub(super) fn new(ports: &[PortInfo]) -> Counters {
        let mut counters = Counters::default();
        counters.rename(ports);
        counters
    }

    pub(super) fn rename(&mut self, ports: &[PortInfo]) {
        for (direction, port) in self.directions.iter_mut().zip(ports) {
            direction.port_name.clone_from(&port.name);
        }
    }

    #[inline]
    pub(super) fn sign(&mut self, signature: u64) {
        self.last = signature;
        self.fold ^= signature;
    }

    #[inline]
    pub(super) fn count(&mut self, from: u8, len: usize) {
        let direction = &mut self.directions[usize::from(from & 1)];
        direction.packets += 1;
        direction.bytes += len as u64;
    }

    pub(super) fn report(&self, sink: &mut dyn FnMut(Metric)) {
        for direction in &self.directions {
            let from = &direction.port_name;
            sink(Metric::new("packets_forwarded_total", direction.packets).with("from", from));
            sink(Metric::new("bytes_forwarded_total", direction.bytes).with("from", from));
        }
        sink(Metric::new("drops_total", self.forbidden).with("reason", "forbidden_signature"));
        sink(Metric::new("signature_last", self.last & METRIC_MASK));
        sink(Metric::new("signature_fold", self.fold & METRIC_MASK));
    }
}
