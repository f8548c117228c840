//! A rule of the classifier as flow rules of a NIC.
//!
//! Every frame that a flow rule matches, the classifier's rule matches. The opposite need not hold: a frame that the
//! NIC does not recognise (a first fragment, IPv6 extension headers) comes in on another queue, and the classifier
//! finds the frame there.

use nfluid_netdev::{Flow, IpFlow, PortMask};
use nfluid_switch::classifier::{Prefix, Rule, VlanMatch};
use std::ops::RangeInclusive;

/// Most flow rules that one rule may become.
pub const FLOWS_PER_RULE_MAX: usize = 32;

const ETHER_IPV4: u16 = libc::ETH_P_IP as u16;
const ETHER_IPV6: u16 = libc::ETH_P_IPV6 as u16;
const VLAN_ID: u16 = 0xfff;

/// EtherTypes of VLAN tags: a NIC and the classifier do not mean the same tag by them.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// The flow rules that match what `rule` matches.
///
/// # Errors
/// The reason why a NIC cannot have the rule.
pub fn flows(rule: &Rule) -> Result<Vec<Flow>, &'static str> {
    let family = rule.family().ok_or("it matches nothing")?;
    let vlan = match rule.vlan {
        VlanMatch::Any => None,
        VlanMatch::Id(id) => Some(id & VLAN_ID),
        VlanMatch::Untagged => return Err("a NIC matches no frames without a tag alone"),
    };
    let has_ports = rule.sport.is_some() || rule.dport.is_some();
    let has_ip = has_ports || rule.proto.is_some() || rule.src.is_some() || rule.dst.is_some();
    if !has_ip {
        return of_ether(family, vlan);
    }
    let protocols = match rule.proto {
        Some(proto) if has_ports && !Flow::WITH_PORTS.contains(&proto) => {
            return Err("it matches nothing");
        }
        Some(proto) => vec![Some(proto)],
        None if has_ports => Flow::WITH_PORTS.map(Some).to_vec(),
        None => vec![None],
    };
    let families = match family {
        Some(family @ (ETHER_IPV4 | ETHER_IPV6)) => vec![family],
        Some(_) => return Err("it matches nothing"),
        None => vec![ETHER_IPV4, ETHER_IPV6],
    };
    let sports = port_masks(rule.sport.as_ref());
    let dports = port_masks(rule.dport.as_ref());
    let count = families.len() * protocols.len() * sports.len() * dports.len();
    if count > FLOWS_PER_RULE_MAX {
        return Err("its ranges of ports are too many masks for a NIC");
    }
    let prefix = |prefix: Prefix| (prefix.address, prefix.len);
    let mut flows = Vec::with_capacity(count);
    for &family in &families {
        for &proto in &protocols {
            for &sport in &sports {
                for &dport in &dports {
                    flows.push(Flow::ip(&IpFlow {
                        is_v6: family == ETHER_IPV6,
                        vlan,
                        proto,
                        src: rule.src.map(prefix),
                        dst: rule.dst.map(prefix),
                        sport,
                        dport,
                    }));
                }
            }
        }
    }
    Ok(flows)
}

/// A rule that asks for no IP header.
fn of_ether(ether: Option<u16>, vlan: Option<u16>) -> Result<Vec<Flow>, &'static str> {
    if ether.is_none() && vlan.is_none() {
        return Err("it matches everything");
    }
    if ether.is_some_and(|ether| TAGS.contains(&ether)) {
        return Err("it matches tags");
    }
    Ok(vec![Flow::ether(ether, vlan)])
}

