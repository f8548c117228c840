//! Processing of a batch of frames.
//!
//! Several passes, so that the cache misses of a batch's table look-ups overlap instead of adding
//! up: parse and hash all, find all table slots, look at all mappings, at all sessions; then decide
//! in order. The decision checks whatever the earlier passes found: that was a guess, and a frame
//! before it may have changed it.

use super::Nat;
use super::clock::Tenths;
use super::config::{NonIpv4, Untranslated, is_unicast};
use super::fragment::{Course, Datagram};
use super::ident;
use super::metrics::DropReason;
use super::packet::{Class, Packet};
use super::rewrite::{self, End};
use crate::table::NONE;
use crate::traffic::OnWire;
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;
use nfluid_ring::layout::BATCH_MAX;
use nfluid_ring::{Batch, Frame, Outbox, frame_at};
use nfluid_wire::MacAddr;
use nfluid_wire::ether::EthernetFrame;
use nfluid_wire::ipv4::Ipv4Packet;

/// Port towards the hosts that are hidden.
pub(super) const INSIDE: u8 = 0;
/// Port towards all other hosts.
pub(super) const OUTSIDE: u8 = 1;

/// Findings about a frame of the passes before the decision.
pub(super) struct Work {
    pub(super) packet: Packet,
    hash: u64,
    mapping: u32,
}

/// The port by which a frame leaves, or the reason against it.
pub(super) type Verdict = Result<u8, DropReason>;

impl Nat {
    pub(super) fn process_batch(&mut self, now: Tenths, batch: &mut Batch<'_, '_>) {
        let (frames, outbox) = batch.split();
        let mut works: ArrayVec<Work, BATCH_MAX> =
            frames.iter_mut().map(|frame| self.parse(frame)).collect();
        for (work, frame) in works.iter_mut().zip(&*frames) {
            self.locate(work, frame.in_port());
        }
        let sessions: ArrayVec<u32, BATCH_MAX> = works
            .iter()
            .map(|work| self.latest_session(work.mapping))
            .collect();
        let peers = sessions
            .iter()
            .fold(0, |sum, &session| sum ^ self.peer_address(session));
        // The value that was read is used, else reading it would be in vain.
        self.state.stir(u64::from(peers));
        for (at, work) in works.iter().enumerate() {
            let (frame, mut behind) = frame_at(frames, at, outbox);
            // Named as it arrived: the decision translates it.
            let first = datagram(frame, &work.packet).filter(|_| work.packet.first_fragment);
            let passed = if self.mtus.is_large(&work.packet) {
                self.take_large(now, frame, work, &mut behind)
            } else {
                self.take(now, frame, work, &mut behind)
            };
            drop(behind);
            if let Some(first) = first {
                self.release(now, first, passed, &frames[..=at], outbox);
            }
        }
    }

    /// Decides about a frame and carries it out. Returns true if it passes.
    #[inline(always)]
    fn take(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        work: &Work,
        outbox: &mut dyn Outbox,
    ) -> bool {
        match self.decide(now, frame, work, outbox) {
            Ok(port) => {
                self.counters
                    .forwarded
                    .count(frame.in_port(), OnWire::of(frame));
                frame.send(port);
                true
            }
            Err(reason) => {
                self.stop(now, frame, work, reason, outbox);
                false
            }
        }
    }

    /// Drops a frame, or lets a fragment wait.
    pub(super) fn stop(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        work: &Work,
        reason: DropReason,
        outbox: &mut dyn Outbox,
    ) {
        let waits =
            reason == DropReason::FragmentUnknown && self.let_wait(now, frame, &work.packet);
        if !waits {
            self.refuse(now, frame, &work.packet, reason, outbox);
            self.counters.dropped_many(reason, packets(frame));
        }
        frame.discard();
    }

