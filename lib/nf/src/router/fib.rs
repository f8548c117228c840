//! The forwarding information base: look-up tables and hops together, and the change from one
//! configuration's routes to the next.

use super::hops::{HopId, Hops, NO_ROUTE, Target};
use super::lpm4::Lpm4;
use super::lpm6::Lpm6;
use super::route_list::RouteList;
use super::routes_text::Prefix;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Routes to hops.
#[derive(Debug)]
pub(super) struct Fib {
    pub v4: Lpm4,
    pub v6: Lpm6,
    pub hops: Hops,
    /// Hops that the configuration's routes hold.
    configured: Vec<HopId>,
}

impl Fib {
    pub(super) fn new() -> Self {
        let mut v6 = Lpm6::new();
        // Host routes come and go with neighbours; a new length would rebuild the table.
        v6.announce_lengths([128].into_iter());
        Fib {
            v4: Lpm4::new(),
            v6,
            hops: Hops::new(),
            configured: Vec::new(),
        }
    }

    /// The hop of an address.
    pub(super) fn lookup(&self, address: IpAddr) -> HopId {
        match address {
            IpAddr::V4(address) => self.v4.lookup(address.to_bits()),
            IpAddr::V6(address) => self.v6.lookup(address.to_bits()),
        }
    }

    /// Returns the target of packets to an address.
    pub(super) fn target(&self, address: IpAddr) -> Target {
        self.hops.target(self.lookup(address))
    }

    /// The longest prefix that holds an address, and its hop.
    pub(super) fn covering(&self, address: IpAddr) -> Option<(Prefix, HopId)> {
        let (length, hop) = match address {
            IpAddr::V4(address) => self.v4.covering(address.to_bits(), 32),
            IpAddr::V6(address) => self.v6.covering(address.to_bits(), 128),
        }?;
        Some((Prefix { address, length }.network(), hop))
    }

    /// Number of routes, host routes to neighbours included.
    pub(super) fn route_count(&self) -> usize {
        self.v4.route_count() + self.v6.route_count()
    }

    /// Adds a host route to a neighbour on a connected network.
    pub(super) fn add_host_route(&mut self, address: IpAddr, hop: HopId) {
        match address {
            IpAddr::V4(address) => self.v4.insert(address.to_bits(), 32, hop),
            IpAddr::V6(address) => self.v6.insert(address.to_bits(), 128, hop),
        };
    }

    /// Removes what [`Fib::add_host_route`] added.
    pub(super) fn remove_host_route(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.v4.remove(address.to_bits(), 32),
            IpAddr::V6(address) => self.v6.remove(address.to_bits(), 128),
        };
    }

    /// Changes the tables to the configuration's routes, touching only those that differ. Host
    /// routes to neighbours have been removed before. Returns how many were added, removed or led
    /// elsewhere.
    pub(super) fn apply(&mut self, routes: &RouteList) -> usize {
        let held: Vec<HopId> = routes.targets.iter().map(|t| self.hops.hold(*t)).collect();
        let hop_of = |target: &u32| held[*target as usize];
        let v4 = routes
            .v4
            .iter()
            .map(|(a, length, t)| (*a, *length, hop_of(t)));
        let (remove, add) = difference(self.v4.routes_from(0, 0), v4);
        let mut changed = remove.len() + add.len();
        for (address, length) in remove {
            self.v4.remove(address, length);
        }
        for (address, length, hop) in add {
            self.v4.insert(address, length, hop);
        }
        let v6 = routes
            .v6
            .iter()
            .map(|(a, length, t)| (*a, *length, hop_of(t)));
        let (remove, add) = difference(self.v6.routes_from(0, 0), v6);
        changed += remove.len() + add.len();
        for (address, length) in remove {
            self.v6.remove(address, length);
        }
        self.v6.announce_lengths(add.iter().map(|route| route.1));
        for (address, length, hop) in add {
            self.v6.insert(address, length, hop);
        }
        for hop in core::mem::replace(&mut self.configured, held) {
            self.hops.release(hop);
        }
        changed
    }

    /// Routes from a prefix on, in the order of addresses: IPv4, or IPv6 if the prefix is.
    pub(super) fn routes_from(&self, from: Prefix) -> impl Iterator<Item = (Prefix, Target)> + '_ {
        let v4 = match from.address {
            IpAddr::V4(address) => Some(self.v4.routes_from(address.to_bits(), from.length)),
            IpAddr::V6(_) => None,
        };
        let v6 = match from.address {
            IpAddr::V6(address) => Some(self.v6.routes_from(address.to_bits(), from.length)),
            IpAddr::V4(_) => None,
        };
        let v4 = v4.into_iter().flatten().map(|(address, length, hop)| {
            let address = Ipv4Addr::from_bits(address).into();
            (Prefix { address, length }, hop)
        });
        let v6 = v6.into_iter().flatten().map(|(address, length, hop)| {
            let address = Ipv6Addr::from_bits(address).into();
            (Prefix { address, length }, hop)
        });
        v4.chain(v6)
            .map(|(prefix, hop)| (prefix, self.hops.target(hop)))
    }
}

/// Returns the steps from the sorted routes `old` to the sorted routes `new`: prefixes to remove, routes to add or to
/// change.
#[allow(clippy::type_complexity)]
fn difference<A: Ord + Copy>(
    old: impl Iterator<Item = (A, u8, HopId)>,
    new: impl Iterator<Item = (A, u8, HopId)>,
) -> (Vec<(A, u8)>, Vec<(A, u8, HopId)>) {
    let (mut remove, mut add) = (Vec::new(), Vec::new());
    let mut old = old.peekable();
    for route in new {
        while let Some(gone) = old.next_if(|o| (o.0, o.1) < (route.0, route.1)) {
            remove.push((gone.0, gone.1));
        }
        let same = old.next_if(|o| (o.0, o.1) == (route.0, route.1));
        debug_assert!(route.2 != NO_ROUTE, "routes lead somewhere");
        if same.is_none_or(|same| same.2 != route.2) {
            add.push(route);
        }
    }
    remove.extend(old.map(|gone| (gone.0, gone.1)));
    (remove, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_touched() {
        let old = [(1u32, 8, 1), (2, 8, 1), (3, 8, 2)];
        let new = [(0u32, 8, 1), (2, 8, 1), (3, 8, 9)];
        let (remove, add) = difference(old.into_iter(), new.into_iter());
        assert_eq!(remove, [(1, 8)]);
        assert_eq!(add, [(0, 8, 1), (3, 8, 9)]);
    }
}
