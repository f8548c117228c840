//! Frames and bytes forwarded, by arrival port: what every network function reports alike.

use crate::function::{Metric, PortInfo};
use crate::stateful::{Reader, StateError, Writer};
use alloc::string::String;

#[derive(Clone, Debug, Default)]
struct Arrivals {
    port_name: String,
    packets: u64,
    bytes: u64,
}

/// Counters of forwarded frames of an NF with `PORTS` ports.
#[derive(Clone, Debug)]
pub struct Forwarded<const PORTS: usize>([Arrivals; PORTS]);

impl<const PORTS: usize> Forwarded<PORTS> {
    /// Counters at zero, labelled with the names of `ports`.
    pub fn new(ports: &[PortInfo]) -> Self {
        let mut counters = Forwarded(core::array::from_fn(|_| Arrivals::default()));
        counters.rename(ports);
        counters
    }

    /// Takes new names of the ports; the counts stay.
    pub fn rename(&mut self, ports: &[PortInfo]) {
        for (arrivals, port) in self.0.iter_mut().zip(ports) {
            arrivals.port_name.clone_from(&port.name);
        }
    }

    /// Counts a frame of `len` bytes that arrived on port `from` and is sent on.
    #[inline]
    pub fn count(&mut self, from: u8, len: usize) {
        if let Some(arrivals) = self.0.get_mut(usize::from(from)) {
            arrivals.packets += 1;
            arrivals.bytes += len as u64;
        }
    }

    /// Writes the counts into an image.
    pub fn export(&self, writer: &mut Writer) {
        writer.list(self.0.iter().map(|from| (from.packets, from.bytes)));
    }

    /// Adds the counts of an image.
    ///
    /// # Errors
    /// The counters are of another number of ports.
    pub fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        let mut arrivals = self.0.iter_mut();
        reader.list(|(packets, bytes): (u64, u64)| {
            let from = arrivals.next().ok_or("counts of more ports")?;
            from.packets = from.packets.saturating_add(packets);
            from.bytes = from.bytes.saturating_add(bytes);
            Ok(())
        })
    }

    /// Reports `packets_forwarded_total` and `bytes_forwarded_total` with the label `from`.
    pub fn report(&self, sink: &mut dyn FnMut(Metric)) {
        for arrivals in &self.0 {
            let from = &arrivals.port_name;
            sink(Metric::new("packets_forwarded_total", arrivals.packets).with("from", from));
            sink(Metric::new("bytes_forwarded_total", arrivals.bytes).with("from", from));
        }
    }
}
