//! Extension headers of IPv6 packets to the router itself (RFC 8200 section 4). A packet that is
//! forwarded keeps them unread.

use super::icmp::Error;
use nfluid_wire::IpProtocol;
use nfluid_wire::ipv6::{self, Ipv6Packet, UpperLayer};

/// The position of the next-header field in the fixed header.
const NEXT_HEADER: u32 = 6;
const PAD1: u8 = 0;
const PAD_N: u8 = 1;
/// RFC 2711. The router looks at all packets to itself anyway.
const ROUTER_ALERT: u8 = 5;

/// Checks the headers before the upper layer. Returns where the number of the upper layer's protocol
/// stands, in bytes from the start of the packet.
///
/// # Errors
/// Returns the error for the sender, if the sender gets one. The packet is dropped.
pub(super) fn check<T: AsRef<[u8]>>(
    packet: &Ipv6Packet<T>,
    layer: &UpperLayer,
) -> Result<u32, Option<Error>> {
    let payload = packet.payload();
    let (mut kind, mut start, mut named_at) = (packet.next_header(), 0, NEXT_HEADER);
    while start < layer.offset {
        let Some([next, units, ..]) = payload.get(start..) else {
            break;
        };
        let length = match kind {
            IpProtocol::IPV6_FRAGMENT => 8,
            IpProtocol::AH => (usize::from(*units) + 2) * 4,
            _ => (usize::from(*units) + 1) * 8,
        };
        let at = (ipv6::HEADER_LEN + start) as u32;
        let header = payload.get(start..start + length).unwrap_or_default();
        match kind {
            // Section 4: anywhere else it is not recognized.
            IpProtocol::HOP_BY_HOP if start > 0 => {
                return Err(Some(Error::ProtocolUnreachable { pointer: named_at }));
            }
            IpProtocol::HOP_BY_HOP | IpProtocol::IPV6_OPTS => check_options(header, at)?,
            // Section 4.4. No type is recognized; RFC 5095 has done away with type 0.
            IpProtocol::IPV6_ROUTE
                if header
                    .get(3)
                    .is_some_and(|segments_left| *segments_left != 0) =>
            {
                return Err(Some(Error::ParameterProblem { pointer: at + 2 }));
            }
            _ => {}
        }
        kind = IpProtocol(*next);
        named_at = at;
        start += length;
    }
    Ok(named_at)
}

/// The options of a header that begins at `at`: what to do with an unknown one its first two bits say
/// (section 4.2).
fn check_options(header: &[u8], at: u32) -> Result<(), Option<Error>> {
    let mut here = 2;
    while let Some(&kind) = header.get(here) {
        let pointer = at + here as u32;
        if kind == PAD1 {
            here += 1;
            continue;
        }
        let length = header.get(here + 1).map(|length| usize::from(*length));
        let next = length.map(|length| here + 2 + length);
        let Some(next) = next.filter(|next| *next <= header.len()) else {
            return Err(Some(Error::ParameterProblem {
                pointer: pointer + 1,
            }));
        };
        match kind >> 6 {
            _ if matches!(kind, PAD_N | ROUTER_ALERT) => {}
            0 => {}
            1 => return Err(None),
            action => {
                let even_to_many = action == 2;
                return Err(Some(Error::UnknownOption {
                    pointer,
                    even_to_many,
                }));
            }
        }
        here = next;
    }
    Ok(())
}
