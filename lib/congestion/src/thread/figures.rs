//! Orders for the congestion thread, and its findings: the data that the thread shares with the daemon.

use super::orders::Orders;
use nfluid_api::types::{CongestionStats, CoreSignal, PortSignal, WayStats};
use nfluid_control::model::PortRef;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The thread's orders, and its latest findings. Each lock is held for single steps only.
#[derive(Debug, Default)]
pub struct SharedState {
    orders: Mutex<Orders>,
    figures: Mutex<Figures>,
}

/// The findings of one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By instance.
    pub instances: BTreeMap<String, InstanceCost>,
    /// The signals of ports whose frames are marked or refused.
    pub signals: BTreeMap<PortRef, PortSignal>,
    /// By core, the marking probability for the cheapest instance.
    pub cores: BTreeMap<u32, f64>,
    /// By chain and direction (true: forward), the instance that limits the chain.
    pub bottlenecks: BTreeMap<(String, bool), String>,
    /// CPU time of the thread itself, in nanoseconds.
    pub own_cpu_ns: u64,
}

impl Figures {
    /// CPU time that the port's instance has used for the port's frames, in nanoseconds.
    pub fn port_cpu_ns(&self, port: &PortRef) -> Option<u64> {
        let ports = &self.instances.get(port.owner()?)?.ports;
        let found = ports.iter().find(|(known, _)| known == port);
        found.map(|(_, cpu_ns)| *cpu_ns)
    }

    /// The findings about cores and the thread, as the API reports them.
    pub fn stats(&self) -> CongestionStats {
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

    /// Returns one direction of a chain, as the API reports it. `refused_packets` were refused at the chain's entry.
    pub fn way(&self, chain: &str, forward: bool, refused_packets: u64) -> WayStats {
        WayStats {
            refused_packets,
            bottleneck: self.bottlenecks.get(&(chain.to_owned(), forward)).cloned(),
        }
    }
}

/// Cost of an instance's packets.
#[derive(Clone, Debug, Default)]
pub struct InstanceCost {
    /// Recent mean CPU time of a packet, in nanoseconds.
    pub cost_ns: Option<f64>,
    /// Mean CPU time of a packet since the instance was first measured, in nanoseconds.
    pub mean_cost_ns: Option<f64>,
    /// By port, the instance's CPU time divided in proportion to frames, in nanoseconds.
    pub ports: Vec<(PortRef, u64)>,
}

impl SharedState {
    /// The latest findings.
    pub fn figures(&self) -> Figures {
        let figures = self.figures.lock();
        figures.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the orders if their version is not `version`.
    pub fn orders_since(&self, version: u64) -> Option<Orders> {
        let orders = self.orders.lock();
        let orders = orders.unwrap_or_else(PoisonError::into_inner);
        (orders.version != version).then(|| orders.clone())
    }

    /// Changes the orders. The thread applies them at its next measurement.
    pub fn change_orders(&self, change: impl FnOnce(&mut Orders)) {
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
