//! Signature: hashes the first 64 bytes of every frame, drops forbidden hashes, forwards the rest.
//!
//! The tiny NF of the literature on massive numbers of NFs: work that touches the packet and fits
//! one cache line.

mod config;
mod hash;
mod metrics;
mod process;
#[cfg(test)]
mod tests;

use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::stateful::{OnlyCounts, Reader, StateError, Stateful, Writer};
use alloc::boxed::Box;
use alloc::string::String;
use config::{Config, Forbidden};
use metrics::Counters;
use nfluid_ring::Batch;
use serde_json::{Value, json};

pub use hash::{SIGNED_BYTES, signature};

/// An instance of the signature NF.
#[derive(Debug)]
pub struct Signature {
    rounds: u32,
    forbidden: Forbidden,
    counters: Counters,
}

/// Builds a signature NF between two ports.
///
/// # Errors
/// An unknown key, a signature that is not hexadecimal, or too many of them or of rounds.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    let config = Config::parse(config)?;
    Ok(Box::new(Signature {
        rounds: config.rounds()?,
        forbidden: config.forbidden()?,
        counters: Counters::new(ports),
    }))
}

impl NetworkFunction for Signature {
    fn process(&mut self, _now: Nanos, batch: &mut Batch<'_, '_>) {
        let Signature {
            rounds,
            forbidden,
            counters,
        } = self;
        process::forward(batch.frames(), *rounds, forbidden, counters);
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(sink);
    }

    fn command(
        &mut self,
        _now: Nanos,
        name: &str,
        _args: &[String],
    ) -> Result<Value, CommandError> {
        match name {
            "signature" => Ok(json!({
                "last": alloc::format!("{:#018x}", self.counters.last),
                "fold": alloc::format!("{:#018x}", self.counters.fold),
            })),
            _ => Err(CommandError::Unknown(&["signature"])),
        }
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let config = Config::parse(config)?;
        let rounds = config.rounds()?;
        self.forbidden = config.forbidden()?;
        self.rounds = rounds;
        self.counters.forwarded.rename(ports);
        Ok(())
    }
}

impl OnlyCounts for Signature {
    const VERSION: u16 = 1;

    fn write_counts(&self, writer: &mut Writer) {
        self.counters.export(writer);
    }

    fn add_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.counters.import(reader)
    }
}
