//! Plan of a simulation: stations, connections with their routes, duration, seed.

use crate::network::{Class, Marking, Service};
use crate::tcp::Control;
use nfluid_marking::LawError;

/// Stations and subflows that there are at most.
pub const PARTS_MAX: usize = 4096;
/// The longest time that may be simulated, nanoseconds.
pub const TIME_NS_MAX: u64 = 4 * 3600 * SECOND_NS;
/// Packets that one simulation may have.
pub const PACKETS_MAX: u64 = 1_000_000_000;
/// Moments that a trace has at most.
pub const MOMENTS_MAX: u64 = 100_000;
/// A second.
pub const SECOND_NS: u64 = 1_000_000_000;

const BATCH_MAX: usize = 65_536;
const SLOTS_MAX: usize = 1 << 20;
const COST_NS_MAX: u64 = SECOND_NS;
const DELAY_NS_MAX: u64 = 10 * SECOND_NS;

/// A simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Cores and links.
    pub stations: Vec<Node>,
    /// Senders.
    pub connections: Vec<Connection>,
    /// Time before the measurement, nanoseconds.
    pub warm_up_ns: u64,
    /// The measurement, nanoseconds.
    pub measured_ns: u64,
    /// Windows and deliveries are noted so often, if at all; nanoseconds.
    pub trace_ns: Option<u64>,
    /// Each packet leaves its sender up to so much later, at random and in order: without, senders in step
    /// hit a full ring in turn (Floyd and Jacobson, "Traffic phase effects", CCR 1991). Nanoseconds.
    pub jitter_ns: u64,
    /// Of the random numbers.
    pub seed: u64,
}

/// A station to be made.
#[derive(Clone, Debug)]
pub struct Node {
    /// The classes of its packets, by cost.
    pub classes: Vec<Class>,
    /// Slots of each ring.
    pub slots: usize,
    /// How rings take turns.
    pub service: Service,
    /// Packets of a turn.
    pub batch: usize,
    /// Signals on entry, beside those of a full ring.
    pub marking: Option<Marking>,
}

/// A sender with one subflow per route.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Congestion avoidance.
    pub control: Control,
    /// True if the packets can be marked.
    pub ecn: bool,
    /// The routes, one per subflow.
    pub routes: Vec<Route>,
    /// When it begins, nanoseconds.
    pub start_ns: u64,
    /// When it ends, if it does; nanoseconds.
    pub stop_ns: Option<u64>,
}

/// A way through stations and back.
#[derive(Clone, Debug)]
pub struct Route {
    /// In their order.
    pub hops: Vec<Hop>,
    /// From the last station to the receiver, and back to the sender, nanoseconds. The way back is free of congestion.
    pub return_ns: u64,
}

/// A station on a route.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Which.
    pub station: usize,
    /// The class of the packets there.
    pub class: usize,
    /// Time on the way to it, nanoseconds.
    pub delay_ns: u64,
}

/// Why a plan cannot be carried out. The texts name what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A number beyond its bounds.
    #[error("{what} is {value}: must be within {min} and {max}")]
    Bounds {
        /// Which number.
        what: &'static str,
        /// As it was given.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A hop leads nowhere.
    #[error("a route leads to class {class} of station {station}, which there is not")]
    Nowhere {
        /// The station.
        station: usize,
        /// The class.
        class: usize,
    },
    /// The simulation would take too long.
    #[error(
        "this would be up to {packets} packets, more than {max}: simulate a shorter time, fewer seeds, or packets of a higher cost"
    )]
    TooMuch {
        /// Packets.
        packets: u64,
        /// The most.
        max: u64,
    },
    /// The marking makes no sense.
    #[error("marking: {0}")]
    Marking(#[from] LawError),
}

fn within(what: &'static str, value: u64, min: u64, max: u64) -> Result<(), PlanError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(PlanError::Bounds {
            what,
            value,
            min,
            max,
        })
    }
}

/// Returns an error if so many packets cannot be simulated in bearable time.
pub(crate) fn enough(packets: u64, max: u64) -> Result<(), PlanError> {
    if packets > max {
        return Err(PlanError::TooMuch { packets, max });
    }
    Ok(())
}

impl Plan {
    /// When it ends, nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.warm_up_ns.saturating_add(self.measured_ns)
    }

    /// Checks that the plan can be carried out, in bounded time and memory.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), PlanError> {
        let subflows: usize = self.connections.iter().map(|c| c.routes.len()).sum();
        within(
            "the number of stations",
            self.stations.len() as u64,
            1,
            PARTS_MAX as u64,
        )?;
        within(
            "the number of subflows",
            subflows as u64,
            1,
            PARTS_MAX as u64,
        )?;
        within(
            "the time of the measurement in ns",
            self.measured_ns,
            1,
            TIME_NS_MAX,
        )?;
        within("the time in ns", self.end_ns(), 1, TIME_NS_MAX)?;
        within("the jitter in ns", self.jitter_ns, 0, DELAY_NS_MAX)?;
        if let Some(trace_ns) = self.trace_ns {
            let min = (self.end_ns() / MOMENTS_MAX).max(1);
            within(
                "the distance of a trace's moments in ns",
                trace_ns,
                min,
                TIME_NS_MAX,
            )?;
        }
        self.stations.iter().try_for_each(Node::validate)?;
        for route in self.connections.iter().flat_map(|c| &c.routes) {
            self.validate_route(route)?;
        }
        enough(self.packets(), PACKETS_MAX)
    }

    fn validate_route(&self, route: &Route) -> Result<(), PlanError> {
        within(
            "the number of hops",
            route.hops.len() as u64,
            1,
            PARTS_MAX as u64,
        )?;
        within("the way back in ns", route.return_ns, 1, DELAY_NS_MAX)?;
        for hop in &route.hops {
            within("the delay of a hop in ns", hop.delay_ns, 0, DELAY_NS_MAX)?;
            let station = self.stations.get(hop.station);
            if station
                .and_then(|node| node.classes.get(hop.class))
                .is_none()
            {
                return Err(PlanError::Nowhere {
                    station: hop.station,
                    class: hop.class,
                });
            }
        }
        Ok(())
    }

    /// Packets that all stations together could serve: what bounds a run's own time.
    pub fn packets(&self) -> u64 {
        let packets = |node: &Node| {
            let cheapest = node.classes.iter().map(|class| class.cost_ns).min();
            self.end_ns() / cheapest.unwrap_or(1).max(1)
        };
        let each = self.stations.iter().map(packets);
        each.fold(0, u64::saturating_add)
    }
}

impl Node {
    fn validate(&self) -> Result<(), PlanError> {
        within(
            "the number of classes",
            self.classes.len() as u64,
            1,
            PARTS_MAX as u64,
        )?;
        within(
            "the slots of a ring",
            self.slots as u64,
            1,
            SLOTS_MAX as u64,
        )?;
        within("the batch", self.batch as u64, 1, BATCH_MAX as u64)?;
        let (Service::Turns { quantum_ns } | Service::CpuFair { quantum_ns }) = self.service;
        if let Some(quantum_ns) = quantum_ns {
            within("the quantum in ns", quantum_ns, 1, DELAY_NS_MAX)?;
        }
        for class in &self.classes {
            within("the cost of a packet in ns", class.cost_ns, 1, COST_NS_MAX)?;
            within(
                "the number of a ring",
                class.ring as u64,
                0,
                self.classes.len() as u64 - 1,
            )?;
        }
        Ok(())
    }
}
