//! What happens to a frame.

use super::Firewall;
use super::config::{DefaultPolicy, NonIp};
use super::metrics::Drop;
use super::packet::{Packet, Transport};
use super::reject;
use super::rule::{Answer, ICMP, ICMPV6, RuleAction};
use crate::function::Nanos;
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

impl Firewall {
    pub(super) fn handle(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        let (frames, outbox) = batch.split();
        for frame in frames {
            self.handle_frame(now, frame, outbox);
        }
    }

    #[inline]
    fn handle_frame(&mut self, now: Nanos, frame: &mut Frame<'_>, outbox: &mut dyn Outbox) {
        let in_port = frame.in_port() & 1;
        let len = frame.len();
        let verdict = match PacketMeta::parse(frame.bytes()) {
            Err(error) => {
                self.counters.malformed(error);
                Verdict::Drop(Drop::Malformed)
            }
            Ok(meta) => match Packet::new(&meta, in_port) {
                Some(packet) => self.decide(now, &packet, &meta, frame.bytes()),
                None => self.decide_non_ip(meta.ethertype),
            },
        };
        match verdict {
            Verdict::Forward => {
                self.counters.forwarded(in_port, len);
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
        let len = bytes.len();
        let check_at = self.ruleset.checks_states_at();
        let mut states_checked = check_at == usize::MAX;
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
            let Some(index) = found else {
                self.counters.default_policy(len);
                return match self.default {
                    DefaultPolicy::Allow => Verdict::Forward,
                    DefaultPolicy::Deny => Verdict::Drop(Drop::Default),
                };
            };
            self.counters.matched(index, len);
            let rule = &self.ruleset.rules()[index];
            match rule.action {
                RuleAction::Count | RuleAction::CheckState => start = index + 1,
                RuleAction::Deny => return Verdict::Drop(Drop::Rule),
                RuleAction::Reject(answer) => return Verdict::Reject(answer),
                RuleAction::Allow => {
                    let Some(keep) = rule.keep_state else {
                        return Verdict::Forward;
                    };
                    return match self.states.create(index as u32, keep, packet, len, now) {
                        Ok(()) => Verdict::Forward,
                        Err(refusal) => Verdict::Drop(Drop::Refused(refusal)),
                    };
                }
            }
        }
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
