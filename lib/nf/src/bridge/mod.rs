//! Bridge: what arrives on one port leaves, unchanged, on the other.
//!
//! The smallest network function, and the one to copy when writing a new one: `config` is what an
//! operator may say, `process` what happens to a frame, `metrics` what is counted.

mod config;
mod metrics;
mod process;
#[cfg(test)]
mod tests;

use crate::function::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use alloc::boxed::Box;
use config::Config;
use metrics::Counters;
use nfluid_ring::Batch;
use serde_json::Value;

/// An instance of the bridge.
#[derive(Debug)]
pub struct Bridge {
    counters: Counters,
}

/// Builds a bridge between two ports.
///
/// # Errors
/// The configuration has a key: the bridge knows none.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Config::parse(config)?;
    let counters = Counters::new(ports);
    Ok(Box::new(Bridge { counters }))
}

impl NetworkFunction for Bridge {
    fn process(&mut self, _now: Nanos, batch: &mut Batch<'_, '_>) {
        process::forward(batch.frames(), &mut self.counters);
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(sink);
    }

    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        Config::parse(config)?;
        self.counters.rename(ports);
        Ok(())
    }
}
