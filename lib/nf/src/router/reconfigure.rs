//! From a checked configuration to a running router, and from one configuration to the next while
//! traffic flows. Neighbours and counters are kept.

use super::Router;
use super::config::{Config, PORTS_MAX};
use super::fast::OwnAddresses;
use super::fib::Fib;
use super::metrics::Counters;
use super::neighbour::{Neighbours, State};
use crate::bucket::Bucket;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use nfluid_wire::ether;

impl Router {
    /// A router with this configuration.
    pub(super) fn new(config: Config) -> Self {
        let mut router = Router {
            ports: Vec::new(),
            own: OwnAddresses::new(&[]),
            fib: Fib::new(),
            neighbours: Neighbours::new(PORTS_MAX),
            limits: config.limits,
            icmp_rate: config.icmp_errors,
            source_routed: config.source_routed,
            redirects: config.redirects,
            icmp_budget: [Bucket::default(); PORTS_MAX],
            redirect_budget: [Bucket::default(); PORTS_MAX],
            ask_budget: [Bucket::default(); PORTS_MAX],
            learn_budget: [Bucket::default(); PORTS_MAX],
            ident: 0,
            announce: false,
            reports: Default::default(),
            counters: Counters::new(),
            room: Vec::new(),
        };
        router.apply(config);
        router
    }

    /// Changes to a configuration: ports first, then routes, then neighbours.
    pub(super) fn apply(&mut self, config: Config) {
        let neighbours: Vec<(u8, IpAddr)> = self
            .neighbours
            .iter()
            .map(|(port, address, _)| (port, address))
            .collect();
        // The routes' comparison must see configured routes only; host routes are put back below.
        for (port, address) in &neighbours {
            if let Some(neighbour) = self.neighbours.get_mut(*port, *address)
                && core::mem::take(&mut neighbour.host_route)
            {
                self.fib.remove_host_route(*address);
            }
        }
        if self.ports != config.ports {
            self.announce = true;
        }
        let before = core::mem::replace(&mut self.ports, config.ports.clone());
        self.own = OwnAddresses::new(&self.ports);
        let largest = self.ports.iter().map(|port| usize::from(port.mtu)).max();
        self.room = vec![0; ether::HEADER_LEN + largest.unwrap_or_default()];
        self.counters.routes_changed += self.fib.apply(&config.routes) as u64;
        self.limits = config.limits;
        self.icmp_rate = config.icmp_errors;
        self.source_routed = config.source_routed;
        self.redirects = config.redirects;
        for (port, address) in neighbours {
            let at = usize::from(port);
            let name = |ports: &[super::config::Port]| ports.get(at).map(|port| port.name.clone());
            let same_port = name(&before).is_some() && name(&before) == name(&self.ports);
            let key = (port, address);
            let permanent =
                self.neighbours.get(port, address).map(|n| n.state) == Some(State::Permanent);
            let unconfigured = permanent && !config.neighbours.contains_key(&key);
            if !same_port || unconfigured || !self.stays(port, address) {
                self.forget(port, address);
            } else {
                self.reopen(port, address);
            }
        }
        for ((port, address), mac) in config.neighbours {
            let same = self
                .neighbours
                .get(port, address)
                .is_some_and(|n| n.state == State::Permanent && n.mac == mac);
            if !same {
                self.set_permanent(port, address, mac);
            }
        }
    }

    /// Returns true if a neighbour is still a neighbour: on the port's link, and not an address of the router.
    pub(super) fn stays(&self, port: u8, address: IpAddr) -> bool {
        let on = &self.ports[usize::from(port)];
        let reachable = on.is_on_link(address) || self.is_routed_to_link(port, address);
        reachable && !on.owns(address)
    }
}
