//! What fast paths are and what they have done, for the API.

use super::row::Row;
use super::slow::Slow;
use super::splitting::Splitting;
use super::{FastPath, FastPaths, Work, direction, places};
use nfluid_api::types::{
    FastInspection, FastInterface, FastPathStatus, FastRules, FastService, InstanceState,
    InstanceStats, InstanceStatus,
};
use nfluid_control::fast::Direction;
use nfluid_evnf::load::Counts;
use nfluid_evnf::slow::SlowExit;
use nfluid_evnf::{balancer, firewall, guard, inspector};
use nfluid_switch::uplink::Place;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// How packets left: what became of them, the exit's name, how many.
type Exits = Vec<(&'static str, String, Counts)>;

impl FastPaths {
    /// All fast paths.
    pub fn statuses(&self) -> Vec<InstanceStatus> {
        let all = self.instances.iter();
        all.map(|(name, fast)| fast.status(name, &self.rows_at(fast)))
            .collect()
    }

    /// For each interface of a fast path what is there.
    fn rows_at(&self, fast: &FastPath) -> Vec<Option<&Row>> {
        let places = places(&fast.spec).into_iter();
        let direction = direction(&fast.spec);
        places
            .map(|place| self.rows.get(&Row::key_of(&place, direction)))
            .collect()
    }

    /// Their figures.
    pub fn stats(&self) -> Vec<InstanceStats> {
        let all = self.instances.iter().map(|(name, fast)| {
            let (used, limit) = match &fast.work {
                Work::Inspector(inspecting) => {
                    (inspecting.slow().used(), Some(inspecting.config().memory))
                }
                _ => Default::default(),
            };
            InstanceStats {
                name: name.clone(),
                cpu_ns: used.cpu_usage_ns.unwrap_or(0),
                memory_bytes: used.memory_bytes,
                memory_limit_bytes: limit,
                restarts: fast.restarts,
                healthy: Some(fast.trouble(&self.rows_at(fast)).is_none()),
                metrics: fast.metrics(),
                ..InstanceStats::default()
            }
        });
        all.collect()
    }
}

impl FastPath {
    /// Why it is not as it should be.
    fn trouble(&self, rows: &[Option<&Row>]) -> Option<String> {
        let mut missing = self.interfaces(rows).into_iter();
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

    /// Its interfaces, each with what is there.
    fn interfaces(&self, rows: &[Option<&Row>]) -> Vec<FastInterface> {
        let places = places(&self.spec);
        let each = places.iter().zip(rows);
        let leaves = direction(&self.spec) == Direction::Egress;
        each.map(|(place, row)| FastInterface {
            direction: leaves.then(|| "egress".to_owned()),
            ..interface(place, *row)
        })
        .collect()
    }

    fn status(&self, name: &str, rows: &[Option<&Row>]) -> InstanceStatus {
        let trouble = self.trouble(rows);
        let attach = self.spec.attach.as_ref();
        let packets = self
            .exits()
            .into_iter()
            .map(|(verdict, exit, counts)| (format!("{verdict} {exit}"), counts.packets));
        InstanceStatus {
            name: name.to_owned(),
            nf: self.spec.program.name().to_owned(),
            tier: "xdp".to_owned(),
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
            fast: Some(FastPathStatus {
                interfaces: self.interfaces(rows),
                netns: attach.and_then(|attach| attach.netns.clone()),
                slow_path: match &self.slow {
                    Some(slow) => slow.describe(),
                    None => "kernel".to_owned(),
                },
                packets: packets.filter(|(_, packets)| *packets > 0).collect(),
                rules: self.rules(),
                services: self.services(),
                inspection: self.inspection(),
            }),
            ..InstanceStatus::default()
        }
    }

    fn rules(&self) -> Option<FastRules> {
        let Work::Firewall(loaded) = &self.work else {
            return None;
        };
        let mut rules = FastRules::default();
        for (place, splitting) in places(&self.spec).iter().zip(loaded) {
            if let Some(splitting) = splitting {
                splitting.describe(&place.interface, &mut rules);
            }
        }
        Some(rules)
    }

    /// nDPI's names of applications, as its process has told them last.
    fn names(&self) -> &[String] {
        let slow = self.record.slow.as_ref();
        slow.map_or(&[], |slow| slow.applications.as_slice())
    }

    fn inspection(&self) -> Option<FastInspection> {
        let Work::Inspector(inspecting) = &self.work else {
            return None;
        };
        let slow = self.record.slow.as_ref()?;
        Some(inspecting.describe(slow))
    }

    fn services(&self) -> Vec<FastService> {
        match &self.work {
            Work::Firewall(_) | Work::Inspector(_) | Work::Guard(_) => Vec::new(),
            Work::Balancer(balancing) => balancing.statuses(&self.record.numbers),
        }
    }

    /// How packets have left, since it was made.
    fn exits(&self) -> Exits {
        let mut exits = self.exits_of_work();
        let slow = self.slow.iter().flat_map(Slow::exits);
        exits.extend(slow.filter_map(|(exit, counts)| {
            let (verdict, name) = of_handing_up(exit)?;
            Some((verdict, name.to_owned(), counts))
        }));
        exits
    }

    fn exits_of_work(&self) -> Exits {
        match &self.work {
            // The interfaces' programs count in the same place.
            Work::Firewall(loaded) => loaded
                .iter()
                .flatten()
                .next()
                .and_then(|splitting: &Splitting| splitting.firewall.exits().ok())
                .map_or_else(Vec::new, |exits| named(exits, of_firewall)),
            Work::Balancer(balancing) => {
                let exits = balancing.balancer().exits().ok();
                exits.map_or_else(Vec::new, |exits| named(exits, of_balancer))
            }
            Work::Inspector(inspecting) => named(inspecting.exits(), of_inspector),
            Work::Guard(guarding) => {
                let exits = guarding.guard().exits().ok();
                exits.map_or_else(Vec::new, |exits| named(exits, of_guard))
            }
        }
    }

    /// Its metrics, by name with labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = BTreeMap::new();
        for (verdict, exit, counts) in self.exits() {
            let labels = format!("{{verdict=\"{verdict}\",reason=\"{exit}\"}}");
            metrics.insert(format!("xdp_packets{labels}"), counts.packets as f64);
            metrics.insert(format!("xdp_bytes{labels}"), counts.bytes as f64);
        }
        if let Some(rules) = self.rules() {
            for (by, count) in [("fast", rules.fast), ("kernel", rules.kernel)] {
                metrics.insert(format!("xdp_rules{{by=\"{by}\"}}"), count as f64);
            }
        }
        if let Some(slow) = &self.slow {
            slow.add_metrics(&mut metrics);
        }
        if let Work::Inspector(inspecting) = &self.work {
            inspecting.add_metrics(self.names(), &mut metrics);
        }
        if let Work::Balancer(balancing) = &self.work
            && let Ok(midway) = balancing.balancer().begun_midway()
        {
            metrics.insert("xdp_midway_connections".to_owned(), midway as f64);
        }
        for service in self.services() {
            for server in &service.servers {
                let labels = format!("{{service=\"{}\",server=\"{}\"}}", service.name, server.at);
                let up = f64::from(server.state != "down");
                metrics.insert(format!("xdp_server_packets{labels}"), server.packets as f64);
                metrics.insert(format!("xdp_server_up{labels}"), up);
                let Some(load) = &server.load else { continue };
                for (name, number) in [
                    ("xdp_server_load_percent", load.percent.map(f64::from)),
                    (
                        "xdp_server_weight_percent",
                        Some(load.weight_percent.into()),
                    ),
                    ("xdp_server_load_failures", Some(load.failures as f64)),
                ] {
                    metrics.extend(number.map(|number| (format!("{name}{labels}"), number)));
                }
            }
        }
        metrics
    }
}

fn interface(place: &Place, row: Option<&Row>) -> FastInterface {
    let seats = row.map_or(&[][..], Row::seats).iter();
    let chain: Vec<String> = seats.map(|seat| seat.name.clone()).collect();
    let is_alone = chain.len() < 2;
    let found = FastInterface {
        name: place.interface.clone(),
        chain: if is_alone { Vec::new() } else { chain },
        ..FastInterface::default()
    };
    match row.filter(|row| row.holds()) {
        Some(row) => {
            let (mode, why) = row.mode();
            FastInterface {
                mode: Some(mode.clone()),
                reason: (!why.is_empty()).then(|| why.clone()),
                ..found
            }
        }
        None => {
            let why = row.and_then(Row::problem);
            FastInterface {
                reason: Some(why.unwrap_or("the interface is gone").to_owned()),
                ..found
            }
        }
    }
}

fn named<E: Copy + Debug>(exits: Vec<(E, Counts)>, verdict: fn(E) -> &'static str) -> Exits {
    let exits = exits.into_iter();
    exits
        .map(|(exit, counts)| {
            // What drops is a rule.
            let name = match snake_case(&format!("{exit:?}")).as_str() {
                "drop" => "rule".to_owned(),
                name => name.to_owned(),
            };
            (verdict(exit), name, counts)
        })
        .collect()
}

/// What became of packets that left a firewall like this: `up` is handed up to the kernel for a reason.
fn of_firewall(exit: firewall::Exit) -> &'static str {
    match exit {
        firewall::Exit::Drop => "drop",
        firewall::Exit::Accept => "pass",
        _ => "up",
    }
}

