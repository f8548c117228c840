//! Multicast listener discovery, the listener's side (RFC 3810, and RFC 2710 where the querier
//! speaks it). Switches that look at reports send solicitations for the router's addresses only to
//! ports from which their groups have been reported.

use super::Router;
use super::config::{PORTS_MAX, Port};
use super::metrics::{DropReason, Made};
use super::slow::Verdict;
use crate::function::Nanos;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use nfluid_ring::Outbox;
use nfluid_ring::layout::SLOT_SIZE;
use nfluid_wire::icmpv6::{Icmpv6Packet, Icmpv6Type};
use nfluid_wire::ipv6::{self, Ipv6Packet};
use nfluid_wire::{EtherType, EthernetFrame, IpProtocol, ether, ndp};

/// The receivers of reports of RFC 3810.
const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Number of reports of a change, and the interval (RFC 3810 sections 9.1 and 9.11).
const ROBUSTNESS: u8 = 2;
const UNSOLICITED_INTERVAL: Nanos = Nanos::from_secs(1);
/// Router alert, "MLD" (RFC 2711), and padding.
const HOP_BY_HOP: [u8; 8] = [IpProtocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];
/// Bytes of a query of RFC 2710; one of RFC 3810 is longer.
const QUERY_LEN: usize = 24;
/// A report's header, and a record of it without sources.
const HEADER_LEN: usize = 8;
const RECORD_LEN: usize = 20;
/// Records of a report that fits every IPv6 link.
const RECORDS_MAX: usize = (1280 - ipv6::HEADER_LEN - HOP_BY_HOP.len() - HEADER_LEN) / RECORD_LEN;

/// Kinds of records (RFC 3810 section 5.2.12): the state, and that it has become this.
const MODE_IS_EXCLUDE: u8 = 2;
const CHANGE_TO_EXCLUDE_MODE: u8 = 4;

/// Due times of a port's reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due {
    at: Option<Nanos>,
    /// Number of remaining unsolicited reports.
    unsolicited: u8,
    /// The querier speaks RFC 2710.
    is_old: bool,
}

