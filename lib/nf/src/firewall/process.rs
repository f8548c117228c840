//! What happens to a frame.

use super::Firewall;
use super::cache::Key;
use super::config::{DefaultPolicy, NonIp};
use super::metrics::Drop;
use super::packet::{Packet, Transport};
use super::reject;
use super::rule::{Answer, ICMP, ICMPV6, RuleAction};
use crate::function::Nanos;
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use nfluid_ring::layout::BATCH_MAX;
use nfluid_ring::{Batch, Frame, Outbox};
use nfluid_wire::EtherType;
use nfluid_wire::PacketMeta;
use nfluid_wire::icmpv4::Icmpv4Type;
use nfluid_wire::icmpv6::Icmpv6Type;

/// What was decided about a packet.
enum Verdict {
    Forward,
    Drop(Drop),
    Reject(Answer),
}

/// An IP packet of a batch, for which the rule has been or will be looked up.
struct Pending {
    frame: usize,
    packet: Packet,
}

impl Firewall {
    pub(super) fn handle(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        let (frames, outbox) = batch.split();
        if self.ruleset.is_long() && self.ruleset.checks_states_at() == usize::MAX {
            self.handle_together(now, frames, outbox);
        } else {
            for frame in frames {
                self.handle_frame(now, frame, outbox);
            }
        }
    }

    /// For long lists without states: what is not remembered is looked up for all packets of the
    /// batch at once, see [`super::ruleset::Ruleset::first_matches`].
    fn handle_together(&mut self, now: Nanos, frames: &mut [Frame<'_>], outbox: &mut dyn Outbox) {
        let mut pending: ArrayVec<Pending, BATCH_MAX> = ArrayVec::new();
        for (index, frame) in frames.iter_mut().enumerate() {
            match self.parse(frame) {
                Ok((packet, _)) => match self.remembered(&packet) {
                    Some(found) => {
                        let verdict = self.decide_by_rules(now, &packet, frame.len(), found);
                        self.act(now, verdict, frame, outbox);
                    }
                    None => pending.push(Pending {
                        frame: index,
                        packet,
                    }),
                },
                Err(verdict) => self.act(now, verdict, frame, outbox),
            }
        }
        let mut found = [None; BATCH_MAX];
        let found = &mut found[..pending.len()];
        self.ruleset
            .first_matches(pending.iter().map(|p| &p.packet), found);
        for (Pending { frame, packet }, found) in pending.iter().zip(found) {
            self.remember(packet, *found);
            let frame = &mut frames[*frame];
            let verdict = self.decide_by_rules(now, packet, frame.len(), *found);
            self.act(now, verdict, frame, outbox);
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
            Ok((packet, meta)) => self.decide(now, &packet, &meta, frame.bytes()),
            Err(verdict) => verdict,
        };
        self.act(now, verdict, frame, outbox);
    }

    /// The packet in a frame, or what becomes of a frame that holds none.
    #[inline(always)]
    fn parse(&mut self, frame: &Frame<'_>) -> Result<(Packet, PacketMeta), Verdict> {
        match PacketMeta::parse(frame.bytes()) {
            Err(error) => {
                self.counters.malformed(error);
                Err(Verdict::Drop(Drop::Malformed))
            }
            Ok(meta) => match Packet::new(&meta, frame.in_port() & 1) {
                Some(packet) => Ok((packet, meta)),
                None => Err(self.decide_non_ip(meta.ethertype)),
            },
        }
    }

    #[inline]
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
                self.counters.forwarded(in_port, frame.len());
                frame.send(in_port ^ 1);
            }
            Verdict::Drop(reason) => {
                self.counters.dropped(reason);
                frame.discard();
            }
            Verdict::Reject(answer) => {
                self.counters.dropped(Drop::Rejected);
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
    fn decide(&mut self, now: Nanos, packet: &Packet, meta: &PacketMeta, bytes: &[u8]) -> Verdict {
        let check_at = self.ruleset.checks_states_at();
        let mut states_checked = false;
        if check_at == 0 {
            states_checked = true;
            if self.admitted_by_state(now, packet, meta, bytes) {
                return Verdict::Forward;
            }
        }
        let mut start = 0;
        loop {
            let found = self.ruleset.first_match(packet, start);
            if !states_checked && found.is_none_or(|index| index >= check_at) {
                states_checked = true;
                if self.admitted_by_state(now, packet, meta, bytes) {
                    return Verdict::Forward;
                }
            }
            match self.apply(now, packet, bytes.len(), found) {
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
        len: usize,
        mut found: Option<usize>,
    ) -> Verdict {
        loop {
            match self.apply(now, packet, len, found) {
                ControlFlow::Break(verdict) => return verdict,
                ControlFlow::Continue(next) => found = self.ruleset.first_match(packet, next),
            }
        }
    }

    /// Counts a match, or that there is none, and does what the rule says: the verdict, or where
    /// evaluation goes on.
    #[inline]
    fn apply(
        &mut self,
        now: Nanos,
        packet: &Packet,
        len: usize,
        found: Option<usize>,
    ) -> ControlFlow<Verdict, usize> {
        let Some(index) = found else {
            self.counters.default_policy(len);
            return ControlFlow::Break(match self.default {
                DefaultPolicy::Allow => Verdict::Forward,
                DefaultPolicy::Deny => Verdict::Drop(Drop::Default),
            });
        };
        self.counters.matched(index, len);
        let (action, keep_state) = self.ruleset.action(index);
        ControlFlow::Break(match action {
            RuleAction::Count | RuleAction::CheckState => {
                return ControlFlow::Continue(index + 1);
            }
            RuleAction::Deny => Verdict::Drop(Drop::Rule),
            RuleAction::Reject(answer) => Verdict::Reject(answer),
            RuleAction::Allow => match keep_state {
                None => Verdict::Forward,
                Some(keep) => match self.states.create(index as u32, keep, packet, len, now) {
                    Ok(_) => Verdict::Forward,
                    Err(refusal) => Verdict::Drop(Drop::Refused(refusal)),
                },
            },
        })
    }

    /// Whether a state admits the packet, which then counts for the rule that made the state.
    #[inline]
    fn admitted_by_state(
        &mut self,
        now: Nanos,
        packet: &Packet,
        meta: &PacketMeta,
        bytes: &[u8],
    ) -> bool {
        let rule = match self.states.admit(packet, bytes.len(), now) {
            Some(rule) => Some(rule),
            None if self.icmp_errors => self.state_of_error(now, packet, meta, bytes),
            None => None,
        };
        if let Some(rule) = rule {
            self.counters.matched(rule as usize, bytes.len());
        }
        rule.is_some()
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
