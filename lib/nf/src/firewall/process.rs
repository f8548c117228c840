//! Processing of a frame.

use super::Firewall;
use super::cache::Key;
use super::config::{DefaultPolicy, NonIp};
use super::metrics::Drop;
use super::packet::{Packet, Transport};
use super::reject;
use super::rule::{Answer, ICMP, ICMPV6, RuleAction};
use crate::function::Nanos;
use crate::tcp::Segment;
use crate::traffic::OnWire;
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use nfluid_ring::layout::BATCH_MAX;
use nfluid_ring::{Batch, Frame, Outbox, frame_at};
use nfluid_wire::flow::Fragment;
use nfluid_wire::icmpv4::Icmpv4Type;
use nfluid_wire::icmpv6::Icmpv6Type;
use nfluid_wire::{EtherType, IpProtocol, PacketMeta, ParseError};

/// The decision about a packet.
enum Verdict {
    Forward,
    Drop(Drop),
    Reject(Answer),
}

/// RFC 3128: only an attack has a TCP fragment at offset 8, which writes the flags of the first one over. The
/// rules have seen others.
#[inline]
fn overwrites_flags(meta: &PacketMeta) -> bool {
    meta.fragment_offset == 8 && meta.protocol == IpProtocol::TCP
}

impl Firewall {
    pub(super) fn handle(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        let (frames, outbox) = batch.split();
        if self.ruleset.is_long() && self.ruleset.checks_states_at() == usize::MAX {
            self.handle_together(now, frames, outbox);
        } else {
            for at in 0..frames.len() {
                let (frame, mut outbox) = frame_at(frames, at, outbox);
                self.handle_frame(now, frame, &mut outbox);
            }
        }
    }

