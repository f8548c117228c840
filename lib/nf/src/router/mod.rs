//! Router: IPv4 and IPv6 forwarding by the standards (RFC 1812, RFC 8200, RFC 4443, RFC 4861).
//!
//! - `fast`: the path of plain packets, batch by batch: check, look up, rewrite, send.
//! - `slow`: all other frames, one by one: malformed, for the router itself, too large, expired, or for a neighbour
//!   whose Ethernet address is not known.
//! - `fib`, `lpm4`, `lpm6`, `hops`: routes and where they lead.
//! - `link`, `neighbour`, `arp`, `nd`: the way to the next hop's Ethernet address.
//! - `icmp`, `redirect`, `local`, `options`, `extensions`, `mld`: the router's own messages and answers.
//!
//! See the README of this folder for configuration keys, commands, metrics and limits.

mod arp;
mod commands;
mod config;
mod extensions;
mod fast;
mod fib;
mod forward;
mod hops;
mod icmp;
mod link;
mod local;
mod lpm4;
mod lpm6;
mod metrics;
mod mld;
mod nd;
mod neighbour;
mod options;
mod reconfigure;
mod redirect;
mod route_list;
mod routes_text;
mod slow;
mod stateful;
#[cfg(test)]
mod tests;

use crate::bucket::{Bucket, Rate};
use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::stateful::Stateful;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use config::{Config, PORTS_MAX, Port, SourceRouted};
use fast::OwnAddresses;
use fib::Fib;
use metrics::Counters;
use neighbour::{Limits, Neighbours, State};
use nfluid_ring::{Batch, Outbox};
use serde_json::Value;

/// An instance of the router.
#[derive(Debug)]
pub struct Router {
    ports: Vec<Port>,
    own: OwnAddresses,
    fib: Fib,
    neighbours: Neighbours,
    limits: Limits,
    icmp_rate: Rate,
    source_routed: SourceRouted,
    /// Notifies hosts of nearer routers, if true.
    redirects: bool,
    /// Per port of arrival, so that one link's senders cannot use up another's.
    icmp_budget: [Bucket; PORTS_MAX],
    /// The budget of redirects of each port.
    redirect_budget: [Bucket; PORTS_MAX],
    /// Per port, new addresses to ask for.
    ask_budget: [Bucket; PORTS_MAX],
    /// Per port, new neighbours to learn from their questions.
    learn_budget: [Bucket; PORTS_MAX],
    /// Identification of the next packet that the router makes.
    ident: u16,
    /// The next tick announces the router's addresses to all links, if true.
    announce: bool,
    /// By port, when it reports its multicast groups.
    reports: [mld::Due; PORTS_MAX],
    counters: Counters,
    /// Room for a fragment, or another packet that is made of a frame: the largest that any port carries.
    room: Vec<u8>,
}

/// Builds a router.
///
/// # Errors
/// The path of the first key, or line of `routes_text`, that cannot be used.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Ok(Box::new(Router::new(Config::parse(config, ports)?)))
}

impl NetworkFunction for Router {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        self.forward_batch(now, batch);
    }

    fn tick(&mut self, now: Nanos, outbox: &mut dyn Outbox) {
        if core::mem::take(&mut self.announce) {
            self.announce_addresses(outbox);
            self.report_soon(now);
        }
        self.send_reports(now, outbox);
        self.age_neighbours(now, outbox);
    }

    fn has_timers(&self) -> bool {
        let mut neighbours = self.neighbours.iter();
        self.announce
            || self.next_report().is_some()
            || neighbours.any(|(.., neighbour)| neighbour.state != State::Permanent)
    }

    fn next_tick(&self) -> Nanos {
        if self.announce {
            return Nanos(0);
        }
        let neighbours = self.neighbours.iter();
        let ends = neighbours.filter_map(|(.., neighbour)| neighbour.next_tick());
        let ends = ends.chain(self.next_report());
        ends.min().unwrap_or(Nanos(u64::MAX))
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.report_counters(sink);
        self.report_gauges(sink);
    }

    fn command(&mut self, now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        self.run_command(now, name, args)
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Err("its neighbours are one table, and answers of theirs arrive on any queue")
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let config = Config::parse(config, ports)?;
        self.apply(config);
        Ok(())
    }
}
