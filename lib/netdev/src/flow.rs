//! Flow rules of a NIC (`struct ethtool_rx_flow_spec`, `linux/ethtool.h`): the matched fields, and the queue that
//! takes the frames.

use std::net::IpAddr;

/// `struct ethtool_rx_flow_spec`.
pub(crate) const FLOW_BYTES: usize = 168;

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

const TCP: u8 = libc::IPPROTO_TCP as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;
const SCTP: u8 = libc::IPPROTO_SCTP as u8;

/// Offsets of the parts of the structure. A mask has the same offset within the masks as its field within the values.
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

/// A port and its mask: ports of which the bits of the mask are these match.
pub type PortMask = (u16, u16);

/// The properties that a flow rule asks of a packet with an IP header. An absent one matches all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpFlow {
    /// IPv6 instead of IPv4.
    pub is_v6: bool,
    /// VLAN id.
    pub vlan: Option<u16>,
    /// IP protocol.
    pub proto: Option<u8>,
    /// Source: address and length of the prefix in bits; an address of the version that is asked for.
    pub src: Option<(IpAddr, u8)>,
    /// Destination, likewise.
    pub dst: Option<(IpAddr, u8)>,
    /// Source port, with a protocol of [`Flow::WITH_PORTS`].
    pub sport: Option<PortMask>,
    /// Destination port, likewise.
    pub dport: Option<PortMask>,
}

/// A flow rule without its queue and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow([u8; FLOW_BYTES]);

impl Flow {
    /// IP protocols whose ports a flow rule can ask for.
    pub const WITH_PORTS: [u8; 3] = [TCP, UDP, SCTP];

    /// The rule for frames that need have no IP header: by EtherType, which is that of no tag, by VLAN id, or both.
    pub fn ether(ether: Option<u16>, vlan: Option<u16>) -> Self {
        let mut flow = Self::of_type(ETHER_FLOW, vlan);
        if let Some(ether) = ether {
            flow.put(ETHER_PROTO, &ether.to_be_bytes(), &[0xff; 2]);
        }
        flow
    }

    /// The rule for IP packets.
    pub fn ip(wanted: &IpFlow) -> Self {
        let (kind, is_any) = match (wanted.proto, wanted.is_v6) {
            (Some(TCP), false) => (TCP_V4_FLOW, false),
            (Some(UDP), false) => (UDP_V4_FLOW, false),
            (Some(SCTP), false) => (SCTP_V4_FLOW, false),
            (_, false) => (IPV4_USER_FLOW, true),
            (Some(TCP), true) => (TCP_V6_FLOW, false),
            (Some(UDP), true) => (UDP_V6_FLOW, false),
            (Some(SCTP), true) => (SCTP_V6_FLOW, false),
            (_, true) => (IPV6_USER_FLOW, true),
        };
        let fields = if wanted.is_v6 { V6 } else { V4 };
        let mut flow = Self::of_type(kind, wanted.vlan);
        flow.put_prefix(fields.src, wanted.src);
        flow.put_prefix(fields.dst, wanted.dst);
        if is_any {
            if !wanted.is_v6 {
                flow.0[VALUES + V4_VERSION] = ETH_RX_NFC_IP4;
            }
            if let Some(proto) = wanted.proto {
                flow.put(fields.proto, &[proto], &[0xff]);
            }
        }
        for (at, port) in [
            (fields.ports, wanted.sport),
            (fields.ports + 2, wanted.dport),
        ] {
            if let Some(port) = port {
                flow.put_port(at, port);
            }
        }
        flow
    }

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

    fn put_prefix(&mut self, at: usize, prefix: Option<(IpAddr, u8)>) {
        if let Some(prefix) = prefix {
            let (value, mask) = masked(prefix);
            self.put(at, &value, &mask);
        }
    }

    fn put_port(&mut self, at: usize, (value, mask): PortMask) {
        self.put(at, &value.to_be_bytes(), &mask.to_be_bytes());
    }
}

/// Address and mask, in network order.
fn masked((address, len): (IpAddr, u8)) -> (Vec<u8>, Vec<u8>) {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mask: Vec<u8> = (0..octets.len())
        .map(|i| {
            let ones = usize::from(len).saturating_sub(i * 8).min(8);
            (0xff00u16 >> ones) as u8
        })
        .collect();
    let value = octets.iter().zip(&mask).map(|(a, m)| a & m).collect();
    (value, mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_read_back_and_what_leads_nowhere_has_none() {
        let flow = Flow::ether(Some(0x0806), None);
        assert_eq!(Flow::queue_of(&flow.bytes(9, 1)), Some(9));
        let mut dropping = flow.bytes(0, 1);
        dropping[RING_COOKIE..RING_COOKIE + 8].fill(0xff);
        assert_eq!(Flow::queue_of(&dropping), None);
    }
}
