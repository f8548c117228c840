//! The decisions: which end point a packet gets, and whether it may pass at all.

use super::clock::Tenths;
use super::config::Filtering;
use super::endpoint::{Endpoint, Protocol};
use super::metrics::DropReason;
use super::packet::Packet;
use super::state::{Mapping, Refusal, State};
use crate::tcp::{Connection, Effect, End, Policy, Segment};
use nfluid_wire::{MacAddr, TcpFlags};

/// Sessions that are searched for a known address when an outside port opens a connection: bounded work for the
/// attacker's packet.
const KNOWN_ADDRESS_STEPS: usize = 32;

impl From<Refusal> for DropReason {
    fn from(refusal: Refusal) -> DropReason {
        match refusal {
            Refusal::SessionsFull => DropReason::SessionsFull,
            Refusal::HostsFull => DropReason::HostsFull,
            Refusal::HostQuota => DropReason::HostQuota,
            Refusal::PortsExhausted => DropReason::PortsExhausted,
        }
    }
}

impl State {
    /// Translates a packet from inside: opens the mapping and the session that it may open, and returns its mapping.
    /// `located` is the mapping that an earlier look found; it may be stale. `segment` is there if the packet is TCP.
    #[inline]
    pub(super) fn outbound(
        &mut self,
        now: Tenths,
        packet: &Packet,
        segment: Option<&Segment<'_>>,
        hash: u64,
        located: Option<u32>,
    ) -> Result<u32, DropReason> {
        let is_it = |m: &Mapping| {
            m.inside == packet.src && m.protocol == packet.protocol && m.vlan == packet.vlan
        };
        let located = located.filter(|&index| self.mappings.get(index).is_some_and(is_it));
        let found =
            located.or_else(|| self.find_inside(hash, packet.protocol, packet.vlan, packet.src));
        let index = match found {
            Some(index) => index,
            None if self.may_open(packet) => {
                self.open_mapping(now, packet.protocol, packet.vlan, packet.src)?
            }
            None if packet.protocol == Protocol::Tcp => return Err(DropReason::TcpNotSyn),
            None => return Err(DropReason::NoMapping),
        };
        if let Err(reason) = self.outbound_session(now, packet, segment, index) {
            if found.is_none() {
                self.close_mapping(now, index);
            }
            return Err(reason);
        }
        Ok(index)
    }

    fn may_open(&self, packet: &Packet) -> bool {
        let picked_up = packet.protocol == Protocol::Tcp
            && self.config.tcp_pickup
            && !packet.flags.contains(TcpFlags::RST);
        packet.opens || picked_up
    }

    #[inline]
    fn outbound_session(
        &mut self,
        now: Tenths,
        packet: &Packet,
        segment: Option<&Segment<'_>>,
        index: u32,
    ) -> Result<(), DropReason> {
        let peer = self
            .mappings
            .get(index)
            .and_then(|mapping| self.session_peer(mapping, packet.dst));
        let Some(peer) = peer else {
            return Ok(());
        };
        let found = self.find_session(index, peer);
        let session = if let Some(segment) = segment {
            self.outbound_connection(now, packet, segment, index, peer, found)?
        } else {
            let session = found.map_or_else(|| self.open_session(now, index, peer), Ok)?;
            let timeout = self.query_timeout(packet.protocol);
            if let Some(session) = self.sessions.get_mut(session) {
                session.expires = now.plus_secs(timeout);
            }
            session
        };
        if let Some(mapping) = self.mappings.get_mut(index) {
            mapping.latest = session;
        }
        Ok(())
    }

    #[inline]
    fn outbound_connection(
        &mut self,
        now: Tenths,
        packet: &Packet,
        segment: &Segment<'_>,
        index: u32,
        peer: Endpoint,
        found: Option<u32>,
    ) -> Result<u32, DropReason> {
        let session = match self.live(found, now) {
            Some(session) => session,
            None if self.may_open(packet) => self.reopen(now, index, peer, found)?,
            None => return Err(DropReason::TcpNotSyn),
        };
        let followed = self.follow_segment(now, session, End::Near, segment);
        if followed.is_err() && found.is_none() {
            self.close_session(session);
        }
        followed.map(|()| session)
    }

    /// A packet from outside: returns its mapping if there is one and it lets the packet in.
    #[inline]
    pub(super) fn inbound(
        &mut self,
        now: Tenths,
        packet: &Packet,
        segment: Option<&Segment<'_>>,
        hash: u64,
        located: Option<u32>,
    ) -> Result<u32, DropReason> {
        let is_it = |m: &Mapping| {
            m.outside == packet.dst && m.protocol == packet.protocol && m.vlan == packet.vlan
        };
        let located = located.filter(|&index| self.mappings.get(index).is_some_and(is_it));
        let index = located
            .or_else(|| self.find_outside(hash, packet.protocol, packet.vlan, packet.dst))
            .ok_or(DropReason::NoMapping)?;
        let mapping = self.mappings.get(index).ok_or(DropReason::NoMapping)?;
        if packet.protocol != Protocol::Tcp && !mapping.fixed && now >= mapping.expires {
            return Err(DropReason::NoMapping);
        }
        if let Some(peer) = self.session_peer(mapping, packet.src) {
            let found = self.find_session(index, peer);
            let live = self.live(found, now);
            if let Some(segment) = segment {
                let session = match live {
                    Some(session) => session,
                    None if packet.opens && self.admits(now, index, packet.src) => {
                        self.reopen(now, index, peer, found)?
                    }
                    None => return Err(DropReason::Filtered),
                };
                self.follow_segment(now, session, End::Far, segment)?;
            } else {
                let session = live.ok_or(DropReason::Filtered)?;
                self.refresh_inbound(now, session, packet.protocol);
            }
        }
        Ok(index)
    }

