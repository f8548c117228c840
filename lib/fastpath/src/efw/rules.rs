//! The host's rule set, read, split, and loaded as a fast path.

use crate::error::failed;
use crate::slow::{Entrance, Slow};
use nfluid_api::types::{FastRules, KERNEL_RULES_MAX, KernelRule};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_evnf::chain::Member;
use nfluid_evnf::firewall::{Firewall, Sharing};
use nfluid_evnf::hook::Hook;
use nfluid_evnf::load::LoadError;
use nfluid_evnf::nft::{Decided, Interface, Ruleset, Split, split, split_leaving};
use nfluid_netdev::Place;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// State of a firewall at one of its interfaces.
#[derive(Clone, Copy, Default)]
pub struct Before {
    /// The fingerprint of the loaded rules. Rules with the same fingerprint are not loaded again.
    pub print: Option<u64>,
    /// True if a fast path behind the firewall forwards packets that the firewall passes.
    pub senders: bool,
}

/// Loads the host's rules as programs for these interfaces, all of one namespace, at a hook.
pub fn splittings(
    places: &[Place],
    hook: Hook,
    common: &Common,
    before: &[Before],
) -> Result<Vec<Option<Splitting>>, PlatformError> {
    let Some(first) = places.first() else {
        return Ok(Vec::new());
    };
    let rules = HostRules::read(first)?;
    let loaded = places.iter().enumerate().map(|(number, place)| {
        let before = before.get(number).copied().unwrap_or_default();
        rules.load(place, hook, common, before)
    });
    loaded.collect()
}

/// The objects that successive programs of a fast path share.
#[derive(Clone)]
pub struct Common {
    /// The folder of pinned counters.
    pub exits: PathBuf,
    /// The slow path, if it is not the kernel's stack.
    pub slow: Option<Entrance>,
}

impl Common {
    /// Returns the shared objects of a fast path with these pins.
    pub fn of(pins: &Path, slow: Option<&Slow>) -> Self {
        Common {
            exits: pins.join("exits"),
            slow: slow.map(|slow| slow.entrance().clone()),
        }
    }
}

/// The host's own firewall: its rules and the local addresses.
pub struct HostRules {
    ruleset: Ruleset,
    addresses: Vec<IpAddr>,
}

/// The host's rules as the fast path of one interface.
pub struct Splitting {
    /// The program.
    pub firewall: Firewall,
    split: Split,
    addresses: Vec<IpAddr>,
    print: u64,
    common: Common,
    /// True if packets that the kernel may drop after the stages are left to the kernel: a fast path behind forwards
    /// the packets that the stages accept.
    before_senders: bool,
    /// The program for a hook, loaded with the rules, to be installed next in a chain.
    prepared: Option<(Hook, Member)>,
}

impl HostRules {
    /// Reads the rules in force in an interface's namespace.
    ///
    /// # Errors
    /// When nft is missing or fails, or the namespace does not exist.
    pub fn read(place: &Place) -> Result<Self, PlatformError> {
        let read = place.within(|| Ok((Ruleset::in_force(), addresses())));
        let (ruleset, addresses) = read.map_err(|error| failed(&error))?;
        let ruleset = ruleset.map_err(|error| {
            PlatformError::new(PlatformErrorKind::Failed, error.to_string())
                .with_remedy("'nft -j list ruleset' must work in the interface's namespace")
        })?;
        Ok(HostRules { ruleset, addresses })
    }

    /// Loads the fast path's part of the rules for an interface, at a hook. `common`: the objects shared with earlier
    /// programs. `None`: these rules are already loaded.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(
        &self,
        place: &Place,
        hook: Hook,
        common: &Common,
        before: Before,
    ) -> Result<Option<Splitting>, PlatformError> {
        let part_of = place.part_of().map_err(|error| failed(&error))?;
        let interface = Interface {
            name: &place.interface,
            part_of: part_of.as_deref(),
        };
        let split = match hook {
            Hook::Egress => split_leaving(&self.ruleset, interface),
            Hook::Xdp | Hook::Component | Hook::Tc => split(&self.ruleset, interface),
        };
        let print = xxh3_64(format!("{:?} {:?}", split, self.addresses).as_bytes());
        if before.print == Some(print) {
            return Ok(None);
        }
        let before_senders = before.senders;
        let firewall = load(&split, &self.addresses, common, before_senders)?;
        let prepared = firewall.member_at(hook).map_err(refused)?;
        Ok(Some(Splitting {
            firewall,
            split,
            addresses: self.addresses.clone(),
            print,
            common: common.clone(),
            before_senders,
            prepared: Some((hook, prepared)),
        }))
    }
}