    /// For long lists without states: results that are not remembered are looked up for all packets of the batch at
    /// once, see [`super::ruleset::Ruleset::first_matches`].
    fn handle_together(&mut self, now: Nanos, frames: &mut [Frame<'_>], outbox: &mut dyn Outbox) {
        let mut packets: ArrayVec<Result<Packet, Verdict>, BATCH_MAX> = ArrayVec::new();
        let mut unknown: ArrayVec<usize, BATCH_MAX> = ArrayVec::new();
        let mut found = [None; BATCH_MAX];
        for (at, frame) in frames.iter_mut().take(BATCH_MAX).enumerate() {
            let packet = self.parse(frame).map(|(packet, _)| packet);
            if let Ok(packet) = &packet {
                match self.remembered(packet) {
                    Some(rule) => found[at] = rule,
                    None => unknown.push(at),
                }
            }
            packets.push(packet);
        }
        let mut first = [None; BATCH_MAX];
        let first = &mut first[..unknown.len()];
        let asked = unknown.iter().filter_map(|at| packets[*at].as_ref().ok());
        self.ruleset.first_matches(asked.clone(), first);
        for ((at, packet), rule) in unknown.iter().zip(asked).zip(first) {
            self.remember(packet, *rule);
            found[*at] = *rule;
        }
        // The packets are handled in order, as rejected packets are answered: see `frame_at`.
        for (at, packet) in packets.into_iter().enumerate() {
            let (frame, mut outbox) = frame_at(frames, at, outbox);
            let verdict = match packet {
                Ok(packet) => self.decide_by_rules(now, &packet, frame, found[at]),
                Err(verdict) => verdict,
            };
            self.act(now, verdict, frame, &mut outbox);
        }
    }

    /// The first rule that matched a packet alike.
    #[inline]
    fn remembered(&mut self, packet: &Packet) -> Option<Option<usize>> {
        self.cache.as_mut()?.get(Key::of(packet)?)
    }

    #[inline]
    fn remember(&mut self, packet: &Packet, found: Option<usize>) {
        if let (Some(cache), Some(key)) = (&mut self.cache, Key::of(packet)) {
            cache.put(key, found);
        }
    }

    #[inline]
    fn handle_frame(&mut self, now: Nanos, frame: &mut Frame<'_>, outbox: &mut dyn Outbox) {
        let verdict = match self.parse(frame) {
            Ok((packet, meta)) => self.decide(now, &packet, &meta, frame),
            Err(verdict) => verdict,
        };
        self.act(now, verdict, frame, outbox);
    }

    /// The packet in a frame, as it will be on a wire, or what becomes of a frame that holds none.
    #[inline(always)]
    fn parse(&mut self, frame: &mut Frame<'_>) -> Result<(Packet, PacketMeta), Verdict> {
        if let Err(error) = frame.settle() {
            return Err(self.malformed(error, frame));
        }
        match PacketMeta::parse(frame.bytes()) {
            Err(error) => Err(self.malformed(error, frame)),
            Ok(meta) if overwrites_flags(&meta) => {
                Err(self.malformed(ParseError::TcpOverlappingFragment, frame))
            }
            Ok(meta) if self.claims_foreign_address(frame.in_port() & 1, &meta, frame.bytes()) => {
                Err(Verdict::Drop(Drop::ForeignAddress))
            }
            Ok(meta) => match Packet::new(&meta, frame.in_port() & 1) {
                Some(packet) => Ok((packet, meta)),
                None => Err(self.decide_non_ip(meta.ethertype)),
            },
        }
    }

    #[cold]
    fn malformed(&mut self, error: ParseError, frame: &Frame<'_>) -> Verdict {
        self.counters.malformed(error, OnWire::of(frame));
        Verdict::Drop(Drop::Malformed)
    }

    #[inline(always)]
    fn act(
        &mut self,
        now: Nanos,
        verdict: Verdict,
        frame: &mut Frame<'_>,
        outbox: &mut dyn Outbox,
    ) {
        match verdict {
            Verdict::Forward => {
                let in_port = frame.in_port() & 1;
                self.counters.forwarded(in_port, OnWire::of(frame));
                frame.send(in_port ^ 1);
            }
            Verdict::Drop(reason) => {
                self.counters.dropped(reason, OnWire::of(frame));
                frame.discard();
            }
            Verdict::Reject(answer) => {
                self.counters.dropped(Drop::Rejected, OnWire::of(frame));
                let sent = reject::answer(&mut self.answers, now, answer, frame, outbox);
                self.counters.answered(sent);
                frame.discard();
            }
        }
    }

    fn decide_non_ip(&self, ethertype: EtherType) -> Verdict {
        match self.non_ip {
            NonIp::Allow => Verdict::Forward,
            NonIp::Arp if ethertype == EtherType::ARP => Verdict::Forward,
            NonIp::Arp | NonIp::Deny => Verdict::Drop(Drop::NonIp),
        }
    }

    #[inline]
    fn decide(
        &mut self,
        now: Nanos,
        packet: &Packet,
        meta: &PacketMeta,
        frame: &Frame<'_>,
    ) -> Verdict {
        let check_at = self.ruleset.checks_states_at();
        let mut states_checked = false;
        if check_at == 0 {
            states_checked = true;
            if let Some(verdict) = self.decide_by_state(now, packet, meta, frame) {
                return verdict;
            }
        }
        let mut start = 0;
        loop {
            let found = self.ruleset.first_match(packet, start);
            if !states_checked && found.is_none_or(|index| index >= check_at) {
                states_checked = true;
                if let Some(verdict) = self.decide_by_state(now, packet, meta, frame) {
                    return verdict;
                }
            }
            match self.apply(now, packet, frame, found, || segment(meta, frame.bytes())) {
                ControlFlow::Break(verdict) => return verdict,
                ControlFlow::Continue(next) => start = next,
            }
        }
    }

    /// The verdict of a list without states, `found` being the first rule that matches.
    #[inline]
    fn decide_by_rules(
        &mut self,
        now: Nanos,
        packet: &Packet,
        frame: &Frame<'_>,
        mut found: Option<usize>,
    ) -> Verdict {
        loop {
            match self.apply(now, packet, frame, found, || None) {
                ControlFlow::Break(verdict) => return verdict,
                ControlFlow::Continue(next) => found = self.ruleset.first_match(packet, next),
            }
        }
    }

    /// Counts a match, or that there is none, and does the rule's action: returns the verdict, or where evaluation
    /// goes on. `segment` reads the packet's TCP segment, for a rule that keeps states.
    #[inline]
    fn apply<'a>(
        &mut self,
        now: Nanos,
        packet: &Packet,
        frame: &Frame<'_>,
        found: Option<usize>,
        segment: impl FnOnce() -> Option<Segment<'a>>,
    ) -> ControlFlow<Verdict, usize> {
        let Some(index) = found else {
            self.counters.default_policy(OnWire::of(frame));
            return ControlFlow::Break(match self.default {
                DefaultPolicy::Allow => Verdict::Forward,
                DefaultPolicy::Deny => Verdict::Drop(Drop::Default),
            });
        };
        self.counters.matched(index, OnWire::of(frame));
        let (action, keep_state) = self.ruleset.action(index);
        ControlFlow::Break(match action {
            RuleAction::Count | RuleAction::CheckState => {
                return ControlFlow::Continue(index + 1);
            }
            RuleAction::Deny => Verdict::Drop(Drop::Rule),
            RuleAction::Reject(answer) => Verdict::Reject(answer),
            RuleAction::Allow => match keep_state {
                None => Verdict::Forward,
                Some(keep) => {
                    let (rule, segment) = (index as u32, segment());
                    let frame = OnWire::of(frame);
                    let made = self
                        .states
                        .create(rule, keep, packet, segment.as_ref(), frame, now);
                    match made {
                        Ok(_) => Verdict::Forward,
                        Err(refusal) => Verdict::Drop(Drop::Refused(refusal)),
                    }
                }
            },
        })
    }

