//! Counters of the limiter.

use super::bucket::Colour;
use super::meter::Meter;
use crate::function::{Metric, PortInfo};
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::{Forwarded, OnWire};

const COLOURS: [(Colour, &str); 3] = [
    (Colour::Green, "green"),
    (Colour::Yellow, "yellow"),
    (Colour::Red, "red"),
];
const DIRECTIONS: [&str; 2] = ["forward", "reverse"];

/// All counters of the limiter.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub(super) forwarded: Forwarded<2>,
    /// Packets and bytes by arrival port and colour.
    colours: [[(u64, u64); 3]; 2],
    /// Yellow packets that got another code point.
    pub(super) marked: u64,
}

impl Counters {
    pub(super) fn new(ports: &[PortInfo]) -> Counters {
        Counters {
            forwarded: Forwarded::new(ports),
            colours: [[(0, 0); 3]; 2],
            marked: 0,
        }
    }

    #[inline]
    pub(super) fn coloured(&mut self, from: u8, colour: Colour, frame: OnWire) {
        let (packets, bytes) = &mut self.colours[usize::from(from & 1)][colour as usize];
        *packets += frame.packets();
        *bytes += frame.bytes();
    }

    /// Writes all of them into an image.
    pub(super) fn export(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        for (packets, bytes) in self.colours.iter().flatten() {
            writer.counters(&[*packets, *bytes]);
        }
        writer.counters(&[self.marked]);
    }

    /// Adds those of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        for (packets, bytes) in self.colours.iter_mut().flatten() {
            reader.counters([packets, bytes])?;
        }
        reader.counters([&mut self.marked])
    }

    pub(super) fn report(&self, meters: &[Option<Meter>; 2], sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
        let mut red = 0;
        for (direction, counts) in DIRECTIONS.into_iter().zip(&self.colours) {
            for (colour, name) in COLOURS {
                let (packets, bytes) = counts[colour as usize];
                let labelled =
                    |metric: Metric| metric.with("direction", direction).with("colour", name);
                sink(labelled(Metric::new("colour_packets_total", packets)));
                sink(labelled(Metric::new("colour_bytes_total", bytes)));
            }
            red += counts[Colour::Red as usize].0;
        }
        sink(Metric::new("packets_dropped_total", red).with("reason", "red"));
        sink(Metric::new("packets_marked_total", self.marked));
        for (direction, meter) in DIRECTIONS.into_iter().zip(meters) {
            let Some(meter) = meter else {
                continue;
            };
            let labelled = |metric: Metric| metric.with("direction", direction);
            sink(labelled(Metric::new("prefixes", meter.prefixes() as u64)));
            sink(labelled(Metric::new(
                "prefix_table_full_total",
                meter.crowded,
            )));
        }
    }
}