    #[inline]
    fn parse(&self, frame: &mut Frame<'_>) -> Work {
        let packet = match frame.settle() {
            Ok(()) => Packet::parse(frame.bytes()),
            Err(_) => Packet::malformed(),
        };
        let key = match frame.in_port() {
            INSIDE => packet.src,
            _ => packet.dst,
        };
        let hash = self
            .state
            .hasher
            .endpoint(packet.protocol, packet.vlan, key);
        Work {
            packet,
            hash,
            mapping: NONE,
        }
    }

    #[inline]
    fn locate(&self, work: &mut Work, in_port: u8) {
        if work.packet.class == Class::Translatable {
            work.mapping = match in_port {
                INSIDE => self.state.likely_inside(work.hash),
                _ => self.state.likely_outside(work.hash),
            };
        }
    }

    /// The session that a mapping used last: probably the one that the frame belongs to.
    #[inline]
    fn latest_session(&self, mapping: u32) -> u32 {
        self.state
            .mappings
            .get(mapping)
            .map_or(NONE, |mapping| mapping.latest)
    }

    #[inline]
    fn peer_address(&self, session: u32) -> u32 {
        self.state
            .sessions
            .get(session)
            .map_or(0, |session| session.peer.address)
    }

    #[inline]
    pub(super) fn decide(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        work: &Work,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = &work.packet;
        match packet.class {
            Class::Translatable | Class::LaterFragment | Class::IcmpError => {
                if frame.in_port() == INSIDE {
                    self.receive_inside(now, frame, work, outbox)
                } else {
                    self.receive_outside(now, frame, work, outbox)
                }
            }
            Class::Arp => self.arp(frame, packet),
            Class::NotIpv4 if self.state.config.non_ipv4 == NonIpv4::Pass => {
                Ok(self.untouched(frame))
            }
            Class::NotIpv4 => Err(DropReason::NotIpv4),
            Class::OtherProtocol => self.untranslated(frame, DropReason::OtherProtocol),
            Class::IcmpOther => self.untranslated(frame, DropReason::IcmpOther),
            Class::Malformed => Err(DropReason::Malformed),
        }
    }

    #[inline]
    fn receive_inside(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        work: &Work,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = &work.packet;
        let config = &self.state.config;
        let hidden = config.inside.is_empty()
            || config
                .inside
                .iter()
                .any(|prefix| prefix.contains_v4(packet.src.address));
        if !hidden || !is_routable(packet.src.address) || !is_routable(packet.dst.address) {
            return self.untranslated(frame, DropReason::Untranslated);
        }
        let hairpin = self.state.is_external(packet.dst.address);
        if hairpin && self.is_for_itself(frame, work) {
            return Ok(self.answer_ping(frame, packet));
        }
        if hairpin && !self.state.config.hairpin {
            return Err(DropReason::HairpinOff);
        }
        let datagram = datagram(frame, packet);
        if packet.over_flags {
            return Err(DropReason::FragmentOverlap);
        }
        match packet.class {
            Class::LaterFragment => return self.follow(now, frame, packet, datagram),
            Class::IcmpError => self.state.outbound_error(now, frame.bytes_mut(), packet)?,
            _ => {
                let mac = source_mac(frame);
                let located = (work.mapping != NONE).then_some(work.mapping);
                let segment = packet.segment(frame.bytes());
                let segment = segment.as_ref();
                let index = self
                    .state
                    .outbound(now, packet, segment, work.hash, located)?;
                self.state.note_outbound(now, index, mac, packets(frame));
                let outside = self
                    .state
                    .mappings
                    .get(index)
                    .map(|mapping| mapping.outside);
                let outside = outside.ok_or(DropReason::NoMapping)?;
                rewrite::set_endpoint(frame, packet, End::Source, outside);
            }
        }
        if ident::is_meant(&frame.bytes()[packet.l3..]) {
            self.identify(now, frame, packet);
        }
        if hairpin {
            self.turn_back(now, frame, outbox)?;
        } else {
            self.counters.out += packets(frame);
        }
        let port = if hairpin { INSIDE } else { OUTSIDE };
        self.remember(now, frame, packet, datagram, port);
        Ok(port)
    }