/// A range as values and masks: the largest blocks that lie within it, from its start on. All ports are one block
/// without a mask.
fn port_masks(range: Option<&RangeInclusive<u16>>) -> Vec<Option<PortMask>> {
    let Some(range) = range else {
        return vec![None];
    };
    let (mut first, last) = (u32::from(*range.start()), u32::from(*range.end()));
    let mut blocks = Vec::new();
    while first <= last {
        let aligned = if first == 0 {
            1 << 16
        } else {
            1 << first.trailing_zeros()
        };
        let mut size: u32 = aligned;
        while first + size - 1 > last {
            size /= 2;
        }
        blocks.push(Some((first as u16, !(size - 1) as u16)));
        first += size;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    fn prefix(address: &str, len: u8) -> Option<Prefix> {
        let address = address.parse().expect("an address");
        Some(Prefix { address, len })
    }

    /// Checks the bytes that are not zero at the offsets of `linux/ethtool.h`. The offsets come from a C program on a
    /// little-endian machine.
    fn expect(flow: &Flow, (queue, location): (u32, u32), set: &[(usize, &[u8])]) {
        let mut expected = [0u8; 168];
        for (at, bytes) in set {
            expected[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        assert_eq!(flow.bytes(queue, location), expected);
    }

    fn only(rule: &Rule) -> Flow {
        let all = flows(rule).expect("a NIC can be told so");
        assert_eq!(all.len(), 1, "{rule:?}");
        all[0].clone()
    }

    /// `tcp_ip4_spec` with `vlan_tci`: prefixes, and a port with a mask.
    // promise: 2.15
    #[test]
    #[cfg(target_endian = "little")]
    fn a_tcp_flow_of_a_vlan_is_the_kernels_structure() {
        let flow = only(&Rule {
            vlan: VlanMatch::Id(0x123),
            src: prefix("10.1.255.255", 16),
            dst: prefix("192.0.2.7", 32),
            proto: Some(TCP),
            dport: Some(8080..=8095),
            ..Rule::default()
        });
        expect(
            &flow,
            (7, 1023),
            &[
                (0, &[0x01, 0, 0, 0x80]),
                (4, &[10, 1, 0, 0, 192, 0, 2, 7]),
                (14, &[0x1f, 0x90]),
                (66, &[0x01, 0x23]),
                (76, &[0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff]),
                (86, &[0xff, 0xf0]),
                (138, &[0x0f, 0xff]),
                (152, &[7]),
                (160, &[0xff, 0x03]),
            ],
        );
    }

    /// `udp_ip6_spec`.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_udp_flow_of_ipv6_is_the_kernels_structure() {
        let flow = only(&Rule {
            src: prefix("2001:db8:1::", 47),
            dst: prefix("2001:db8::5", 128),
            proto: Some(UDP),
            sport: Some(53..=53),
            ..Rule::default()
        });
        expect(
            &flow,
            (3, u32::MAX),
            &[
                (0, &[0x06]),
                (4, &[0x20, 0x01, 0x0d, 0xb8]),
                (20, &[0x20, 0x01, 0x0d, 0xb8]),
                (35, &[5, 0, 53]),
                (76, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]),
                (92, &[0xff; 18]),
                (152, &[3]),
                (160, &[0xff; 4]),
            ],
        );
    }

    /// `usr_ip4_spec`, `usr_ip6_spec`, `ether_spec` with `vlan_tci`.
    #[test]
    #[cfg(target_endian = "little")]
    fn flows_without_ports_are_the_kernels_structures() {
        let gre = only(&Rule {
            dst: prefix("198.51.100.0", 24),
            proto: Some(47),
            ..Rule::default()
        });
        expect(
            &gre,
            (1, 0),
            &[
                (0, &[0x0d]),
                (8, &[198, 51, 100]),
                (17, &[1, 47]),
                (80, &[0xff, 0xff, 0xff]),
                (90, &[0xff]),
                (152, &[1]),
            ],
        );
        let icmp = only(&Rule {
            ether: Some(ETHER_IPV6),
            proto: Some(58),
            ..Rule::default()
        });
        expect(
            &icmp,
            (1, 0),
            &[(0, &[0x0e]), (41, &[58]), (113, &[0xff]), (152, &[1])],
        );
        let arp = only(&Rule {
            vlan: VlanMatch::Id(9),
            ether: Some(0x0806),
            ..Rule::default()
        });
        expect(
            &arp,
            (2, 5),
            &[
                (0, &[0x12, 0, 0, 0x80]),
                (16, &[0x08, 0x06]),
                (67, &[9]),
                (88, &[0xff, 0xff]),
                (138, &[0x0f, 0xff]),
                (152, &[2]),
                (160, &[5]),
            ],
        );
    }

    #[test]
    fn a_range_of_ports_is_as_many_masks_as_it_takes() {
        let masks = |range| port_masks(Some(&range));
        assert_eq!(masks(0..=u16::MAX), [Some((0, 0))]);
        assert_eq!(
            masks(1000..=1010),
            [
                Some((1000, 0xfff8)),
                Some((1008, 0xfffe)),
                Some((1010, 0xffff))
            ]
        );
        for range in [1..=65534, 1024..=65535, 6..=6, 65535..=65535] {
            let inside = |port: u16| {
                let mut blocks = port_masks(Some(&range)).into_iter().flatten();
                blocks.any(|(value, mask)| port & mask == value)
            };
            assert!((0..=u16::MAX).all(|port| inside(port) == range.contains(&port)));
        }
    }

    #[test]
    fn what_names_no_protocol_is_a_flow_for_each() {
        let dns = Rule {
            dport: Some(53..=53),
            ..Rule::default()
        };
        assert_eq!(flows(&dns).map(|all| all.len()), Ok(6));
        let wide = Rule {
            sport: Some(1..=65534),
            dport: Some(1..=65534),
            ..Rule::default()
        };
        assert!(flows(&wide).is_err());
    }

    #[test]
    fn rules_that_a_nic_cannot_have_are_refused() {
        assert!(flows(&Rule::default()).is_err());
        let untagged = Rule {
            vlan: VlanMatch::Untagged,
            ..Rule::default()
        };
        assert!(flows(&untagged).is_err());
        let contradiction = Rule {
            ether: Some(0x0806),
            proto: Some(TCP),
            ..Rule::default()
        };
        assert!(flows(&contradiction).is_err());
    }
}
