//! What is counted: frames and bytes, per direction. A bridge drops nothing.

use crate::function::{Metric, PortInfo};
use alloc::string::String;

#[derive(Debug, Default)]
struct Direction {
    port_name: String,
    packets: u64,
    bytes: u64,
}

/// The counters of both directions, by arrival port.
#[derive(Debug, Default)]
pub(super) struct Counters([Direction; 2]);

impl Counters {
    pub(super) fn new(ports: &[PortInfo]) -> Counters {
        let mut counters = Counters::default();
        counters.rename(ports);
        counters
    }

    /// Takes the names of the ports for the labels; the counts stay.
    pub(super) fn rename(&mut self, ports: &[PortInfo]) {
        for (direction, port) in self.0.iter_mut().zip(ports) {
            direction.port_name.clone_from(&port.name);
        }
    }

    /// Counts a frame of `len` bytes that arrived on port `from` (0 or 1).
    #[inline]
    pub(super) fn count(&mut self, from: u8, len: usize) {
        let direction = &mut self.0[usize::from(from & 1)];
        direction.packets += 1;
        direction.bytes += len as u64;
    }

    pub(super) fn report(&self, sink: &mut dyn FnMut(Metric)) {
        for direction in &self.0 {
            let from = &direction.port_name;
            sink(Metric::new("packets_forwarded_total", direction.packets).with("from", from));
            sink(Metric::new("bytes_forwarded_total", direction.bytes).with("from", from));
        }
    }
}
