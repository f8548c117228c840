//! Status and metrics of fast paths, for the API.

use super::chain::InterfaceChain;
use super::figures::Exits;
use super::placement::{direction, places};
use super::slow::Slow;
use super::{FastPath, FastPaths};
use nfluid_api::types::{
    FastInterface, FastPathStatus, InstanceState, InstanceStats, InstanceStatus,
};
use nfluid_control::fast::Direction;
use nfluid_evnf::slow::SlowExit;
use nfluid_netdev::Place;
use std::collections::BTreeMap;

impl FastPaths {
    /// Returns true if an instance is a fast path.
    pub fn contains(&self, name: &str) -> bool {
        self.instances.contains_key(name)
    }

    /// Returns true if an instance is a fast path with a process, which writes a log.
    pub fn has_process(&self, name: &str) -> bool {
        let fast = self.instances.get(name);
        fast.is_some_and(|fast| fast.function.has_process())
    }

    /// Returns the status of all fast paths.
    pub fn statuses(&self) -> Vec<InstanceStatus> {
        let all = self.instances.iter();
        all.map(|(name, fast)| fast.status(name, &self.chains_at(fast)))
            .collect()
    }

    /// Returns the chain on each interface of a fast path.
    fn chains_at(&self, fast: &FastPath) -> Vec<Option<&InterfaceChain>> {
        let places = places(&fast.spec).into_iter();
        let direction = direction(&fast.spec);
        places
            .map(|place| self.chains.get(&InterfaceChain::key_of(&place, direction)))
            .collect()
    }

    /// Returns the statistics of all fast paths.
    pub fn stats(&self) -> Vec<InstanceStats> {
        let all = self.instances.iter().map(|(name, fast)| {
            let (used, limit) = fast.function.usage();
            InstanceStats {
                name: name.clone(),
                cpu_ns: used.cpu_usage_ns.unwrap_or(0),
                memory_bytes: used.memory_bytes,
                memory_limit_bytes: limit,
                restarts: fast.restarts,
                healthy: Some(fast.trouble(&self.chains_at(fast)).is_none()),
                metrics: fast.metrics(),
                ..InstanceStats::default()
            }
        });
        all.collect()
    }
}

impl FastPath {
    /// Returns the reason why the fast path is impaired.
    fn trouble(&self, chains: &[Option<&InterfaceChain>]) -> Option<String> {
        let mut missing = self.interfaces(chains).into_iter();
        let missing = missing.find(|interface| interface.mode.is_none());
        let missing = missing.map(|interface| {
            let why = interface.reason.unwrap_or_default();
            format!(
                "it is not on {}: {why}; it goes on when that can be",
                interface.name
            )
        });
        let slow = self.slow.as_ref().and_then(|slow| slow.problem());
        self.problem
            .clone()
            .or_else(|| slow.map(str::to_owned))
            .or(missing)
    }

    /// Returns the interfaces of the fast path.
    fn interfaces(&self, chains: &[Option<&InterfaceChain>]) -> Vec<FastInterface> {
        let places = places(&self.spec);
        let each = places.iter().zip(chains);
        let leaves = direction(&self.spec) == Direction::Egress;
        each.map(|(place, chain)| FastInterface {
            direction: leaves.then(|| "egress".to_owned()),
            ..interface(place, *chain)
        })
        .collect()
    }

    fn status(&self, name: &str, chains: &[Option<&InterfaceChain>]) -> InstanceStatus {
        let trouble = self.trouble(chains);
        InstanceStatus {
            name: name.to_owned(),
            nf: self.spec.program.name().to_owned(),
            owner: self.spec.owner.clone(),
            tier: self.spec.tier.to_string(),
            state: if trouble.is_some() {
                InstanceState::Unhealthy
            } else {
                InstanceState::Running
            },
            unhealthy: trouble,
            uptime_ms: Some(self.since.elapsed().as_millis() as u64),
            restarts: self.restarts,
            io: "xdp".to_owned(),
            placement: "free".to_owned(),
            config: self.spec.config.clone(),
            fast: Some(self.fast_status(chains)),
            ..InstanceStatus::default()
        }
    }

    fn fast_status(&self, chains: &[Option<&InterfaceChain>]) -> FastPathStatus {
        let attach = self.spec.attach.as_ref();
        let packets = self
            .exits()
            .into_iter()
            .map(|(verdict, exit, counts)| (format!("{verdict} {exit}"), counts.packets));
        let mut status = FastPathStatus {
            interfaces: self.interfaces(chains),
            netns: attach.and_then(|attach| attach.netns.clone()),
            slow_path: match &self.slow {
                Some(slow) => slow.describe(),
                None => "kernel".to_owned(),
            },
            packets: packets.filter(|(_, packets)| *packets > 0).collect(),
            ..FastPathStatus::default()
        };
        self.function
            .add_status(&self.record, &places(&self.spec), &mut status);
        status
    }

    /// Returns the packets counted per exit since the tables were made.
    fn exits(&self) -> Exits {
        let mut exits = self.function.exits();
        let slow = self.slow.iter().flat_map(Slow::exits);
        exits.extend(slow.filter_map(|(exit, counts)| {
            let (verdict, name) = of_handing_up(exit)?;
            Some((verdict, name.to_owned(), counts))
        }));
        exits
    }

    /// Returns the metrics, by name with labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = BTreeMap::new();
        for (verdict, exit, counts) in self.exits() {
            let labels = format!("{{verdict=\"{verdict}\",reason=\"{exit}\"}}");
            metrics.insert(format!("xdp_packets{labels}"), counts.packets as f64);
            metrics.insert(format!("xdp_bytes{labels}"), counts.bytes as f64);
        }
        if let Some(slow) = &self.slow {
            slow.add_metrics(&mut metrics);
        }
        self.function
            .add_metrics(&self.record, &places(&self.spec), &mut metrics);
        metrics
    }
}

fn interface(place: &Place, chain: Option<&InterfaceChain>) -> FastInterface {
    let attached = chain.map_or(&[][..], InterfaceChain::attached).iter();
    let names: Vec<String> = attached.map(|one| one.name.clone()).collect();
    let is_alone = names.len() < 2;
    let found = FastInterface {
        name: place.interface.clone(),
        chain: if is_alone { Vec::new() } else { names },
        ..FastInterface::default()
    };
    match chain.filter(|chain| chain.is_attached()) {
        Some(chain) => {
            let (mode, why) = chain.mode();
            FastInterface {
                mode: Some(mode.clone()),
                reason: (!why.is_empty()).then(|| why.clone()),
                ..found
            }
        }
        None => {
            let why = chain.and_then(InterfaceChain::problem);
            FastInterface {
                reason: Some(why.unwrap_or("the interface is gone").to_owned()),
                ..found
            }
        }
    }
}

/// Returns verdict and reason of an exit to a slow path. `None`: those packets are counted under another reason.
fn of_handing_up(exit: SlowExit) -> Option<(&'static str, &'static str)> {
    match exit {
        SlowExit::Behind => Some(("up", "behind")),
        SlowExit::Absent => Some(("drop", "no_slow_path")),
        SlowExit::Handed | SlowExit::Returned | SlowExit::Answered | SlowExit::Late => None,
    }
}
