//! VLAN: adds, removes or translates 802.1Q and 802.1ad tags between an access and a trunk port.

mod config;
mod metrics;
mod process;
#[cfg(test)]
mod tests;

use crate::function::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::stateful::{OnlyCounts, Reader, StateError, Stateful, Writer};
use alloc::boxed::Box;
use config::Rules;
use metrics::Counters;
use nfluid_ring::Batch;
use serde_json::Value;

/// An instance of the VLAN NF.
#[derive(Debug)]
pub struct Vlan {
    rules: Rules,
    counters: Counters,
}

/// Builds a VLAN NF between port 0 (access) and port 1 (trunk).
///
/// # Errors
/// Neither or both of `push` and `translate`, or a value out of range, with its key.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Ok(Box::new(Vlan {
        rules: Rules::parse(config)?,
        counters: Counters::new(ports),
    }))
}

impl NetworkFunction for Vlan {
    fn process(&mut self, _now: Nanos, batch: &mut Batch<'_, '_>) {
        process::forward(batch, &self.rules, &mut self.counters);
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(sink);
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        self.rules = Rules::parse(config)?;
        self.counters.forwarded.rename(ports);
        Ok(())
    }
}

impl OnlyCounts for Vlan {
    const VERSION: u16 = 1;

    fn write_counts(&self, writer: &mut Writer) {
        self.counters.export(writer);
    }

    fn add_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.counters.import(reader)
    }
}
