//! Counter: passes every frame and counts ethertypes, protocols, sizes.

mod metrics;
#[cfg(test)]
mod tests;

use crate::config::{self, NoKeys};
use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::stateful::{OnlyCounts, Reader, StateError, Stateful, Writer};
use crate::traffic::{Forwarded, OnWire};
use alloc::boxed::Box;
use alloc::string::String;
use metrics::Tally;
use nfluid_ring::Batch;
use serde_json::{Value, json};

/// An instance of the counter.
#[derive(Debug)]
pub struct Counter {
    forwarded: Forwarded<2>,
    tally: Tally,
}

/// Builds a counter between two ports.
///
/// # Errors
/// The configuration has a key: the counter knows none.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    config::parse::<NoKeys>(config)?;
    Ok(Box::new(Counter {
        forwarded: Forwarded::new(ports),
        tally: Tally::default(),
    }))
}

impl NetworkFunction for Counter {
    fn process(&mut self, _now: Nanos, batch: &mut Batch<'_, '_>) {
        for frame in batch.frames() {
            let from = frame.in_port() & 1;
            self.forwarded.count(from, OnWire::of(frame));
            self.tally.count(frame);
            frame.send(from ^ 1);
        }
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
        self.tally.report(sink);
    }

    fn command(&mut self, _now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        match (name, args) {
            ("reset", []) => {
                self.tally = Tally::default();
                Ok(json!({ "reset": true }))
            }
            ("reset", _) => Err(CommandError::BadArgument("reset takes no argument".into())),
            _ => Err(CommandError::Unknown(&["reset"])),
        }
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        config::parse::<NoKeys>(config)?;
        self.forwarded.rename(ports);
        Ok(())
    }
}

impl OnlyCounts for Counter {
    const VERSION: u16 = 1;

    fn write_counts(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        self.tally.export(writer);
    }

    fn add_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        self.tally.import(reader)
    }
}
