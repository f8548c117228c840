//! Counters of the mirror.

use super::capture::Capture;
use crate::function::{Metric, PortInfo};
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::Forwarded;

/// All counters of the mirror.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) forwarded: Forwarded<2>,
    /// Matching frames of which a copy was made.
    pub(super) copied: u64,
    /// Matching frames beyond the rate: not copied.
    pub(super) over_rate: u64,
    /// Copies for which the outbox had no room.
    pub(super) unsent: u64,
    /// Frames that arrived on the mirror port: dropped.
    pub(super) from_mirror_port: u64,
}

impl Counters {
    pub(super) fn new(ports: &[PortInfo]) -> Counters {
        Counters {
            forwarded: Forwarded::new(ports),
            copied: 0,
            over_rate: 0,
            unsent: 0,
            from_mirror_port: 0,
        }
    }

    /// Writes all of them into an image.
    pub(super) fn export(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        writer.counters(&[
            self.copied,
            self.over_rate,
            self.unsent,
            self.from_mirror_port,
        ]);
    }

    /// Adds those of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        reader.counters([
            &mut self.copied,
            &mut self.over_rate,
            &mut self.unsent,
            &mut self.from_mirror_port,
        ])
    }

    pub(super) fn report(&self, capture: &Capture, sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
        sink(Metric::new("copies_total", self.copied));
        for (reason, count) in [
            ("rate", self.over_rate),
            ("no_room", self.unsent),
            ("overwritten", capture.overwritten),
        ] {
            sink(Metric::new("copies_lost_total", count).with("reason", reason));
        }
        sink(Metric::new("captured_frames", capture.len() as u64));
        sink(
            Metric::new("packets_dropped_total", self.from_mirror_port)
                .with("reason", "from_mirror_port"),
        );
    }
}
