//! Random rules and packets from a small world, so that they meet.

use super::super::packet::{Addresses, Packet, Transport};
use super::super::rule::{
    Answer, Endpoint, Family, FlagsMatch, FragmentMatch, IcmpMatch, KeepState, Negatable, OneOf,
    Prefix, Protocol, Rule, RuleAction, Unreachable,
};
use super::super::validate;
use nfluid_wire::flow::Fragment;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

fn one_of<T: Clone + core::fmt::Debug + 'static>(
    item: impl Strategy<Value = T> + 'static,
    weight_of_any: u32,
) -> BoxedStrategy<OneOf<T>> {
    let list =
        (any::<bool>(), vec(item, 1..4)).prop_map(|(negated, items)| OneOf { negated, items });
    prop_oneof![weight_of_any => Just(OneOf::default()), 10 => list].boxed()
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        Just(Protocol::Family(Family::V4)),
        Just(Protocol::Family(Family::V6)),
        proptest::sample::select(&[6_u8, 17, 1, 58, 47, 200][..]).prop_map(Protocol::Number),
    ]
}

/// Addresses whose bits are mostly zero, so that prefixes contain each other.
fn address_v4() -> impl Strategy<Value = u32> {
    (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(a, b, c)| a & b & c)
}

fn address_v6() -> impl Strategy<Value = u128> {
    (any::<u128>(), any::<u128>(), any::<u128>()).prop_map(|(a, b, c)| a & b & c)
}

fn prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (address_v4(), 0..=32_u8).prop_map(|(address, len)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
        Prefix::V4(address & mask, len)
    });
    let v6 = (address_v6(), 0..=128_u8).prop_map(|(address, len)| {
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        Prefix::V6(address & mask, len)
    });
    prop_oneof![3 => v4, 1 => v6]
}

/// Ports, VLANs: near each other and at the ends.
fn number(max: u16) -> impl Strategy<Value = u16> {
    prop_oneof![5 => 0..8_u16, 1 => Just(max), 1 => 0..=max]
}

fn range(max: u16) -> impl Strategy<Value = (u16, u16)> {
    (number(max), number(max)).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    (one_of(prefix(), 10), one_of(range(u16::MAX), 20))
        .prop_map(|(addresses, ports)| Endpoint { addresses, ports })
}

fn flags() -> impl Strategy<Value = FlagsMatch> {
    let exact = (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(used, set, other)| {
        let used = if used & other == 0 { 2 } else { used & other };
        FlagsMatch::Exact {
            set: used & set,
            clear: used & !set,
        }
    });
    prop_oneof![Just(FlagsMatch::Established), exact]
}

fn icmp() -> impl Strategy<Value = OneOf<IcmpMatch>> {
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let item = (0..4_u8, weighted(0.3, 0..3_u8));
    (any::<bool>(), family, vec(item, 0..3)).prop_map(|(negated, family, items)| OneOf {
        negated: negated && !items.is_empty(),
        items: items
            .into_iter()
            .map(|(kind, code)| IcmpMatch { family, kind, code })
            .collect(),
    })
}

fn action() -> impl Strategy<Value = RuleAction> {
    prop_oneof![
        5 => Just(RuleAction::Allow),
        5 => Just(RuleAction::Deny),
        2 => Just(RuleAction::Count),
        1 => Just(RuleAction::Reject(Answer::Auto)),
        1 => Just(RuleAction::Reject(Answer::Reset)),
        1 => Just(RuleAction::Reject(Answer::Unreachable(Unreachable::Port))),
    ]
}

fn fragment() -> impl Strategy<Value = Negatable<FragmentMatch>> {
    let of = prop_oneof![
        Just(FragmentMatch::Later),
        Just(FragmentMatch::First),
        Just(FragmentMatch::Any)
    ];
    (any::<bool>(), of).prop_map(|(negated, of)| Negatable { negated, of })
}

fn keep_state() -> impl Strategy<Value = KeepState> {
    let limit = || weighted(0.3, 1..5_u32);
    (limit(), limit(), limit()).prop_map(|(max, max_per_source, timeout_s)| KeepState {
        max,
        max_per_source,
        timeout_s,
    })
}

/// A rule that the parser would accept. Keep-state only where it may stand.
pub fn rule() -> impl Strategy<Value = Rule> {
    let basics = (
        1..1_000_000_u32,
        action(),
        one_of(protocol(), 10),
        endpoint(),
        endpoint(),
    );
    let options = (
        weighted(0.2, 0..2_u8),
        weighted(0.2, fragment()),
        prop_oneof![4 => vec((any::<bool>(), flags()), 0..1), 1 => vec((any::<bool>(), flags()), 1..3)],
        prop_oneof![4 => Just(OneOf::default()), 1 => icmp()],
        one_of(range(4095), 40),
        weighted(0.3, keep_state()),
    );
    let rule = (basics, options).prop_map(|(basics, options)| {
        let (number, action, protocol, from, to) = basics;
        let (in_port, fragment, flags, icmp, vlan, keep_state) = options;
        Rule {
            number,
            action,
            protocol,
            from,
            to,
            in_port,
            fragment,
            flags: flags
                .into_iter()
                .map(|(negated, of)| Negatable { negated, of })
                .collect(),
            icmp,
            vlan,
            keep_state: keep_state.filter(|_| action == RuleAction::Allow),
        }
    });
    let checked = rule.prop_filter("contradicts itself", |rule| validate::check(rule).is_ok());
    prop_oneof![20 => checked, 1 => Just(Rule::any(7, RuleAction::CheckState))]
}

/// A packet as the parser would describe it.
pub fn packet() -> impl Strategy<Value = Packet> {
    let addresses = prop_oneof![
        3 => (address_v4(), address_v4()).prop_map(|(src, dst)| Addresses::V4 { src, dst }),
        1 => (address_v6(), address_v6()).prop_map(|(src, dst)| Addresses::V6 { src, dst }),
    ];
    let fragment = prop_oneof![
        8 => Just(Fragment::None),
        1 => Just(Fragment::First),
        1 => Just(Fragment::Later)
    ];
    let ports = (number(u16::MAX), number(u16::MAX));
    let protocol = proptest::sample::select(&[6_u8, 17, 1, 58, 47, 200][..]);
    let vlan = weighted(0.3, number(4095));
    let octets = (any::<u8>(), 0..4_u8, 0..3_u8);
    (addresses, fragment, ports, protocol, vlan, octets, 0..2_u8).prop_map(
        |(addresses, fragment, (src, dst), protocol, vlan, (flags, kind, code), in_port)| {
            let transport = match (protocol, addresses.family()) {
                _ if fragment == Fragment::Later => Transport::Opaque,
                (6, _) => Transport::Tcp { src, dst, flags },
                (17, _) => Transport::Udp { src, dst },
                (1, Family::V4) | (58, Family::V6) => Transport::Icmp {
                    kind,
                    code,
                    id: src,
                },
                _ => Transport::Opaque,
            };
            Packet {
                addresses,
                protocol,
                fragment,
                transport,
                vlan,
                in_port,
            }
        },
    )
}
