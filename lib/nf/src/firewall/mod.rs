//! Firewall: ordered rules between two ports, first match wins.
//!
//! A frame passes to the other port, byte for byte, or is dropped and counted by reason. Rules
//! are read from text close to ipfw's or from maps (`parse`, `entry`), evaluated by `linear` or
//! `classifier`, and may keep states (`states`). See README.md for the manual.

mod cache;
mod carried;
mod claims;
mod classifier;
mod command;
mod config;
mod display;
mod entry;
mod flow;
mod interval;
mod items;
mod linear;
mod metrics;
pub mod packet;
pub mod parse;
mod process;
mod reject;
mod rows;
pub mod rule;
pub mod ruleset;
mod search;
mod space;
mod state;
mod stateful;
mod states;
mod table;
#[cfg(test)]
mod tests;
mod validate;

use crate::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use crate::icmp_error::Limit;
use crate::prefix::Prefix;
use crate::stateful::Stateful;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use cache::FlowCache;
use config::{Config, DefaultPolicy, NonIp};
use metrics::Counters;
use nfluid_ring::{Batch, Outbox};
use ruleset::Ruleset;
use serde_json::Value;
use states::States;

/// States looked at per [`NetworkFunction::tick`] at least; larger tables are swept in 64 calls.
const SWEEP_MIN: usize = 1024;

/// An instance of the firewall.
#[derive(Debug)]
pub struct Firewall {
    default: DefaultPolicy,
    non_ip: NonIp,
    own_addresses: Option<Vec<Prefix>>,
    icmp_errors: bool,
    ruleset: Ruleset,
    /// For long rule lists.
    cache: Option<FlowCache>,
    states: States,
    answers: Limit,
    counters: Counters,
}

/// Builds a firewall between two ports.
///
/// # Errors
/// A rule or key that cannot be used, with its path and, in a text, its line.
pub fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Ok(Box::new(Firewall::new(config, ports)?))
}

impl Firewall {
    fn new(config: &Value, ports: &[PortInfo]) -> Result<Firewall, ConfigError> {
        let config = Config::parse(config, ports)?;
        let keeps = config.rules.iter().map(|rule| rule.keep_state);
        let states = States::new(&config.states, config.seed, keeps);
        let ruleset = Ruleset::new(config.rules);
        Ok(Firewall {
            default: config.default,
            non_ip: config.non_ip,
            own_addresses: config.own_addresses,
            icmp_errors: config.states.icmp_errors,
            states,
            answers: Limit::new(config.reject_rate),
            counters: Counters::new(ports, ruleset.rules().len()),
            cache: ruleset
                .is_long()
                .then(|| FlowCache::new(config.seed, ruleset.rules().len())),
            ruleset,
        })
    }

    /// Counters of the rules that `new` has too, in its order.
    fn counters_for(&self, new: &Ruleset) -> Vec<state::Count> {
        let old = self.ruleset.rules().iter().enumerate();
        let mut by_text: BTreeMap<String, state::Count> = old
            .map(|(index, rule)| (rule.to_string(), self.counters.rule(index)))
            .collect();
        let counts = new
            .rules()
            .iter()
            .map(|rule| by_text.remove(&rule.to_string()));
        counts.map(Option::unwrap_or_default).collect()
    }
}

impl NetworkFunction for Firewall {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        self.handle(now, batch);
        self.states.stir();
    }

    fn tick(&mut self, now: Nanos, _outbox: &mut dyn Outbox) {
        let budget = SWEEP_MIN.max(self.states.capacity() / 64);
        self.states.sweep(now, budget);
    }

    fn has_timers(&self) -> bool {
        self.states.len() > 0
    }

    fn next_tick(&self) -> Nanos {
        self.states.next_sweep()
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        let numbers = self.ruleset.rules().iter().map(|rule| rule.number);
        self.counters.report(numbers, &self.states, sink);
    }

    fn command(&mut self, now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        self.run_command(now, name, args)
    }

    /// An ICMP error comes where the flow is that it quotes.
    fn divides_by_flow(&self) -> Result<(), &'static str> {
        let mut kept = self
            .ruleset
            .rules()
            .iter()
            .filter_map(|rule| rule.keep_state);
        if kept.any(|keep| keep.max.is_some() || keep.max_per_source.is_some()) {
            return Err("a rule limits its states, and that limit is for all flows together");
        }
        Ok(())
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    /// Counters of a rule stay if its number and text do. A state stays if the new rules, asked
    /// about the flow's first packet, keep a state for it.
    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let mut new = Firewall::new(config, ports)?;
        new.states
            .adopt(&self.states, |first| new.ruleset.keeper_of(first));
        let rules = self.counters_for(&new.ruleset);
        new.counters = core::mem::replace(&mut self.counters, Counters::new(ports, 0));
        new.counters.set_rules(rules);
        new.counters.rename(ports);
        *self = new;
        Ok(())
    }
}
