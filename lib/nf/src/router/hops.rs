//! Next hops of routes: each distinct next hop once, with the 16 bytes that the fast path needs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use nfluid_wire::MacAddr;

/// Index of a hop; the value of a route in the look-up tables. [`NO_ROUTE`] is none.
pub(super) type HopId = u32;

/// The hop of addresses without a route.
pub(super) const NO_ROUTE: HopId = 0;

/// The treatment of packets that take a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// No route.
    None,
    /// Sent to this neighbour.
    Neighbour {
        /// Port on whose link it is.
        port: u8,
        /// The address of the next router there.
        address: IpAddr,
    },
    /// Sent to the neighbour that has the packet's destination address.
    Connected {
        /// Port on whose link it is.
        port: u8,
    },
    /// For the router itself: an address of this port.
    Local {
        /// The port.
        port: u8,
    },
    /// The broadcast address of a connected IPv4 network.
    Broadcast,
    /// Dropped in silence.
    Blackhole,
    /// Refused with an ICMP error.
    Unreachable,
}

/// The fields of a hop that the fast path needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastHop {
    /// The first 12 bytes of the frame: the neighbour's address, the port's own.
    pub macs: [u8; 12],
    /// Largest packet in bytes. 0 sends all packets to the slow path: there is no neighbour, or
    /// its address is not known.
    pub mtu: u16,
    /// Port to send on.
    pub port: u8,
    /// Set by the fast path with every packet, cleared by the reader of the flag.
    pub used: bool,
}

impl FastHop {
    const UNRESOLVED: FastHop = FastHop {
        macs: [0; 12],
        mtu: 0,
        port: 0,
        used: false,
    };
}

/// All hops. A hop lives as long as it has a holder.
#[derive(Debug)]
pub(super) struct Hops {
    fast: Vec<FastHop>,
    targets: Vec<Target>,
    holders: Vec<u32>,
    index: BTreeMap<Target, HopId>,
    free: Vec<HopId>,
}

impl Hops {
    pub(super) fn new() -> Self {
        Hops {
            fast: alloc::vec![FastHop::UNRESOLVED],
            targets: alloc::vec![Target::None],
            holders: alloc::vec![1],
            index: BTreeMap::new(),
            free: Vec::new(),
        }
    }

    /// The hop for the target, held once more; made if there is none.
    pub(super) fn hold(&mut self, target: Target) -> HopId {
        if let Some(&hop) = self.index.get(&target) {
            self.holders[hop as usize] += 1;
            return hop;
        }
        let hop = self.free.pop().unwrap_or_else(|| {
            self.fast.push(FastHop::UNRESOLVED);
            self.targets.push(Target::None);
            self.holders.push(0);
            (self.targets.len() - 1) as HopId
        });
        self.targets[hop as usize] = target;
        self.holders[hop as usize] = 1;
        self.index.insert(target, hop);
        hop
    }

    /// Gives up one [`Hops::hold`].
    pub(super) fn release(&mut self, hop: HopId) {
        let holders = &mut self.holders[hop as usize];
        *holders = holders.saturating_sub(1);
        if *holders == 0 && hop != NO_ROUTE {
            self.index.remove(&self.targets[hop as usize]);
            self.targets[hop as usize] = Target::None;
            self.fast[hop as usize] = FastHop::UNRESOLVED;
            self.free.push(hop);
        }
    }

    /// Returns the target of the hop.
    pub(super) fn target(&self, hop: HopId) -> Target {
        self.targets[hop as usize]
    }

    /// Opens the fast path to a neighbour at `mac`.
    pub(super) fn resolve(&mut self, hop: HopId, mac: MacAddr, own: MacAddr, port: u8, mtu: u16) {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&mac.0);
        macs[6..].copy_from_slice(&own.0);
        let used = self.fast[hop as usize].used;
        self.fast[hop as usize] = FastHop {
            macs,
            mtu,
            port,
            used,
        };
    }

    /// Closes the fast path: packets go through the slow path.
    pub(super) fn unresolve(&mut self, hop: HopId) {
        self.fast[hop as usize] = FastHop::UNRESOLVED;
    }

    /// Returns true if a packet took the hop since the last call.
    pub(super) fn take_used(&mut self, hop: HopId) -> bool {
        core::mem::take(&mut self.fast[hop as usize].used)
    }

    /// Notes that a packet took the hop.
    pub(super) fn set_used(&mut self, hop: HopId) {
        self.fast[hop as usize].used = true;
    }

    /// The fast path's view, by [`HopId`].
    #[inline]
    pub(super) fn fast(&mut self) -> &mut [FastHop] {
        &mut self.fast
    }

    /// Number of hops, without [`NO_ROUTE`].
    pub(super) fn count(&self) -> usize {
        self.index.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_is_shared_and_its_place_reused() {
        let mut hops = Hops::new();
        let first = hops.hold(Target::Connected { port: 1 });
        assert_eq!(hops.hold(Target::Connected { port: 1 }), first);
        hops.release(first);
        assert_eq!(hops.target(first), Target::Connected { port: 1 });
        hops.release(first);
        assert_eq!(hops.target(first), Target::None);
        assert_eq!(hops.hold(Target::Blackhole), first);
        assert_eq!(hops.count(), 1);
    }
}
