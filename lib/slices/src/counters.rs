//! Counters of frames and results.

use nfluid_nf::stateful::{Reader, StateError, Writer};
use nfluid_nf::traffic::Forwarded;
use nfluid_nf::{Metric, PortInfo};

/// Why a frame for the slices is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// It is no message.
    Malformed,
    /// The checksum is wrong.
    BadChecksum,
    /// It is for a slice that the instance does not have.
    NoSuchSlice,
    /// The piece does not lie within the interval's input.
    OutOfRange,
    /// The piece, or a part of it, has come before.
    Twice,
    /// The interval is over.
    Late,
    /// The engine does not run.
    NotStarted,
}

impl Drop {
    const ALL: [(Drop, &str); 7] = [
        (Drop::Malformed, "malformed"),
        (Drop::BadChecksum, "bad_checksum"),
        (Drop::NoSuchSlice, "no_such_slice"),
        (Drop::OutOfRange, "out_of_range"),
        (Drop::Twice, "duplicate"),
        (Drop::Late, "late"),
        (Drop::NotStarted, "not_started"),
    ];
}

/// Counters of frames; those of intervals are in each slice.
#[derive(Debug)]
pub struct Counters {
    /// Frames that pass.
    pub forwarded: Forwarded<2>,
    /// Frames whose samples were taken.
    pub taken: u64,
    drops: [u64; Drop::ALL.len()],
    /// Results that were sent.
    pub sent: u64,
    /// Results for which the port had no room, or that are longer than its MTU.
    pub unsent: u64,
}

impl Counters {
    pub fn new(ports: &[PortInfo]) -> Self {
        Counters {
            forwarded: Forwarded::new(ports),
            taken: 0,
            drops: [0; Drop::ALL.len()],
            sent: 0,
            unsent: 0,
        }
    }

    pub fn drop(&mut self, reason: Drop) {
        self.drops[reason as usize] += 1;
    }

    /// Writes all of them into an image.
    pub fn export(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        writer.put(&(self.taken, self.drops, self.sent, self.unsent));
    }

    /// Adds those of an image.
    pub fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        let (taken, drops, sent, unsent): (u64, [u64; Drop::ALL.len()], u64, u64) = reader.get()?;
        for (own, other) in self.drops.iter_mut().zip(drops) {
            *own = own.saturating_add(other);
        }
        for (own, other) in [
            (&mut self.taken, taken),
            (&mut self.sent, sent),
            (&mut self.unsent, unsent),
        ] {
            *own = own.saturating_add(other);
        }
        Ok(())
    }

    pub fn report(&self, sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
        sink(Metric::new("packets_taken_total", self.taken));
        for (reason, name) in Drop::ALL {
            let count = self.drops[reason as usize];
            sink(Metric::new("packets_dropped_total", count).with("reason", name));
        }
        sink(Metric::new("results_sent_total", self.sent));
        sink(Metric::new("results_unsent_total", self.unsent));
    }
}
