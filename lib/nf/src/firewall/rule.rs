//! The rule model, and its meaning: [`Rule::matches`] is the plain reference with which the compiled forms are
//! compared.

use super::packet::{Addresses, Packet, Transport};
use alloc::vec::Vec;
use nfluid_wire::flow::Fragment;

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// TCP flag FIN.
pub const FIN: u8 = 0x01;
/// TCP flag SYN.
pub const SYN: u8 = 0x02;
/// TCP flag RST.
pub const RST: u8 = 0x04;
/// TCP flag ACK.
pub const ACK: u8 = 0x10;

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4 = 0,
    /// IPv6.
    V6 = 1,
}

/// How a rejected packet is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// TCP: RST. Everything else: ICMP "administratively prohibited".
    Auto,
    /// TCP: RST. Everything else: nothing.
    Reset,
    /// ICMP destination unreachable with this reason.
    Unreachable(Unreachable),
}

/// Reason in an ICMP destination unreachable message (RFC 792, RFC 1812, RFC 4443).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No route to the network.
    Net,
    /// Host not reachable.
    Host,
    /// Port not reachable.
    Port,
    /// Communication administratively prohibited.
    Prohibited,
}

/// The action of a rule on a packet that the rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Forward.
    Allow,
    /// Drop.
    Deny,
    /// Drop and notify the sender.
    Reject(Answer),
    /// Count and go on with the next rule.
    Count,
    /// Look for a state; forward if there is one, else go on with the next rule.
    CheckState,
}

/// The packets that a state admits: `keep-state` of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepState {
    /// Most states that the rule may hold at once.
    pub max: Option<u32>,
    /// Most states per source address of the first packet.
    pub max_per_source: Option<u32>,
    /// Idle time in seconds after which a state ends, instead of the global ones for open
    /// connections.
    pub timeout_s: Option<u32>,
}

/// A list that may be negated. An empty list that is not negated stands for "any".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOf<T> {
    /// Matches values that are not on the list, if true.
    pub negated: bool,
    /// The items, any of which suffices.
    pub items: Vec<T>,
}

impl<T> Default for OneOf<T> {
    fn default() -> Self {
        OneOf {
            negated: false,
            items: Vec::new(),
        }
    }
}

impl<T> OneOf<T> {
    /// Returns true if everything matches.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.items.is_empty()
    }

    fn admits(&self, hit: impl FnMut(&T) -> bool) -> bool {
        self.items.is_empty() || self.items.iter().any(hit) != self.negated
    }
}

/// The protocol condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Every packet of one IP version.
    Family(Family),
    /// An IP protocol number.
    Number(u8),
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// IPv4: address (host bits zero) and length 0..=32.
    V4(u32, u8),
    /// IPv6: address (host bits zero) and length 0..=128.
    V6(u128, u8),
}

impl Prefix {
    /// First and last address of an IPv4 prefix.
    pub fn range_v4(&self) -> Option<(u32, u32)> {
        match *self {
            Prefix::V4(address, len) => {
                let host = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
                Some((address, address | host))
            }
            Prefix::V6(..) => None,
        }
    }

    /// First and last address of an IPv6 prefix.
    pub fn range_v6(&self) -> Option<(u128, u128)> {
        match *self {
            Prefix::V6(address, len) => {
                let host = u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
                Some((address, address | host))
            }
            Prefix::V4(..) => None,
        }
    }

    fn contains_v4(&self, address: u32) -> bool {
        matches!(*self, Prefix::V4(net, len)
            if (net ^ address).checked_shr(32 - u32::from(len)).unwrap_or(0) == 0)
    }

    fn contains_v6(&self, address: u128) -> bool {
        matches!(*self, Prefix::V6(net, len)
            if (net ^ address).checked_shr(128 - u32::from(len)).unwrap_or(0) == 0)
    }
}

/// Source or destination of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Address prefixes; negated: any address that is in none of them, of either family.
    pub addresses: OneOf<Prefix>,
    /// Inclusive port ranges. Even when negated they match only packets that carry ports.
    pub ports: OneOf<(u16, u16)>,
}

/// Which fragments a rule asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentMatch {
    /// Fragments that are not the first, as `frag` in ipfw.
    Later,
    /// The first fragment of several.
    First,
    /// Every fragment.
    Any,
}

/// A condition and whether it must not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negatable<T> {
    /// The condition must not hold.
    pub negated: bool,
    /// The condition.
    pub of: T,
}

/// A condition on TCP flags; holds for no packet without a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagsMatch {
    /// The first flags set, the second flags clear.
    Exact {
        /// Must be set.
        set: u8,
        /// Must be clear.
        clear: u8,
    },
    /// ACK or RST is set.
    Established,
}

impl FlagsMatch {
    /// Returns true if a TCP header with these flags fits.
    #[inline]
    pub fn admits(self, flags: u8) -> bool {
        match self {
            FlagsMatch::Exact { set, clear } => flags & (set | clear) == set,
            FlagsMatch::Established => flags & (ACK | RST) != 0,
        }
    }
}

