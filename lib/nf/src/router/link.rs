//! From the next hop's IP address to its Ethernet address: asks, learns, lets packets wait, and
//! opens the fast path once the address is known.

use super::Router;
use super::config::is_link_local;
use super::hops::Target;
use super::icmp::{Error, Offender};
use super::metrics::{DropReason, Made};
use super::neighbour::{Change, Due, Evidence, State, TableFull, Wait, WaitingFrame};
use super::slow::Arrival;
use crate::bucket::Rate;
use crate::function::Nanos;
use alloc::vec::Vec;
use core::net::IpAddr;
use nfluid_ring::{Offload, Outbox};
use nfluid_wire::MacAddr;

/// Rate of resolving new addresses, per port: a scan of a connected network must not become a storm of broadcasts (RFC
/// 6583).
const ASK_RATE: Rate = Rate {
    per_second: 1000,
    burst: 256,
};
/// New neighbours learned from their own questions, per port.
const LEARN_RATE: Rate = Rate {
    per_second: 1000,
    burst: 256,
};

impl Router {
    /// The neighbour's Ethernet address. `None`: it is being asked for, a copy of `frame` waits.
    pub(super) fn resolve(
        &mut self,
        now: Nanos,
        (port, address): (u8, IpAddr),
        frame: (&[u8], Offload),
        outbox: &mut dyn Outbox,
    ) -> Result<Option<MacAddr>, DropReason> {
        let known = self
            .neighbours
            .get(port, address)
            .map(|n| (n.state, n.mac, n.hop));
        match known {
            Some((State::Incomplete, ..)) => {}
            Some((_, mac, hop)) => {
                // A host route that gave way to a new configuration comes back here.
                self.open(port, address);
                self.fib.hops.set_used(hop);
                return Ok(Some(mac));
            }
            None => self.ask_for(now, port, address, outbox)?,
        }
        match self.neighbours.wait(port, address, frame, &self.limits) {
            Wait::Added => Ok(None),
            Wait::Displaced { packets } => {
                self.counters.waiting_lost += packets;
                Ok(None)
            }
            Wait::Refused => Err(DropReason::WaitingFull),
        }
    }

    /// Starts to ask for an address that is not in the table.
    fn ask_for(
        &mut self,
        now: Nanos,
        port: u8,
        address: IpAddr,
        outbox: &mut dyn Outbox,
    ) -> Result<(), DropReason> {
        if !self.ask_budget[usize::from(port)].take(ASK_RATE, now) {
            return Err(DropReason::NeighbourRate);
        }
        self.add_neighbour(now, port, address, MacAddr::ZERO, State::Incomplete)
            .map_err(|TableFull| DropReason::NeighbourTableFull)?;
        self.solicit(port, address, None, outbox);
        Ok(())
    }

    pub(super) fn add_neighbour(
        &mut self,
        now: Nanos,
        port: u8,
        address: IpAddr,
        mac: MacAddr,
        state: State,
    ) -> Result<(), TableFull> {
        if let Some(displaced) = self.neighbours.make_room(port, state, &self.limits)? {
            self.forget(port, displaced);
        }
        let hop = self.fib.hops.hold(Target::Neighbour { port, address });
        self.neighbours.add(port, address, mac, state, hop);
        self.neighbours.start(port, address, &self.limits, now);
        Ok(())
    }

    /// Removes a neighbour; what waited for it is lost and counted.
    pub(super) fn forget(&mut self, port: u8, address: IpAddr) {
        let waited = self.take_out(port, address);
        self.counters.waiting_lost += waited.map(|frame| frame.packets()).sum::<u64>();
    }

    /// Removes a neighbour and returns what waited for it.
    fn take_out(
        &mut self,
        port: u8,
        address: IpAddr,
    ) -> impl Iterator<Item = WaitingFrame> + use<> {
        let removed = self.neighbours.remove(port, address);
        if let Some(removed) = &removed {
            if removed.host_route {
                self.fib.remove_host_route(address);
            }
            self.fib.hops.unresolve(removed.hop);
            self.fib.hops.release(removed.hop);
        }
        removed
            .map(|removed| removed.waiting)
            .unwrap_or_default()
            .into_iter()
    }

    /// Adds or replaces a configured neighbour.
    pub(super) fn set_permanent(&mut self, port: u8, address: IpAddr, mac: MacAddr) {
        self.forget(port, address);
        let hop = self.fib.hops.hold(Target::Neighbour { port, address });
        self.neighbours
            .add(port, address, mac, State::Permanent, hop);
        self.open(port, address);
    }

