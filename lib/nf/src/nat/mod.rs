//! NAPT44: many inside hosts behind few external addresses, by RFC 4787 (UDP), RFC 5382 (TCP),
//! RFC 5508 (ICMP) and their update RFC 7857.
//!
//! Port 0 is inside, port 1 outside. The NAT is a bump in the wire: it decrements no TTL and, but
//! for what `neighbour` says, changes no hardware address; a router beside it routes.
//!
//! `config`, `forward`: the configuration. `packet`: the kinds of frames. `state`, `ports`, `room`, `sweep`:
//! mappings, from their making to their end. `translate`, `icmp`, `fragment`, `waiting`, `itself`, `refusal`,
//! `large`: the treatment of a packet. `rewrite`, `ident`: the bytes. `process`: a batch.

mod clock;
mod command;
mod config;
mod endpoint;
mod forward;
mod fragment;
mod icmp;
mod ident;
mod itself;
mod large;
mod metrics;
mod neighbour;
mod packet;
mod ports;
mod process;
mod refusal;
mod rewrite;
mod room;
mod state;
mod stateful;
mod sweep;
#[cfg(test)]
mod tests;
mod translate;
mod waiting;

use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::icmp_error::Limit;
use crate::seed;
use crate::stateful::Stateful;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use clock::Tenths;
use config::Config;
use fragment::Fragments;
use ident::Idents;
use large::Mtus;
use metrics::{Counters, DropReason};
use nfluid_ring::{Batch, Outbox};
use nfluid_wire::MacAddr;
use serde_json::Value;
use state::State;
use waiting::Waiting;

/// An instance of the NAT.
#[derive(Debug)]
pub struct Nat {
    state: State,
    fragments: Fragments,
    /// By port of arrival.
    waiting: [Waiting; 2],
    /// By port of arrival.
    error_limits: [Limit; 2],
    idents: Idents,
    counters: Counters,
    /// Hardware addresses of the inside and the outside port.
    macs: [MacAddr; 2],
    mtus: Mtus,
    /// Room for a fragment: see [`Mtus::room`].
    room: Vec<u8>,
    seed: u64,
}

/// Builds a NAT between port 0 (inside) and port 1 (outside).
///
/// # Errors
/// A configuration that does not parse, with the key; see the README for the keys.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    let config = Config::parse(config)?;
    let (macs, mtus) = addresses_and_mtus(ports)?;
    let seed = config
        .seed
        .unwrap_or_else(|| seed::from_surroundings(ports));
    Ok(Box::new(Nat {
        fragments: Fragments::new(config.fragments_max),
        waiting: waiting(&config),
        error_limits: error_limits(&config),
        idents: Idents::new(),
        state: State::new(config, seed),
        counters: Counters::new(ports),
        macs,
        room: mtus.room(),
        mtus,
        seed,
    }))
}

fn waiting(config: &Config) -> [Waiting; 2] {
    [(); 2].map(|()| Waiting::new(config.fragments_waiting))
}

fn error_limits(config: &Config) -> [Limit; 2] {
    [(); 2].map(|()| Limit::new(config.icmp_errors))
}

fn addresses_and_mtus(ports: &[PortInfo]) -> Result<([MacAddr; 2], Mtus), ConfigError> {
    match ports {
        [inside, outside] => Ok(([inside.mac, outside.mac], Mtus::new(inside, outside))),
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
        let late: u64 = self
            .waiting
            .iter_mut()
            .map(|side| side.expire(Tenths::of(now)))
            .sum();
        self.counters
            .dropped_many(DropReason::FragmentExpired, late);
    }

    fn has_timers(&self) -> bool {
        let has_entries = self.state.mappings.len() > 0 || self.state.hosts.len() > 0;
        has_entries || self.waiting.iter().any(|side| side.len() > 0)
    }

    fn next_tick(&self) -> Nanos {
        let ends = self.waiting.iter().filter_map(Waiting::next_end);
        ends.map(Tenths::nanos)
            .fold(self.state.next_sweep(), Nanos::min)
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(&self.state, sink);
        let waiting = self.waiting.iter().map(|side| side.len() as u64).sum();
        sink(Metric::new("fragments_waiting", waiting));
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
        (self.macs, self.mtus) = addresses_and_mtus(ports)?;
        self.room = self.mtus.room();
        self.seed = config.seed.unwrap_or(self.seed);
        self.fragments = Fragments::new(config.fragments_max);
        self.error_limits = error_limits(&config);
        let before = core::mem::replace(&mut self.waiting, waiting(&config));
        let lost = before.iter().map(|side| side.len() as u64).sum();
        self.counters
            .dropped_many(DropReason::FragmentExpired, lost);
        let next = State::new(config, self.seed);
        let before = core::mem::replace(&mut self.state, next);
        self.state.adopt(&before);
        self.counters.forwarded.rename(ports);
        Ok(())
    }
}
