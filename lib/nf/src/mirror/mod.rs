//! Mirror: passes everything, and copies what matches to a third port, to memory, or both.

mod capture;
mod config;
mod metrics;
mod selection;
#[cfg(test)]
mod tests;

use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::stateful::{OnlyCounts, Reader, StateError, Stateful, Writer};
use crate::traffic::OnWire;
use alloc::boxed::Box;
use alloc::string::String;
use capture::Capture;
use config::Config;
use metrics::Counters;
use nfluid_ring::{Batch, Frame, Offload, Outbox, frame_at};
use serde_json::{Value, json};

/// Index of the optional port that gets copies.
const MIRROR: u8 = 2;

/// An instance of the mirror.
#[derive(Debug)]
pub struct Mirror {
    config: Config,
    capture: Capture,
    allowance: Allowance,
    counters: Counters,
    has_mirror_port: bool,
}

/// Builds a mirror between ports 0 and 1, with port 2, if there is one, for copies.
///
/// # Errors
/// A bad prefix, port or bound, with its key.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    let config = Config::parse(config)?;
    Ok(Box::new(Mirror {
        capture: Capture::new(config.memory_bytes),
        allowance: Allowance::full(config.rate),
        config,
        counters: Counters::new(ports),
        has_mirror_port: ports.len() > usize::from(MIRROR),
    }))
}

/// Copies that may still be made: a token bucket of one second's worth, in billionths of a copy. The copy of a
/// super-frame is as many as it has packets, and may leave the bucket with a debt.
#[derive(Debug)]
struct Allowance {
    tokens: i64,
    filled: Nanos,
}

const UNITS_PER_COPY: i64 = 1_000_000_000;

impl Allowance {
    fn full(rate: u32) -> Allowance {
        Allowance {
            tokens: i64::from(rate) * UNITS_PER_COPY,
            filled: Nanos(0),
        }
    }

    fn refill(&mut self, now: Nanos, rate: u32) {
        let grown = u64::from(rate).saturating_mul(now.since(self.filled).0);
        let grown = i64::try_from(grown).unwrap_or(i64::MAX);
        let most = i64::from(rate) * UNITS_PER_COPY;
        self.tokens = self.tokens.saturating_add(grown).min(most);
        self.filled = self.filled.max(now);
    }

    /// Takes the copies of a frame of so many packets, if one is left.
    fn take(&mut self, packets: u64) -> bool {
        let allowed = self.tokens >= UNITS_PER_COPY;
        if allowed {
            self.tokens -= packets as i64 * UNITS_PER_COPY;
        }
        allowed
    }
}

impl Mirror {
    /// Copies a matching frame as far as the bounds allow.
    fn copy(&mut self, now: Nanos, frame: &Frame<'_>, outbox: &mut dyn Outbox) {
        let packets = OnWire::of(frame).packets();
        if !self.allowance.take(packets) {
            self.counters.over_rate += packets;
            return;
        }
        let copy = &frame.bytes()[..frame.len().min(self.config.snaplen)];
        self.counters.copied += packets;
        // Nothing can be done any more to a copy that is cut off.
        let offload = match copy.len() == frame.len() {
            true => frame.offload(),
            false => Offload::NONE,
        };
        if self.has_mirror_port && !outbox.emit_offload(MIRROR, copy, offload) {
            self.counters.unsent += packets;
        }
        if self.config.memory_bytes > 0 {
            self.capture.record(now, copy, frame.len());
        }
    }
}

impl NetworkFunction for Mirror {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        self.allowance.refill(now, self.config.rate);
        let (frames, outbox) = batch.split();
        for at in 0..frames.len() {
            let (frame, mut outbox) = frame_at(frames, at, outbox);
            let from = frame.in_port();
            if from >= MIRROR {
                self.counters.from_mirror_port += OnWire::of(frame).packets();
                frame.discard();
                continue;
            }
            // Copies are chosen by the headers that a frame has on a wire. A super-frame of which no packets can be made
            // is chosen by the headers that it has.
            let _has_no_packets = frame.settle();
            if self.config.selection.matches(from, frame.bytes()) {
                self.copy(now, frame, &mut outbox);
            }
            self.counters.forwarded.count(from, OnWire::of(frame));
            frame.send(from ^ 1);
        }
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(&self.capture, sink);
    }

    fn command(&mut self, now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        match name {
            "pcap" => {
                let request = capture::Request::parse(args)?;
                Ok(self.capture.answer(now, &request, self.config.snaplen))
            }
            "clear" if args.is_empty() => {
                let frames = self.capture.clear();
                Ok(json!({ "cleared": frames }))
            }
            "clear" => Err(CommandError::BadArgument("clear takes no argument".into())),
            _ => Err(CommandError::Unknown(&["clear", "pcap"])),
        }
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Err("its capture and its limits are for all flows together")
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    /// Captured frames stay as far as the new bound reaches.
    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let config = Config::parse(config)?;
        self.capture.set_bound(config.memory_bytes);
        self.has_mirror_port = ports.len() > usize::from(MIRROR);
        self.counters.forwarded.rename(ports);
        self.config = config;
        Ok(())
    }
}

impl OnlyCounts for Mirror {
    const VERSION: u16 = 1;

    fn write_counts(&self, writer: &mut Writer) {
        self.counters.export(writer);
    }

    fn add_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.counters.import(reader)
    }
}