    /// Gives a packet from one of the hosts inside, which now has an external source, an identification of its own.
    #[inline(never)]
    fn identify(&mut self, now: Tenths, frame: &mut Frame<'_>, packet: &Packet) {
        let hasher = self.state.hasher;
        let datagram = datagram(frame, packet);
        let datagram = datagram.map(|datagram| datagram.sent_by(packet.src.address));
        // A first fragment that comes twice, or late, keeps the treatment of the others.
        let known = datagram.and_then(|datagram| self.fragments.recall(hasher, datagram, now));
        let packets = packets(frame);
        let ip = &mut frame.bytes_mut()[packet.l3..];
        let view = Ipv4Packet::new_unchecked(&*ip);
        let (ends, protocol) = (
            (view.src().to_bits(), view.dst().to_bits()),
            view.protocol(),
        );
        let ident = match known {
            Some(course) => course.ident,
            None => self.idents.take_many(hasher, ends, protocol, packets),
        };
        ident::set(ip, ident);
    }

    /// A packet from inside that now looks as if it came from outside: let it in, like any other
    /// (RFC 4787 REQ-9, RFC 5508 REQ-7).
    fn turn_back(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        outbox: &mut dyn Outbox,
    ) -> Result<(), DropReason> {
        let packet = Packet::parse(frame.bytes());
        let receiver = self.let_in(now, frame, &packet, None)?;
        let gateway = EthernetFrame::new_unchecked(frame.bytes()).dst();
        self.deliver(now, frame, receiver, outbox)?;
        EthernetFrame::new_unchecked(frame.bytes_mut()).set_src(gateway);
        self.counters.hairpin += packets(frame);
        Ok(())
    }

    #[inline]
    fn receive_outside(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        work: &Work,
        outbox: &mut dyn Outbox,
    ) -> Verdict {
        let packet = &work.packet;
        if !self.state.is_external(packet.dst.address) {
            return self.untranslated(frame, DropReason::Untranslated);
        }
        if self.is_for_itself(frame, work) {
            return Ok(self.answer_ping(frame, packet));
        }
        let datagram = datagram(frame, packet);
        if packet.over_flags {
            return Err(DropReason::FragmentOverlap);
        }
        if packet.class == Class::LaterFragment {
            return self.follow(now, frame, packet, datagram);
        }
        let index = self.let_in(now, frame, packet, Some(work))?;
        // Frames come to the port's own address only because the NAT answered for the pool.
        if EthernetFrame::new_unchecked(frame.bytes()).dst() == self.macs[usize::from(OUTSIDE)] {
            self.deliver(now, frame, index, outbox)?;
        }
        self.counters.inbound += packets(frame);
        self.remember(now, frame, packet, datagram, INSIDE);
        Ok(INSIDE)
    }

    /// Translates a packet to an external end point; returns the mapping.
    #[inline]
    fn let_in(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        packet: &Packet,
        work: Option<&Work>,
    ) -> Result<u32, DropReason> {
        if packet.class == Class::IcmpError {
            return self.state.inbound_error(now, frame.bytes_mut(), packet);
        }
        let (hash, located) = match work {
            Some(work) => (work.hash, (work.mapping != NONE).then_some(work.mapping)),
            None => {
                let hasher = self.state.hasher;
                (
                    hasher.endpoint(packet.protocol, packet.vlan, packet.dst),
                    None,
                )
            }
        };
        let segment = packet.segment(frame.bytes());
        let index = self
            .state
            .inbound(now, packet, segment.as_ref(), hash, located)?;
        self.state.note_inbound(now, index, packets(frame));
        let inside = self.state.mappings.get(index).map(|mapping| mapping.inside);
        let inside = inside.ok_or(DropReason::NoMapping)?;
        rewrite::set_endpoint(frame, packet, End::Destination, inside);
        Ok(index)
    }