/// Returns the groups that a port listens to, except all nodes, which is never reported (RFC 3810 section 6).
fn groups(port: &Port) -> Vec<Ipv6Addr> {
    let Some(link_local) = port.link_local else {
        return Vec::new();
    };
    let own = port.v6.iter().map(|own| own.0);
    let own = own.chain(port.anycasts()).chain([link_local]);
    let mut groups: Vec<_> = own.map(ndp::solicited_node).chain([ALL_ROUTERS]).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

impl Router {
    /// Lets all ports report their groups, as their addresses are new.
    pub(super) fn report_soon(&mut self, now: Nanos) {
        self.reports = [Due::default(); PORTS_MAX];
        for (due, port) in self.reports.iter_mut().zip(&self.ports) {
            if port.link_local.is_some() {
                due.at = Some(now);
                due.unsolicited = ROBUSTNESS;
            }
        }
    }

    /// Returns the due time of the next report.
    pub(super) fn next_report(&self) -> Option<Nanos> {
        self.reports.iter().filter_map(|due| due.at).min()
    }

    /// Takes a query; the answer leaves within the time that it gives (RFC 3810 section 6.2).
    pub(super) fn receive_query(
        &mut self,
        now: Nanos,
        port: u8,
        packet: &[u8],
        offset: usize,
    ) -> Verdict {
        let packet = Ipv6Packet::new_unchecked(packet);
        let message = packet.payload().get(offset..).unwrap_or_default();
        let is_near = packet.hop_limit() == 1 && packet.src().is_unicast_link_local();
        let Some(&[high, low]) = message
            .get(4..6)
            .filter(|_| is_near && message.len() >= QUERY_LEN)
        else {
            return Verdict::Drop(DropReason::LocalMalformed);
        };
        let is_old = message.len() == QUERY_LEN;
        let delay_ms = delay_ms(u16::from_be_bytes([high, low]), is_old);
        // The hash spreads reports over the time: its value need not be secret, but must differ between listeners.
        let mac = self.ports[usize::from(port)].mac.to_bits();
        let spread = (mac ^ now.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let after_ms = spread.checked_rem(delay_ms).unwrap_or(0);
        let at = Nanos(now.0.saturating_add(after_ms * 1_000_000));
        let due = &mut self.reports[usize::from(port)];
        due.at = Some(due.at.map_or(at, |before| before.min(at)));
        due.is_old = is_old;
        Verdict::Consumed
    }

    /// Sends the reports that are due.
    pub(super) fn send_reports(&mut self, now: Nanos, outbox: &mut dyn Outbox) {
        for port in 0..self.ports.len() {
            let due = self.reports[port];
            if due.at.is_none_or(|at| at > now) {
                continue;
            }
            let groups = groups(&self.ports[port]);
            let port = port as u8;
            if due.is_old {
                groups
                    .iter()
                    .for_each(|group| self.report_old(port, *group, outbox));
            } else {
                let kind = match due.unsolicited {
                    0 => MODE_IS_EXCLUDE,
                    _ => CHANGE_TO_EXCLUDE_MODE,
                };
                for some in groups.chunks(RECORDS_MAX) {
                    self.report(port, some, kind, outbox);
                }
            }
            let due = &mut self.reports[usize::from(port)];
            due.unsolicited = due.unsolicited.saturating_sub(1);
            let again = Nanos(now.0 + UNSOLICITED_INTERVAL.0);
            due.at = (due.unsolicited > 0).then_some(again);
        }
    }

    /// RFC 3810 section 5.2.
    fn report(&mut self, port: u8, groups: &[Ipv6Addr], kind: u8, outbox: &mut dyn Outbox) {
        let [high, low] = (groups.len() as u16).to_be_bytes();
        let mut message = Vec::from([Icmpv6Type::MLDV2_REPORT.0, 0, 0, 0, 0, 0, high, low]);
        for group in groups {
            message.extend([kind, 0, 0, 0]);
            message.extend(group.octets());
        }
        self.send_report(port, ALL_MLDV2_ROUTERS, &message, outbox);
    }

    /// RFC 2710 section 3.
    fn report_old(&mut self, port: u8, group: Ipv6Addr, outbox: &mut dyn Outbox) {
        let mut message = Vec::from([Icmpv6Type::MLD_REPORT.0, 0, 0, 0, 0, 0, 0, 0]);
        message.extend(group.octets());
        self.send_report(port, group, &message, outbox);
    }

    fn send_report(&mut self, port: u8, to: Ipv6Addr, message: &[u8], outbox: &mut dyn Outbox) {
        let on = &self.ports[usize::from(port)];
        let Some(from) = on.link_local else {
            return;
        };
        let length = HOP_BY_HOP.len() + message.len();
        let mut buffer = [0u8; SLOT_SIZE];
        let Some(frame) = buffer.get_mut(..ether::HEADER_LEN + ipv6::HEADER_LEN + length) else {
            return;
        };
        let mut link = EthernetFrame::new_unchecked(&mut *frame);
        link.set_dst(ndp::multicast_mac(to));
        link.set_src(on.mac);
        frame[12..14].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
        let mut packet = Ipv6Packet::new_unchecked(&mut frame[ether::HEADER_LEN..]);
        packet.set_version_class_flow(0, 0);
        packet.set_payload_len(length as u16);
        packet.set_next_header(IpProtocol::HOP_BY_HOP);
        packet.set_hop_limit(1);
        packet.set_src(from);
        packet.set_dst(to);
        let (options, rest) = packet.payload_mut().split_at_mut(HOP_BY_HOP.len());
        options.copy_from_slice(&HOP_BY_HOP);
        rest.copy_from_slice(message);
        Icmpv6Packet::new_unchecked(rest).fill_checksum(from, to);
        self.counters.made(Made::Report);
        self.emit(port, frame, outbox);
    }
}

/// The time that a query gives, in milliseconds (RFC 3810 section 5.1.3).
fn delay_ms(code: u16, is_old: bool) -> u64 {
    let (exponent, mantissa) = (code >> 12 & 7, u64::from(code & 0x0fff));
    match code {
        0x8000.. if !is_old => (mantissa | 0x1000) << (exponent + 3),
        _ => u64::from(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_query_is_a_number_or_a_floating_point_one() {
        assert_eq!(delay_ms(10_000, false), 10_000);
        assert_eq!(delay_ms(0x8000, false), 32_768);
        assert_eq!(delay_ms(0xffff, false), 0x1fff << 10);
        assert_eq!(delay_ms(0xffff, true), 65_535);
    }
}
