//! A rule of the classifier as flow rules of a NIC (`struct ethtool_rx_flow_spec`, `linux/ethtool.h`).
//!
//! What a flow rule matches, the rule matches. The opposite need not hold: a frame that the NIC does not recognise (a
//! first fragment, IPv6 extension headers) comes in on another queue, and the classifier finds it there.

use super::super::rules::{Prefix, Rule, VlanMatch};
use crate::abi::{ETHER_IPV4, ETHER_IPV6};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Most flow rules that one rule may become.
pub const FLOWS_PER_RULE_MAX: usize = 32;
/// `struct ethtool_rx_flow_spec`.
pub const FLOW_BYTES: usize = 168;

const TCP_V4_FLOW: u32 = 0x01;
const UDP_V4_FLOW: u32 = 0x02;
const SCTP_V4_FLOW: u32 = 0x03;
const TCP_V6_FLOW: u32 = 0x05;
const UDP_V6_FLOW: u32 = 0x06;
const SCTP_V6_FLOW: u32 = 0x07;
const IPV4_USER_FLOW: u32 = 0x0d;
const IPV6_USER_FLOW: u32 = 0x0e;
const ETHER_FLOW: u32 = 0x12;
/// `h_ext` and `m_ext` count.
const FLOW_EXT: u32 = 0x8000_0000;
/// `ip_ver` of a rule for any IPv4 packet; its mask stays empty.
const ETH_RX_NFC_IP4: u8 = 1;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// EtherTypes of VLAN tags: a NIC and the classifier do not mean the same tag by them.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// Where the parts of the structure are. A mask is as far behind the start of the masks as what it masks is
/// behind that of the values.
const VALUES: usize = 4;
const MASKS: usize = 76;
const VLAN_TCI: usize = 62;
const RING_COOKIE: usize = 152;
const LOCATION: usize = 160;
/// Within the values, of IPv4.
const V4: Fields = Fields {
    src: 0,
    dst: 4,
    ports: 8,
    proto: 14,
};
/// `ip_ver` of `struct ethtool_usrip4_spec`.
const V4_VERSION: usize = 13;
/// Within the values, of IPv6.
const V6: Fields = Fields {
    src: 0,
    dst: 16,
    ports: 32,
    proto: 37,
};
/// `h_proto` of `struct ethhdr`.
const ETHER_PROTO: usize = 12;
const VLAN_ID: u16 = 0xfff;

struct Fields {
    src: usize,
    dst: usize,
    /// Source port, then destination port.
    ports: usize,
    proto: usize,
}

/// A flow rule without its queue and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow([u8; FLOW_BYTES]);

impl Flow {
    /// The bytes of `struct ethtool_rx_flow_spec`, for a queue and a place in the NIC's table.
    pub fn bytes(&self, queue: u32, location: u32) -> [u8; FLOW_BYTES] {
        let mut bytes = self.0;
        bytes[RING_COOKIE..RING_COOKIE + 8].copy_from_slice(&u64::from(queue).to_ne_bytes());
        bytes[LOCATION..LOCATION + 4].copy_from_slice(&location.to_ne_bytes());
        bytes
    }

    /// Queue that such a structure leads to; `None`: its frames are dropped, or wake the host.
    pub fn queue_of(bytes: &[u8; FLOW_BYTES]) -> Option<u32> {
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&bytes[RING_COOKIE..RING_COOKIE + 8]);
        // RX_CLS_FLOW_DISC and RX_CLS_FLOW_WAKE are the two highest values; bits 32..39 name a virtual function.
        let cookie = u64::from_ne_bytes(cookie);
        (cookie < u64::MAX - 1).then_some(cookie as u32)
    }

    fn of_type(kind: u32, vlan: Option<u16>) -> Self {
        let mut flow = Flow([0; FLOW_BYTES]);
        let extended = vlan.map_or(0, |_| FLOW_EXT);
        flow.0[..4].copy_from_slice(&(kind | extended).to_ne_bytes());
        if let Some(id) = vlan {
            flow.put(VLAN_TCI, &id.to_be_bytes(), &VLAN_ID.to_be_bytes());
        }
        flow
    }

    fn put(&mut self, at: usize, value: &[u8], mask: &[u8]) {
        let place = |start: usize| start + at..start + at + value.len();
        self.0[place(VALUES)].copy_from_slice(value);
        self.0[place(MASKS)].copy_from_slice(mask);
    }

    fn put_prefix(&mut self, at: usize, prefix: Option<Prefix>) {
        if let Some(prefix) = prefix {
            let (value, mask) = masked(prefix);
            self.put(at, &value, &mask);
        }
    }

    fn put_port(&mut self, at: usize, (value, mask): (u16, u16)) {
        self.put(at, &value.to_be_bytes(), &mask.to_be_bytes());
    }
}

