//! Counters of the VLAN function.

use crate::function::{Metric, PortInfo};
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::{Forwarded, OnWire};

/// The reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    /// With the tag, the frame would exceed the longest frame.
    TooLong,
    /// Another tag than the expected tag, or no tag.
    Unmatched,
    /// The frame ends within a tag.
    Malformed,
}

const REASONS: [&str; 3] = ["too_long", "unmatched", "malformed"];

/// All counters of the VLAN NF.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) forwarded: Forwarded<2>,
    /// Packets whose tags were changed, and those that passed as they were.
    pub(super) changed: u64,
    pub(super) unchanged: u64,
    drops: [u64; REASONS.len()],
}

impl Counters {
    pub(super) fn new(ports: &[PortInfo]) -> Counters {
        Counters {
            forwarded: Forwarded::new(ports),
            changed: 0,
            unchanged: 0,
            drops: [0; REASONS.len()],
        }
    }

    pub(super) fn dropped(&mut self, reason: DropReason, frame: OnWire) {
        self.drops[reason as usize] += frame.packets();
    }

    /// Writes all of them into an image.
    pub(super) fn export(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        writer.counters(&[self.changed, self.unchanged]);
        writer.counters(&self.drops);
    }

    /// Adds those of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        reader.counters([&mut self.changed, &mut self.unchanged])?;
        reader.counters(&mut self.drops)
    }

    pub(super) fn report(&self, sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
        sink(Metric::new("packets_changed_total", self.changed));
        sink(Metric::new("packets_unchanged_total", self.unchanged));
        for (name, count) in REASONS.into_iter().zip(self.drops) {
            sink(Metric::new("packets_dropped_total", count).with("reason", name));
        }
    }
}
