//! Bridge: what arrives on one port leaves, unchanged, on the other.
//!
//! The smallest network function, and a model for a new one: `config` is the configuration, `process` the processing
//! of a frame; an NF with counters of its own has a `metrics` besides.

mod config;
mod process;
#[cfg(test)]
mod tests;

use crate::function::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::stateful::{OnlyCounts, Reader, StateError, Stateful, Writer};
use crate::traffic::Forwarded;
use alloc::boxed::Box;
use config::Config;
use nfluid_ring::Batch;
use serde_json::Value;

/// An instance of the bridge.
#[derive(Debug)]
pub struct Bridge {
    forwarded: Forwarded<2>,
}

/// Builds a bridge between two ports.
///
/// # Errors
/// The configuration has a key: the bridge knows none.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Config::parse(config)?;
    let forwarded = Forwarded::new(ports);
    Ok(Box::new(Bridge { forwarded }))
}

impl NetworkFunction for Bridge {
    fn process(&mut self, _now: Nanos, batch: &mut Batch<'_, '_>) {
        process::forward(batch.frames(), &mut self.forwarded);
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.forwarded.report(sink);
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        Config::parse(config)?;
        self.forwarded.rename(ports);
        Ok(())
    }
}

impl OnlyCounts for Bridge {
    const VERSION: u16 = 1;

    fn write_counts(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
    }

    fn add_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)
    }
}