    /// Returns the decision of a state about the packet, if there is a state of its flow. A packet that the state
    /// admits counts for the rule that made the state.
    #[inline]
    fn decide_by_state(
        &mut self,
        now: Nanos,
        packet: &Packet,
        meta: &PacketMeta,
        frame: &Frame<'_>,
    ) -> Option<Verdict> {
        let bytes = frame.bytes();
        let segment = || segment(meta, bytes);
        let rule = match self.states.admit(packet, OnWire::of(frame), now, segment) {
            Ok(Some(rule)) => rule,
            Ok(None) if self.icmp_errors => self.state_of_error(now, packet, meta, bytes)?,
            Ok(None) => return None,
            Err(refusal) => return Some(Verdict::Drop(Drop::Refused(refusal))),
        };
        self.counters.matched(rule as usize, OnWire::of(frame));
        Some(Verdict::Forward)
    }

    /// The rule of the state that the packet quoted in an ICMP error belongs to.
    fn state_of_error(
        &self,
        now: Nanos,
        packet: &Packet,
        meta: &PacketMeta,
        bytes: &[u8],
    ) -> Option<u32> {
        let Transport::Icmp { kind, .. } = packet.transport else {
            return None;
        };
        let is_error = match packet.protocol {
            ICMP => Icmpv4Type(kind).is_error() && Icmpv4Type(kind) != Icmpv4Type::REDIRECT,
            ICMPV6 => Icmpv6Type(kind).is_error(),
            _ => false,
        };
        if !is_error {
            return None;
        }
        // The quoted packet went the other way, and the error goes to its sender.
        let quoted = bytes.get(usize::from(meta.payload_offset)..meta.l3_end())?;
        let quoted = PacketMeta::parse_quoted(quoted).ok()?;
        let mut offender = Packet::new(&quoted, packet.in_port ^ 1)?;
        offender.vlan = packet.vlan;
        if offender.addresses.src() != packet.addresses.dst() {
            return None;
        }
        self.states.knows(&offender, now)
    }
}

/// The TCP segment of a frame that has one.
#[inline]
fn segment<'a>(meta: &PacketMeta, bytes: &'a [u8]) -> Option<Segment<'a>> {
    if meta.protocol != IpProtocol::TCP || meta.fragment == Fragment::Later {
        return None;
    }
    let payload = bytes.get(usize::from(meta.l4_offset)..meta.l3_end())?;
    Segment::read(payload, meta.fragment == Fragment::None)
}