    /// Opens the fast path to a neighbour whose Ethernet address is known: its hop, and a host
    /// route where packets to it follow the connected network's route.
    pub(super) fn open(&mut self, port: u8, address: IpAddr) {
        let on = &self.ports[usize::from(port)];
        let Some(neighbour) = self.neighbours.get_mut(port, address) else {
            return;
        };
        let hop = neighbour.hop;
        self.fib
            .hops
            .resolve(hop, neighbour.mac, on.mac, port, on.mtu);
        let connected = self.fib.target(address) == Target::Connected { port };
        if connected && !is_link_local(address) {
            neighbour.host_route = true;
            self.fib.add_host_route(address, hop);
        }
    }

    /// Returns true if a host with this address may be on the port's link: packets to the address go there.
    pub(super) fn is_neighbourly(&self, port: u8, address: IpAddr) -> bool {
        if is_link_local(address) {
            return self.ports[usize::from(port)].link_local.is_some();
        }
        self.is_routed_to_link(port, address) || self.neighbours.get(port, address).is_some()
    }

    /// Returns true if routes send packets for the address to this very neighbour.
    pub(super) fn is_routed_to_link(&self, port: u8, address: IpAddr) -> bool {
        match self.fib.target(address) {
            Target::Connected { port: on } => on == port,
            to => to == (Target::Neighbour { port, address }),
        }
    }

    /// Opens the fast path again to a neighbour after a change of ports or routes.
    pub(super) fn reopen(&mut self, port: u8, address: IpAddr) {
        let known = self.neighbours.get(port, address);
        if known.is_some_and(|n| n.state != State::Incomplete) {
            self.open(port, address);
        }
    }

    /// Takes a neighbour's announcement of itself. Only a question may make the neighbour known.
    pub(super) fn learn(
        &mut self,
        now: Nanos,
        (port, address): (u8, IpAddr),
        mac: Option<MacAddr>,
        evidence: Evidence,
        outbox: &mut dyn Outbox,
    ) {
        if self.neighbours.get(port, address).is_none() {
            if let (Evidence::Question, Some(mac)) = (evidence, mac)
                && self.learn_budget[usize::from(port)].take(LEARN_RATE, now)
                && self
                    .add_neighbour(now, port, address, mac, State::Stale)
                    .is_ok()
            {
                self.open(port, address);
            }
            return;
        }
        let key = (port, address);
        if self
            .neighbours
            .observe(key, mac, evidence, &self.limits, now)
            == Change::Address
        {
            self.open(port, address);
            self.release_waiting(port, address, outbox);
        }
    }

    fn release_waiting(&mut self, port: u8, address: IpAddr, outbox: &mut dyn Outbox) {
        let Some(mac) = self.neighbours.get(port, address).map(|n| n.mac) else {
            return;
        };
        for mut frame in self.neighbours.take_waiting(port, address) {
            self.counters.made_many(Made::Released, frame.packets());
            self.emit_to((port, mac), &mut frame.bytes, frame.offload, outbox);
        }
    }

    /// Asks for a neighbour's Ethernet address: by multicast or broadcast, or the neighbour itself at `to`.
    fn solicit(&mut self, port: u8, address: IpAddr, to: Option<MacAddr>, outbox: &mut dyn Outbox) {
        self.counters.made(Made::Solicitation);
        match address {
            IpAddr::V4(address) => self.request_arp(port, address, to, outbox),
            IpAddr::V6(address) => self.solicit_neighbour(port, address, to, outbox),
        }
    }

    /// Does what time demands of all neighbours.
    pub(super) fn age_neighbours(&mut self, now: Nanos, outbox: &mut dyn Outbox) {
        let keys: Vec<(u8, IpAddr)> = self
            .neighbours
            .iter()
            .filter(|(.., n)| now >= n.deadline || n.state == State::Stale)
            .filter(|(.., n)| n.state != State::Permanent)
            .map(|(port, address, _)| (port, address))
            .collect();
        for (port, address) in keys {
            let Some(neighbour) = self.neighbours.get(port, address) else {
                continue;
            };
            let used = self.fib.hops.take_used(neighbour.hop);
            match self
                .neighbours
                .due((port, address), used, &self.limits, now)
            {
                None => {}
                Some(Due::SolicitAll) => self.solicit(port, address, None, outbox),
                Some(Due::SolicitOne(mac)) => self.solicit(port, address, Some(mac), outbox),
                Some(Due::Unused) => self.forget(port, address),
                Some(Due::Unreachable) => self.give_up(now, port, address, outbox),
            }
        }
    }

    /// Removes a neighbour that does not answer and notifies the senders of the packets that waited for it.
    fn give_up(&mut self, now: Nanos, port: u8, address: IpAddr, outbox: &mut dyn Outbox) {
        for frame in self.take_out(port, address) {
            self.counters.waiting_lost += frame.packets();
            let arrival = Arrival {
                port,
                to_many: false,
            };
            let offender = Offender {
                arrival,
                frame: &frame.bytes,
                offload: frame.offload,
            };
            self.send_error(now, offender, Error::HostUnreachable, outbox);
        }
    }
}