fn load(
    split: &Split,
    addresses: &[IpAddr],
    common: &Common,
    before_senders: bool,
) -> Result<Firewall, PlatformError> {
    let sharing = Sharing {
        exits: Some(&common.exits),
        slow: common.slow.as_ref().map(Entrance::tables),
    };
    let loaded = if before_senders {
        let stages = split.clone().before_senders().stages;
        Firewall::load_with(&stages, addresses, sharing)
    } else {
        Firewall::load_with(&split.stages, addresses, sharing)
    };
    let firewall = loaded.map_err(refused)?;
    // Before the program is attached, so that no packet is dropped for lack of a slow path.
    if let Some(slow) = &common.slow {
        slow.lead(&firewall)?;
    }
    Ok(firewall)
}

fn refused(error: LoadError) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, error.to_string())
}

impl Splitting {
    /// Returns the program for a chain. `before_senders`: a fast path behind it forwards the packets that it passes, so
    /// packets that only the kernel can drop do not go there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&mut self, hook: Hook, before_senders: bool) -> Result<Member, PlatformError> {
        if self.before_senders != before_senders {
            if self.split.only_kernel_asks.is_some() {
                self.firewall = load(&self.split, &self.addresses, &self.common, before_senders)?;
                self.prepared = None;
            }
            self.before_senders = before_senders;
        }
        match self.prepared.take() {
            Some((at, member)) if at == hook => Ok(member),
            _ => self.firewall.member_at(hook).map_err(refused),
        }
    }

    /// Returns the fingerprint of the rules.
    pub fn print(&self) -> u64 {
        self.print
    }

    /// Adds the split of the rules: those that the fast path decides, and those that the kernel decides.
    pub fn describe(&self, interface: &str, rules: &mut FastRules) {
        for line in &self.split.lines {
            let left_out = line.number.is_some_and(|number| self.is_left_out(number));
            let reason = match &line.decided {
                Decided::Fast if left_out => "the fast path's tables have no room for it",
                Decided::Fast => {
                    rules.fast += 1;
                    continue;
                }
                Decided::Never => {
                    rules.never += 1;
                    continue;
                }
                Decided::NoEffect => {
                    rules.no_effect += 1;
                    continue;
                }
                Decided::Slow(why) => why.as_str(),
            };
            rules.kernel += 1;
            if rules.by_kernel.len() < KERNEL_RULES_MAX {
                rules.by_kernel.push(KernelRule {
                    interface: interface.to_owned(),
                    table: line.table.to_string(),
                    chain: line.chain.clone(),
                    handle: line.handle,
                    reason: reason.to_owned(),
                });
            }
        }
        if self.before_senders && rules.held_back.is_none() {
            rules.held_back.clone_from(&self.split.only_kernel_asks);
        }
        if rules.all_behind.is_none() {
            rules.all_behind.clone_from(&self.split.all_behind);
        }
    }

    /// Returns true if the tables had no room for a rule. The kernel also decides the rules behind the first such rule
    /// of a chain. If that is the chain's first rule, the kernel also decides all chains behind it.
    fn is_left_out(&self, number: u32) -> bool {
        let line = |number: u32| {
            let mut lines = self.split.lines.iter();
            lines.find(|line| line.number == Some(number))
        };
        let chain = |number: u32| line(number).map(|line| (&line.table, &line.chain));
        let mut left = self.firewall.left_out().iter();
        left.any(|&first| {
            let begins = first == 0 || chain(first) != chain(first - 1);
            first <= number && (begins || chain(first) == chain(number))
        })
    }
}

/// Returns the addresses of the calling thread's namespace. A missing address counts as another host's, whose packets
/// go to the kernel.
fn addresses() -> Vec<IpAddr> {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
    };
    let mut found = local_of_trie(&read("fib_trie"));
    found.extend(of_if_inet6(&read("if_inet6")));
    found.sort();
    found.dedup();
    found
}

/// Returns the local addresses in `/proc/net/fib_trie`: a line has the address, the next line its type.
fn local_of_trie(text: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(last.map(IpAddr::V4));
        }
    }
    found
}

/// Returns the addresses in `/proc/net/if_inet6`.
fn of_if_inet6(text: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let bits = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        Some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_prints_them() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 4\n     |-- 10.0.0.0\n        /24 link UNICAST\n\
                    Local:\n     |-- 10.0.0.1\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n\
                    \x20    |-- 127.0.0.0\n        /8 host LOCAL\n";
        assert_eq!(
            local_of_trie(trie),
            ["10.0.0.1".parse::<IpAddr>().expect("one")]
        );
        let table = "fe80000000000000000000fffe000001 02 40 20 80     eth0\nnonsense\n";
        assert_eq!(
            of_if_inet6(table),
            ["fe80::ff:fe00:1".parse::<IpAddr>().expect("one")]
        );
        assert!(of_if_inet6("").is_empty() && local_of_trie("").is_empty());
    }
}