    /// The packet that an ICMP error quotes went from mapping `index` to `peer`, or came from
    /// there: true if that is still a session. Never refreshes it (RFC 5508 REQ-9).
    pub(super) fn has_exchange(&self, now: Tenths, index: u32, peer: Endpoint) -> bool {
        let Some(mapping) = self.mappings.get(index) else {
            return false;
        };
        match self.session_peer(mapping, peer) {
            Some(peer) => self.live(self.find_session(index, peer), now).is_some(),
            None => mapping.fixed || now < mapping.expires,
        }
    }

    /// Returns true if filtering lets an outside end point open a connection to a mapping.
    fn admits(&self, now: Tenths, index: u32, stranger: Endpoint) -> bool {
        let fixed = self
            .mappings
            .get(index)
            .is_some_and(|mapping| mapping.fixed);
        match self.config.filtering {
            _ if fixed => true,
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => {
                self.knows_address(index, stranger.address, now, KNOWN_ADDRESS_STEPS)
            }
            Filtering::AddressAndPort => false,
        }
    }

    #[inline]
    fn live(&self, session: Option<u32>, now: Tenths) -> Option<u32> {
        session.filter(|&index| self.sessions.get(index).is_some_and(|s| now < s.expires))
    }

    /// A connection in its first state: the expired session with this peer, or a new one.
    fn reopen(
        &mut self,
        now: Tenths,
        index: u32,
        peer: Endpoint,
        found: Option<u32>,
    ) -> Result<u32, Refusal> {
        let Some(session) = found else {
            return self.open_session(now, index, peer);
        };
        if let Some(session) = self.sessions.get_mut(session) {
            session.tcp = Connection::default();
        }
        Ok(session)
    }

    /// Has the connection of `session` take note of a segment. The near end is the inside host.
    #[inline]
    fn follow_segment(
        &mut self,
        now: Tenths,
        session: u32,
        from: End,
        segment: &Segment<'_>,
    ) -> Result<(), DropReason> {
        let policy = Policy {
            liberal: self.config.tcp_liberal,
            revives: true,
        };
        let Some(entry) = self.sessions.get_mut(session) else {
            return Err(DropReason::NoMapping);
        };
        let was_half_open = entry.tcp.is_half_open();
        let followed = entry.tcp.segment(from, segment, policy);
        let effect = followed.map_err(|_| DropReason::TcpOutOfWindow)?;
        let (stage, is_half_open) = (entry.tcp.stage(), entry.tcp.is_half_open());
        // The queue's memory is another cache line: most packets need not touch it.
        if is_half_open != was_half_open {
            let mapping = entry.mapping;
            self.note_half_open(session, mapping, is_half_open);
        }
        if effect == Effect::Restarts {
            let timeout = self.tcp_timeout(stage);
            if let Some(entry) = self.sessions.get_mut(session) {
                entry.expires = now.plus_secs(timeout);
            }
        }
        Ok(())
    }

    /// Idle timeout of UDP and ICMP mappings in seconds. TCP mappings live as long as their
    /// connections.
    #[inline]
    fn query_timeout(&self, protocol: Protocol) -> u32 {
        match protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => self.config.timeouts.udp,
            Protocol::Icmp => self.config.timeouts.icmp,
        }
    }

    /// Counts packets that mapping `index` translated, of the host that has `mac` now.
    #[inline]
    pub(super) fn note_outbound(&mut self, now: Tenths, index: u32, mac: MacAddr, packets: u64) {
        let Some(mapping) = self.mappings.get_mut(index) else {
            return;
        };
        mapping.packets += packets;
        let moved = mapping.mac != mac;
        mapping.mac = mac;
        let (host, protocol) = (mapping.host, mapping.protocol);
        if protocol != Protocol::Tcp {
            let timeout = self.query_timeout(protocol);
            if let Some(mapping) = self.mappings.get_mut(index) {
                mapping.expires = now.plus_secs(timeout);
            }
        }
        if moved && let Some(host) = self.hosts.get_mut(host) {
            host.mac = mac;
        }
    }

    /// As [`State::note_outbound`], of packets from outside.
    #[inline]
    pub(super) fn note_inbound(&mut self, now: Tenths, index: u32, packets: u64) {
        let refresh = self.config.inbound_refresh;
        let Some(mapping) = self.mappings.get_mut(index) else {
            return;
        };
        mapping.packets += packets;
        let protocol = mapping.protocol;
        if refresh && protocol != Protocol::Tcp {
            let timeout = self.query_timeout(protocol);
            if let Some(mapping) = self.mappings.get_mut(index) {
                mapping.expires = now.plus_secs(timeout);
            }
        }
    }

    fn refresh_inbound(&mut self, now: Tenths, session: u32, protocol: Protocol) {
        if self.config.inbound_refresh {
            let timeout = self.query_timeout(protocol);
            if let Some(session) = self.sessions.get_mut(session) {
                session.expires = now.plus_secs(timeout);
            }
        }
    }
}