/// What a packet met on its way to a slow path of its own, if it has no other reason there.
fn of_handing_up(exit: SlowExit) -> Option<(&'static str, &'static str)> {
    match exit {
        SlowExit::Behind => Some(("up", "behind")),
        SlowExit::Absent => Some(("drop", "no_slow_path")),
        SlowExit::Handed | SlowExit::Returned | SlowExit::Answered | SlowExit::Late => None,
    }
}

/// `up` goes to the kernel and is, or would have been, looked at by the classifier.
fn of_inspector(exit: inspector::Exit) -> &'static str {
    use inspector::Exit;
    match exit {
        Exit::Passed => "pass",
        Exit::Forwarded => "send",
        Exit::Dropped => "drop",
        Exit::Copied | Exit::Unreadable | Exit::Unseen | Exit::NotIp => "up",
    }
}

fn of_balancer(exit: balancer::Exit) -> &'static str {
    use balancer::Exit;
    match exit {
        Exit::Sent | Exit::Returned | Exit::IcmpError | Exit::Echo => "send",
        Exit::Other | Exit::Unreadable | Exit::Neighbour => "up",
        _ => "drop",
    }
}

/// `up`: it has not been looked at as others are.
fn of_guard(exit: guard::Exit) -> &'static str {
    use guard::Exit;
    match exit {
        Exit::Answered => "send",
        Exit::NotIp | Exit::Group | Exit::Neighbour | Exit::Unreadable => "up",
        exit if exit.is_drop() => "drop",
        _ => "pass",
    }
}

/// `NoRoute` as `no_route`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_named_as_everything_else_is() {
        assert_eq!(snake_case("NoRoute"), "no_route");
        assert_eq!(snake_case("Ttl"), "ttl");
        let names: Vec<String> = balancer::Exit::ALL
            .iter()
            .map(|exit| snake_case(&format!("{exit:?}")))
            .collect();
        assert!(names.contains(&"no_server".to_owned()), "{names:?}");
    }
}