    /// A later fragment takes the course of the first.
    fn follow(
        &mut self,
        now: Tenths,
        frame: &mut Frame<'_>,
        packet: &Packet,
        datagram: Option<Datagram>,
    ) -> Verdict {
        let course = datagram
            .and_then(|datagram| self.fragments.recall(self.state.hasher, datagram, now))
            .ok_or(DropReason::FragmentUnknown)?;
        let from = frame.in_port();
        self.take_course(from, frame.bytes_mut(), packet, course);
        Ok(course.out_port)
    }

    /// Translates a later fragment from port `from` as its first one was.
    pub(super) fn take_course(
        &mut self,
        from: u8,
        bytes: &mut [u8],
        packet: &Packet,
        course: Course,
    ) {
        let ip = &mut bytes[packet.l3..];
        rewrite::set_address(ip, End::Source, packet.src.address, course.src);
        rewrite::set_address(ip, End::Destination, packet.dst.address, course.dst);
        ident::set(ip, course.ident);
        let mut ethernet = EthernetFrame::new_unchecked(bytes);
        ethernet.set_src(course.src_mac);
        ethernet.set_dst(course.dst_mac);
        match (from, course.out_port) {
            (INSIDE, OUTSIDE) => self.counters.out += 1,
            (INSIDE, _) => self.counters.hairpin += 1,
            _ => self.counters.inbound += 1,
        }
    }

    /// Notes the course of a first fragment, which `frame` is by now.
    #[inline]
    fn remember(
        &mut self,
        now: Tenths,
        frame: &Frame<'_>,
        packet: &Packet,
        datagram: Option<Datagram>,
        out_port: u8,
    ) {
        if !packet.first_fragment {
            return;
        }
        let Some(datagram) = datagram else {
            return;
        };
        let ip = Ipv4Packet::new_unchecked(&frame.bytes()[packet.l3..]);
        let ethernet = EthernetFrame::new_unchecked(frame.bytes());
        let course = Course {
            src: ip.src().to_bits(),
            dst: ip.dst().to_bits(),
            ident: ip.ident(),
            src_mac: ethernet.src(),
            dst_mac: ethernet.dst(),
            out_port,
        };
        let expires = now.plus_secs(self.state.config.timeouts.fragment);
        self.fragments
            .remember(self.state.hasher, datagram, course, expires);
    }

    /// Treats a packet that the NAT does not translate, for a reason.
    fn untranslated(&mut self, frame: &Frame<'_>, reason: DropReason) -> Verdict {
        match self.state.config.untranslated {
            Untranslated::Pass => Ok(self.untouched(frame)),
            Untranslated::Drop => Err(reason),
        }
    }

    /// Sends a frame to the other port as it is.
    pub(super) fn untouched(&mut self, frame: &Frame<'_>) -> u8 {
        self.counters.untouched += packets(frame);
        (frame.in_port() & 1) ^ 1
    }
}

/// The packets that a frame is on a wire: what all counters count.
#[inline]
fn packets(frame: &Frame<'_>) -> u64 {
    OnWire::of(frame).packets()
}

/// The datagram that a fragment belongs to, as it arrived.
#[inline]
pub(super) fn datagram(frame: &Frame<'_>, packet: &Packet) -> Option<Datagram> {
    let is_fragment = packet.first_fragment || packet.class == Class::LaterFragment;
    is_fragment.then(|| Datagram::of(&frame.bytes()[packet.l3..], packet.vlan, frame.in_port()))
}

#[inline]
fn source_mac(frame: &Frame<'_>) -> MacAddr {
    EthernetFrame::new_unchecked(frame.bytes()).src()
}

#[inline]
pub(super) fn is_routable(address: u32) -> bool {
    is_unicast(Ipv4Addr::from_bits(address))
}
