//! `nf: elb`: services and their servers.

mod checks;
mod config;
mod figures;
mod finding;
mod load;
mod services;

use crate::error::broken;
use crate::figures::{Exits, named};
use crate::function::{Changed, Context, Entry, FastFunction, FunctionConfig, Site, Waker};
use crate::placement::ingress_only;
use crate::record::{Numbers, Record};
use checks::Checks;
use config::BalancerConfig;
use finding::{Finding, Findings};
use load::{Loads, Reading};
use nfluid_api::types::{EventKind, FastPathStatus};
use nfluid_control::apply::PlatformError;
use nfluid_control::fast::Direction;
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_netdev::Place;
use serde_json::Value;
use services::{Balancing, Weight};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The entry of the catalogue.
pub const ENTRY: Entry = Entry {
    name: "elb",
    has_slow_path: false,
    check_attach: |attach| match attach.direction {
        Direction::Egress => Err(ingress_only("elb")),
        Direction::Ingress => Ok(()),
    },
    parse: |config| Ok(Box::new(config::parse(config)?)),
};

/// A running balancer, with the threads that monitor its servers.
struct Elb {
    balancing: Balancing,
    /// The findings of the threads.
    findings: (Sender<Finding>, Receiver<Finding>),
    checks: Option<Checks>,
    loads: Option<Loads>,
}

impl FunctionConfig for BalancerConfig {
    fn sizes(&self) -> Vec<u32> {
        vec![self.connections]
    }

    fn number(&self, numbers: &mut Numbers) -> anyhow::Result<()> {
        services::number(self, numbers)
    }

    fn load(
        &self,
        site: &Site<'_>,
        numbers: &mut Numbers,
    ) -> Result<Box<dyn FastFunction>, PlatformError> {
        Ok(Box::new(Elb::load(self, site.pins, numbers)?))
    }
}

impl Elb {
    fn load(
        config: &BalancerConfig,
        pins: &Path,
        numbers: &mut Numbers,
    ) -> Result<Self, PlatformError> {
        Ok(Elb {
            balancing: Balancing::load(config, pins, numbers).map_err(broken)?,
            findings: channel(),
            checks: None,
            loads: None,
        })
    }

    fn note(&mut self, finding: Finding, context: &mut Context<'_>) {
        match finding {
            Finding::Server { key, down } => self.note_server(&key, down.as_deref(), context),
            Finding::Load { key, reading } => self.note_load(&key, reading, context),
        }
    }

    /// Notes the result of a server's health check.
    fn note_server(&mut self, key: &str, down: Option<&str>, context: &mut Context<'_>) {
        let noted = self.balancing.found(key, down, &mut context.record.numbers);
        match noted {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => tracing::warn!(instance = context.name, "{key}: {error:#}"),
        }
        context.save_or_warn("writing down the state of a server");
        let (kind, message) = match down {
            Some(why) => (EventKind::Unhealthy, format!("server {key} is down: {why}")),
            None => (EventKind::Healthy, format!("server {key} is up again")),
        };
        context.event(kind, message);
    }

    /// Notes a reading of a server's load by its agent.
    fn note_load(
        &mut self,
        key: &str,
        reading: Result<Reading, String>,
        context: &mut Context<'_>,
    ) {
        let weight = self
            .balancing
            .loaded(key, reading, &mut context.record.numbers);
        let reason = self.balancing.load_reason(key).unwrap_or_default();
        match weight {
            Ok(Weight::Same) => return,
            Ok(_) => {}
            Err(ref error) => tracing::warn!(instance = context.name, "{key}: {error:#}"),
        }
        context.save_or_warn("writing down the weight of a server");
        let (kind, message) = match weight {
            Ok(Weight::GivenUp) => (
                EventKind::Warning,
                format!(
                    "server {key} has its configured weight, as its load is not known: {reason}"
                ),
            ),
            Ok(Weight::Again) => (
                EventKind::Changed,
                format!("server {key} has a weight by its load again"),
            ),
            _ => return,
        };
        context.event(kind, message);
    }
}

impl FastFunction for Elb {
    fn member(&mut self, hook: Hook, _: usize, _: bool) -> Result<Member, PlatformError> {
        self.balancing.balancer().member_at(hook).map_err(broken)
    }

    fn change(&mut self, config: &Value, context: &mut Context<'_>) -> Changed {
        let new = config::parse(config).map_err(crate::config::refused)?;
        let changed = self.balancing.change(&new, &mut context.record.numbers);
        changed.map(|()| None).map_err(broken)
    }

    fn restart(&mut self, context: &mut Context<'_>) -> Changed {
        self.balancing.forget();
        let config = self.balancing.config().clone();
        let changed = self.balancing.change(&config, &mut context.record.numbers);
        changed.map(|()| None).map_err(broken)
    }

    fn follow(&mut self, name: &str, place: &Place, waker: &Waker) {
        let config = self.balancing.config();
        let findings = || Findings {
            instance: name.to_owned(),
            sender: self.findings.0.clone(),
            waker: waker.clone(),
        };
        // Dropping the former threads ends them.
        let checked = checks::Subject::of(config);
        if self.checks.as_ref().map(Checks::subject) != checked.as_ref() {
            self.checks = checked.map(|checked| Checks::start(findings(), place, checked));
        }
        let asked = load::Subject::of(config);
        if self.loads.as_ref().map(Loads::subject) != asked.as_ref() {
            self.loads = asked.map(|asked| Loads::start(findings(), place, asked));
        }
    }

    fn look(&mut self, context: &mut Context<'_>) {
        while let Ok(finding) = self.findings.1.try_recv() {
            self.note(finding, context);
        }
    }

    fn exits(&self) -> Exits {
        let exits = self.balancing.balancer().exits().ok();
        exits.map_or_else(Vec::new, |exits| named(exits, figures::verdict))
    }

    fn add_status(&self, record: &Record, _: &[Place], status: &mut FastPathStatus) {
        status.services = self.balancing.statuses(&record.numbers);
    }

    fn add_metrics(&self, record: &Record, _: &[Place], metrics: &mut BTreeMap<String, f64>) {
        self.balancing.add_metrics(&record.numbers, metrics);
    }
}