/// A condition on ICMP messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpMatch {
    /// ICMP or ICMPv6.
    pub family: Family,
    /// Message type.
    pub kind: u8,
    /// Message code, if only one fits.
    pub code: Option<u8>,
}

/// A rule. Every condition must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The number of the rule, for counters and messages; rules apply in the order of the list.
    pub number: u32,
    /// The action of the rule.
    pub action: RuleAction,
    /// Protocols.
    pub protocol: OneOf<Protocol>,
    /// Source.
    pub from: Endpoint,
    /// Destination.
    pub to: Endpoint,
    /// Port of the firewall on which the packet arrived.
    pub in_port: Option<u8>,
    /// Fragments.
    pub fragment: Option<Negatable<FragmentMatch>>,
    /// TCP flags, any number of conditions.
    pub flags: Vec<Negatable<FlagsMatch>>,
    /// ICMP types.
    pub icmp: OneOf<IcmpMatch>,
    /// Inclusive ranges of VLAN identifiers; negated includes untagged frames.
    pub vlan: OneOf<(u16, u16)>,
    /// Makes a state out of a packet that it allows.
    pub keep_state: Option<KeepState>,
}

impl Rule {
    /// A rule that matches every packet.
    pub fn any(number: u32, action: RuleAction) -> Self {
        Rule {
            number,
            action,
            protocol: OneOf::default(),
            from: Endpoint::default(),
            to: Endpoint::default(),
            in_port: None,
            fragment: None,
            flags: Vec::new(),
            icmp: OneOf::default(),
            vlan: OneOf::default(),
            keep_state: None,
        }
    }

    /// Returns true if evaluation looks at states when it reaches this rule: as in ipfw, at the first `check-state`
    /// or `keep-state` of the list, whether or not its conditions fit.
    pub fn checks_states(&self) -> bool {
        self.action == RuleAction::CheckState || self.keep_state.is_some()
    }

    /// Returns the number of items in all its lists, the measure of the cost of compiling.
    pub fn items(&self) -> usize {
        self.protocol.items.len()
            + self.from.addresses.items.len()
            + self.from.ports.items.len()
            + self.to.addresses.items.len()
            + self.to.ports.items.len()
            + self.flags.len()
            + self.icmp.items.len()
            + self.vlan.items.len()
    }

    /// Returns true if every condition holds for `packet`.
    pub fn matches(&self, packet: &Packet) -> bool {
        self.protocol.admits(|p| match *p {
            Protocol::Family(family) => packet.addresses.family() == family,
            Protocol::Number(number) => packet.protocol == number,
        }) && self.addresses_match(&packet.addresses)
            && self.ports_match(&packet.transport)
            && self.in_port.is_none_or(|port| port == packet.in_port)
            && self
                .fragment
                .is_none_or(|f| f.of.admits(packet.fragment) != f.negated)
            && self
                .flags
                .iter()
                .all(|f| flags_match(f.of, &packet.transport) != f.negated)
            && self.icmp.admits(|wanted| wanted.admits(packet))
            && self.vlan.admits(|(low, high)| {
                packet
                    .vlan
                    .is_some_and(|vlan| (*low..=*high).contains(&vlan))
            })
    }

    fn addresses_match(&self, addresses: &Addresses) -> bool {
        match *addresses {
            Addresses::V4 { src, dst } => {
                self.from.addresses.admits(|p| p.contains_v4(src))
                    && self.to.addresses.admits(|p| p.contains_v4(dst))
            }
            Addresses::V6 { src, dst } => {
                self.from.addresses.admits(|p| p.contains_v6(src))
                    && self.to.addresses.admits(|p| p.contains_v6(dst))
            }
        }
    }

    fn ports_match(&self, transport: &Transport) -> bool {
        if self.from.ports.is_any() && self.to.ports.is_any() {
            return true;
        }
        match *transport {
            Transport::Tcp { src, dst, .. } | Transport::Udp { src, dst } => {
                self.from
                    .ports
                    .admits(|(low, high)| (*low..=*high).contains(&src))
                    && self
                        .to
                        .ports
                        .admits(|(low, high)| (*low..=*high).contains(&dst))
            }
            Transport::Icmp { .. } | Transport::Opaque => false,
        }
    }
}

impl FragmentMatch {
    /// Returns true if the condition admits `fragment`.
    #[inline]
    pub fn admits(self, fragment: Fragment) -> bool {
        match self {
            FragmentMatch::Later => fragment == Fragment::Later,
            FragmentMatch::First => fragment == Fragment::First,
            FragmentMatch::Any => fragment != Fragment::None,
        }
    }
}

impl IcmpMatch {
    fn admits(&self, packet: &Packet) -> bool {
        let protocol = match self.family {
            Family::V4 => ICMP,
            Family::V6 => ICMPV6,
        };
        matches!(packet.transport, Transport::Icmp { kind, code, .. }
            if packet.protocol == protocol
                && kind == self.kind
                && self.code.is_none_or(|wanted| wanted == code))
    }
}

fn flags_match(wanted: FlagsMatch, transport: &Transport) -> bool {
    matches!(*transport, Transport::Tcp { flags, .. } if wanted.admits(flags))
}