/// Address and mask, in network order.
fn masked(prefix: Prefix) -> (Vec<u8>, Vec<u8>) {
    let octets = match prefix.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mask: Vec<u8> = (0..octets.len())
        .map(|i| {
            let ones = usize::from(prefix.len).saturating_sub(i * 8).min(8);
            (0xff00u16 >> ones) as u8
        })
        .collect();
    let value = octets.iter().zip(&mask).map(|(a, m)| a & m).collect();
    (value, mask)
}

/// The flow rules that match what `rule` matches.
///
/// # Errors
/// Why a NIC cannot be told so.
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
        Some(proto) if has_ports && ![TCP, UDP, SCTP].contains(&proto) => {
            return Err("it matches nothing");
        }
        Some(proto) => vec![Some(proto)],
        None if has_ports => vec![Some(TCP), Some(UDP), Some(SCTP)],
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
    let mut flows = Vec::with_capacity(count);
    for &family in &families {
        for &proto in &protocols {
            for &sport in &sports {
                for &dport in &dports {
                    flows.push(of_ip(rule, (family, proto), vlan, sport, dport));
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
    let mut flow = Flow::of_type(ETHER_FLOW, vlan);
    if let Some(ether) = ether {
        if TAGS.contains(&ether) {
            return Err("it matches tags");
        }
        flow.put(ETHER_PROTO, &ether.to_be_bytes(), &[0xff; 2]);
    }
    Ok(vec![flow])
}

fn of_ip(
    rule: &Rule,
    (family, proto): (u16, Option<u8>),
    vlan: Option<u16>,
    sport: Option<(u16, u16)>,
    dport: Option<(u16, u16)>,
) -> Flow {
    let is_v4 = family == ETHER_IPV4;
    let (kind, is_any) = match (proto, is_v4) {
        (Some(TCP), true) => (TCP_V4_FLOW, false),
        (Some(UDP), true) => (UDP_V4_FLOW, false),
        (Some(SCTP), true) => (SCTP_V4_FLOW, false),
        (_, true) => (IPV4_USER_FLOW, true),
        (Some(TCP), false) => (TCP_V6_FLOW, false),
        (Some(UDP), false) => (UDP_V6_FLOW, false),
        (Some(SCTP), false) => (SCTP_V6_FLOW, false),
        (_, false) => (IPV6_USER_FLOW, true),
    };
    let fields = if is_v4 { V4 } else { V6 };
    let mut flow = Flow::of_type(kind, vlan);
    flow.put_prefix(fields.src, rule.src);
    flow.put_prefix(fields.dst, rule.dst);
    if is_any {
        if is_v4 {
            flow.0[VALUES + V4_VERSION] = ETH_RX_NFC_IP4;
        }
        if let Some(proto) = proto {
            flow.put(fields.proto, &[proto], &[0xff]);
        }
    }
    for (at, port) in [(fields.ports, sport), (fields.ports + 2, dport)] {
        if let Some(port) = port {
            flow.put_port(at, port);
        }
    }
    flow
}

/// A range as values and masks: the largest blocks that lie within it, from its start on. All ports are one block
/// without a mask.
fn port_masks(range: Option<&RangeInclusive<u16>>) -> Vec<Option<(u16, u16)>> {
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

    fn prefix(address: &str, len: u8) -> Option<Prefix> {
        let address = address.parse().expect("an address");
        Some(Prefix { address, len })
    }

    /// What `linux/ethtool.h` has at the bytes that are not zero, by a C program on a little-endian machine.
    fn expect(flow: &Flow, (queue, location): (u32, u32), set: &[(usize, &[u8])]) {
        let mut expected = [0u8; FLOW_BYTES];
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
    fn what_a_nic_cannot_be_told_is_refused() {
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

    #[test]
    fn a_queue_is_read_back_and_what_leads_nowhere_has_none() {
        let flow = only(&Rule {
            ether: Some(0x0806),
            ..Rule::default()
        });
        assert_eq!(Flow::queue_of(&flow.bytes(9, 1)), Some(9));
        let mut dropping = flow.bytes(0, 1);
        dropping[RING_COOKIE..RING_COOKIE + 8].fill(0xff);
        assert_eq!(Flow::queue_of(&dropping), None);
    }
}
