//! Counters, and the signatures themselves: exposed, so that computing them is never optimised away.

use crate::function::{Metric, PortInfo};
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::Forwarded;

/// A metric is an `f64`: 48 bits of a signature survive in it unrounded.
const METRIC_MASK: u64 = (1 << 48) - 1;

/// Counters, and the signatures so far.
#[derive(Debug)]
pub(super) struct Counters {
    /// Frames that went on.
    pub(super) forwarded: Forwarded<2>,
    /// Frames dropped because their signature is forbidden.
    pub(super) forbidden: u64,
    /// Signature of the latest frame.
    pub(super) last: u64,
    /// All signatures so far, folded by exclusive or.
    pub(super) fold: u64,
}

impl Counters {
    pub(super) fn new(ports: &[PortInfo]) -> Counters {
        Counters {
            forwarded: Forwarded::new(ports),
            forbidden: 0,
            last: 0,
            fold: 0,
        }
    }

    #[inline]
    pub(super) fn sign(&mut self, signature: u64) {
        self.last = signature;
        self.fold ^= signature;
    }

    /// Writes all of them into an image.
    pub(super) fn export(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        writer.put(&(self.forbidden, self.last, self.fold));
    }

    /// Adds those of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        let (forbidden, last, fold): (u64, u64, u64) = reader.get()?;
        self.forbidden = self.forbidden.saturating_add(forbidden);
        self.last = last;
        self.fold ^= fold;
        Ok(())
    }

    pub(super) fn report(&self, sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
        sink(
            Metric::new("packets_dropped_total", self.forbidden)
                .with("reason", "forbidden_signature"),
        );
        sink(Metric::new("signature_last", self.last & METRIC_MASK));
        sink(Metric::new("signature_fold", self.fold & METRIC_MASK));
    }
}
