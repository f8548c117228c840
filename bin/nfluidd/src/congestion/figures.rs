//! The thread's orders, and its findings.

use super::orders::Orders;
use nfluid_api::types::{CongestionStats, CoreSignal, PortSignal, WayStats};
use nfluid_control::model::PortRef;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The thread's orders, and its findings for all who ask.
#[derive(Debug, Default)]
pub struct Congestion {
    orders: Mutex<Orders>,
    figures: Mutex<Figures>,
}

/// Figures of one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By instance.
    pub instances: BTreeMap<String, InstanceCost>,
    /// What becomes of frames for ports, where that is not nothing.
    pub signals: BTreeMap<PortRef, PortSignal>,
    /// By core, the probability for its cheapest instance.
    pub cores: BTreeMap<u32, f64>,
    /// By chain and direction (forward: true), who holds it up.
    pub bottlenecks: BTreeMap<(String, bool), String>,
    /// CPU time of the thread itself, in nanoseconds.
    pub own_cpu_ns: u64,
}

impl Figures {
    /// CPU time of a port's instance that was for the port's frames, in nanoseconds.
    pub fn port_cpu_ns(&self, port: &PortRef) -> Option<u64> {
        let ports = &self.instances.get(port.owner()?)?.ports;
        let found = ports.iter().find(|(known, _)| known == port);
        found.map(|(_, cpu_ns)| *cpu_ns)
    }

    /// For the API.
    pub fn told(&self) -> CongestionStats {
        CongestionStats {
            cpu_ns: self.own_cpu_ns,
            cores: self
                .cores
                .iter()
                .map(|(core, probability)| CoreSignal {
                    core: *core,
                    probability: *probability,
                })
                .collect(),
        }
    }

    /// One direction of a chain, at whose entry so many frames were refused.
    pub fn way(&self, chain: &str, forward: bool, refused_packets: u64) -> WayStats {
        WayStats {
            refused_packets,
            bottleneck: self.bottlenecks.get(&(chain.to_owned(), forward)).cloned(),
        }
    }
}

/// What an instance's packets cost.
#[derive(Clone, Debug, Default)]
pub struct InstanceCost {
    /// Of late, in nanoseconds.
    pub cost_ns: Option<f64>,
    /// Since the meter began, in nanoseconds.
    pub mean_cost_ns: Option<f64>,
    /// By port, CPU time split by frames, in nanoseconds.
    pub ports: Vec<(PortRef, u64)>,
}

impl Congestion {
    /// The latest findings.
    pub fn figures(&self) -> Figures {
        let figures = self.figures.lock();
        figures.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The orders, if they have changed since `version`.
    pub fn orders_since(&self, version: u64) -> Option<Orders> {
        let orders = self.orders.lock();
        let orders = orders.unwrap_or_else(PoisonError::into_inner);
        (orders.version != version).then(|| orders.clone())
    }

    /// Changes what is to be done, from the next look on.
    pub fn order(&self, change: impl FnOnce(&mut Orders)) {
        let orders = self.orders.lock();
        let mut orders = orders.unwrap_or_else(PoisonError::into_inner);
        change(&mut orders);
        orders.version += 1;
    }

    /// Changes the figures.
    pub fn change(&self, change: impl FnOnce(&mut Figures)) {
        let figures = self.figures.lock();
        change(&mut figures.unwrap_or_else(PoisonError::into_inner));
    }
}
