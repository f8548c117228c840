//! Common parts of the experiments: senders, routes, and durations.

use crate::network::Class;
use crate::plan::{Connection, Hop, Node, Plan, Route, SECOND_NS};
use crate::random::Random;
use crate::report::{Report, Settings};
use crate::tcp::Control;

/// Time before the measurement, seconds; not longer than that.
const WARM_UP: u64 = 10;
const WARM_UP_QUICK: u64 = 4;

/// Senders begin within so many round trips.
const START_ROUNDS: u64 = 20;

/// The parts that all cases of an experiment share.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The requested settings.
    pub settings: Settings,
    warm_up_ns: u64,
    measured_ns: u64,
}

impl Scene {
    /// As the report asks for.
    pub fn new(report: &Report) -> Self {
        let seconds = report.settings().seconds.unwrap_or(report.choose(60, 10));
        Scene {
            settings: report.settings().clone(),
            warm_up_ns: report.choose(WARM_UP, WARM_UP_QUICK).min(seconds) * SECOND_NS,
            measured_ns: seconds * SECOND_NS,
        }
    }

    /// The base round trip.
    pub fn round_trip_ns(&self) -> u64 {
        self.settings.round_trip_us * 1000
    }

    /// The delay that signals aim at.
    pub fn target_ns(&self) -> u64 {
        self.settings.target_us * 1000
    }

    /// A route over `(station, class)` hops, half of the round trip before them in equal parts, and half
    /// on the way back.
    pub fn route(&self, hops: &[(usize, usize)]) -> Route {
        let there_ns = self.round_trip_ns() / 2;
        let hop = |&(station, class): &(usize, usize)| Hop {
            station,
            class,
            delay_ns: there_ns / hops.len() as u64,
        };
        Route {
            hops: hops.iter().map(hop).collect(),
            return_ns: there_ns.max(1),
        }
    }

    /// A sender with a path through one station, or several.
    pub fn single(&self, hops: &[(usize, usize)]) -> Connection {
        self.multipath(self.settings.control, vec![self.route(hops)])
    }

    /// A sender with several paths.
    pub fn multipath(&self, control: Control, routes: Vec<Route>) -> Connection {
        Connection {
            control,
            ecn: !self.settings.drop,
            routes,
            start_ns: 0,
            stop_ns: None,
        }
    }

    /// The plan; senders begin at random. Each packet is up to one packet's cost of the cheapest class late.
    pub fn plan(&self, stations: Vec<Node>, mut connections: Vec<Connection>, seed: u64) -> Plan {
        let mut random = Random::new(seed);
        for connection in &mut connections {
            connection.start_ns += random.below(START_ROUNDS * self.round_trip_ns());
        }
        let classes = stations.iter().flat_map(|node| &node.classes);
        let cheapest_ns = classes.map(|class: &Class| class.cost_ns).min();
        Plan {
            stations,
            connections,
            warm_up_ns: self.warm_up_ns,
            measured_ns: self.measured_ns,
            trace_ns: None,
            jitter_ns: cheapest_ns.unwrap_or(0),
            seed: random.below(u64::MAX),
        }
    }
}
