//! A guest image that does nothing, for measurements: it forwards no frame.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use nfluid_nf::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_ring::Batch;
use serde_json::Value;

nfluid_guest::main!(|_name, _config, _ports| Ok(Box::new(Noop)));

struct Noop;

impl NetworkFunction for Noop {
    fn process(&mut self, _now: Nanos, _batch: &mut Batch<'_, '_>) {}

    fn metrics(&self, _sink: &mut dyn FnMut(Metric)) {}

    fn reconfigure(&mut self, _config: &Value, _ports: &[PortInfo]) -> Result<(), ConfigError> {
        Ok(())
    }
}
