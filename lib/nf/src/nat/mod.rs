//! NAPT44: many inside hosts behind few external addresses, by RFC 4787 (UDP), RFC 5382 (TCP),
//! RFC 5508 (ICMP) and their update RFC 7857.
//!
//! Port 0 is inside, port 1 outside. The NAT is a bump in the wire: it decrements no TTL and, but
//! for what `neighbour` says, changes no hardware address; a router beside it routes.
//!
//! `config`, `forward`: what an operator may say. `packet`: what a frame is. `state`,
//! `ports`, `room`, `sweep`: who is mapped to what, and how it ends. `translate`, `icmp`,
//! `fragment`, `itself`: what a packet gets. `rewrite`: the bytes. `process`: a batch.

mod clock;
mod command;
mod config;
mod endpoint;
mod forward;
mod fragment;
mod icmp;
mod itself;
mod metrics;
mod neighbour;
mod packet;
mod ports;
mod process;
mod rewrite;
mod room;
mod state;
mod stateful;
mod sweep;
#[cfg(test)]
mod tests;
mod translate;

use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::seed;
use crate::stateful::Stateful;
use alloc::boxed::Box;
use alloc::string::String;
use clock::Tenths;
use config::Config;
use fragment::Fragments;
use metrics::Counters;
use nfluid_ring::{Batch, Outbox};
use nfluid_wire::MacAddr;
use serde_json::Value;
use state::State;

/// An instance of the NAT.
#[derive(Debug)]
pub struct Nat {
    state: State,
    fragments: Fragments,
    counters: Counters,
    /// Hardware addresses of the inside and the outside port.
    macs: [MacAddr; 2],
    seed: u64,
}

/// Builds a NAT between port 0 (inside) and port 1 (outside).
///
/// # Errors
/// A configuration that does not parse, with the key; see the README for the keys.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    let config = Config::parse(config)?;
    let macs = macs(ports)?;
    let seed = config
        .seed
        .unwrap_or_else(|| seed::from_surroundings(ports));
    Ok(Box::new(Nat {
        fragments: Fragments::new(config.fragments_max),
        state: State::new(config, seed),
        counters: Counters::new(ports),
        macs,
        seed,
    }))
}

fn macs(ports: &[PortInfo]) -> Result<[MacAddr; 2], ConfigError> {
    match ports {
        [inside, outside] => Ok([inside.mac, outside.mac]),
        _ => Err(ConfigError::at(
            "ports",
            "nat takes 2 ports: inside, outside",
        )),
    }
}

impl NetworkFunction for Nat {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        self.state.stir(now.0);
        self.process_batch(Tenths::of(now), batch);
        self.state.hands.begin_again();
    }

    fn tick(&mut self, now: Nanos, _outbox: &mut dyn Outbox) {
        self.state.sweep(Tenths::of(now));
    }

    fn has_timers(&self) -> bool {
        self.state.mappings.len() > 0 || self.state.hosts.len() > 0
    }

    fn next_tick(&self) -> Nanos {
        self.state.next_sweep()
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(&self.state, sink);
    }

    fn command(&mut self, now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        self.state.hands.begin_again();
        command::run(&mut self.state, Tenths::of(now), name, args)
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Err("its bindings and ports are one table")
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    /// Sessions whose external address and port are still in the pool go on.
    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let config = Config::parse(config)?;
        self.macs = macs(ports)?;
        self.seed = config.seed.unwrap_or(self.seed);
        self.fragments = Fragments::new(config.fragments_max);
        let next = State::new(config, self.seed);
        let before = core::mem::replace(&mut self.state, next);
        self.state.adopt(&before);
        self.counters.forwarded.rename(ports);
        Ok(())
    }
}
