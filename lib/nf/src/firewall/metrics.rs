//! Counters of the firewall.

use super::state::Count;
use super::states::{Refusal, States};
use crate::function::{Metric, PortInfo};
use crate::icmp_error::{self, Sent};
use crate::stateful::{Reader, StateError, Writer};
use crate::traffic::{Forwarded, OnWire};
use alloc::string::ToString;
use alloc::vec::Vec;
use nfluid_wire::ParseError;

/// Firewalls with more rules report the counters of each rule by the command `rules` alone: a scrape of 10,000 rules
/// every few seconds is of no use.
const RULES_REPORTED_MAX: usize = 256;

/// The reason why a frame did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drop {
    /// A `deny` rule.
    Rule,
    /// A rule that rejects.
    Rejected,
    /// The default policy.
    Default,
    /// Not IP.
    NonIp,
    /// The headers make no sense.
    Malformed,
    /// A state would have been needed.
    Refused(Refusal),
    /// The protected side claims an address that is not its own.
    ForeignAddress,
}

const DROPS: [Drop; 10] = [
    Drop::Rule,
    Drop::Rejected,
    Drop::Default,
    Drop::NonIp,
    Drop::Malformed,
    Drop::Refused(Refusal::TableFull),
    Drop::Refused(Refusal::RuleLimit),
    Drop::Refused(Refusal::SourceLimit),
    Drop::Refused(Refusal::OutOfWindow),
    Drop::ForeignAddress,
];
/// Numbers of these counters in versions 1 and 2 of the records.
const DROPS_V1: usize = 8;
const DROPS_V2: usize = 9;

impl Drop {
    fn index(self) -> usize {
        match self {
            Drop::Rule => 0,
            Drop::Rejected => 1,
            Drop::Default => 2,
            Drop::NonIp => 3,
            Drop::Malformed => 4,
            Drop::Refused(Refusal::TableFull) => 5,
            Drop::Refused(Refusal::RuleLimit) => 6,
            Drop::Refused(Refusal::SourceLimit) => 7,
            Drop::Refused(Refusal::OutOfWindow) => 8,
            Drop::ForeignAddress => 9,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Drop::Rule => "rule",
            Drop::Rejected => "rejected",
            Drop::Default => "default",
            Drop::NonIp => "non_ip",
            Drop::Malformed => "malformed",
            Drop::Refused(Refusal::TableFull) => "state_table_full",
            Drop::Refused(Refusal::RuleLimit) => "state_rule_limit",
            Drop::Refused(Refusal::SourceLimit) => "state_source_limit",
            Drop::Refused(Refusal::OutOfWindow) => "tcp_out_of_window",
            Drop::ForeignAddress => "foreign_address",
        }
    }
}

/// All counters of a firewall.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    forwarded: Forwarded<2>,
    dropped: [u64; DROPS.len()],
    malformed: Vec<(ParseError, u64)>,
    answers: [u64; 4],
    rules: Vec<Count>,
    default_policy: Count,
}

impl Counters {
    pub(super) fn new(ports: &[PortInfo], rules: usize) -> Self {
        Counters {
            forwarded: Forwarded::new(ports),
            dropped: [0; DROPS.len()],
            malformed: Vec::new(),
            answers: [0; 4],
            rules: alloc::vec![Count::default(); rules],
            default_policy: Count::default(),
        }
    }

    /// Takes the names of the ports for the labels.
    pub(super) fn rename(&mut self, ports: &[PortInfo]) {
        self.forwarded.rename(ports);
    }

    /// Replaces the counters per rule.
    pub(super) fn set_rules(&mut self, rules: Vec<Count>) {
        self.rules = rules;
    }

    /// The counters of the rule at `index`.
    pub(super) fn rule(&self, index: usize) -> Count {
        self.rules.get(index).copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn matched(&mut self, rule: usize, frame: OnWire) {
        if let Some(count) = self.rules.get_mut(rule) {
            count.add(frame);
        }
    }

    #[inline]
    pub(super) fn default_policy(&mut self, frame: OnWire) {
        self.default_policy.add(frame);
    }

    #[inline]
    pub(super) fn forwarded(&mut self, in_port: u8, frame: OnWire) {
        self.forwarded.count(in_port, frame);
    }

    #[inline]
    pub(super) fn dropped(&mut self, reason: Drop, frame: OnWire) {
        self.dropped[reason.index()] += frame.packets();
    }

    #[cold]
    pub(super) fn malformed(&mut self, error: ParseError, frame: OnWire) {
        match self.malformed.iter_mut().find(|(known, _)| *known == error) {
            Some((_, count)) => *count += frame.packets(),
            None => self.malformed.push((error, frame.packets())),
        }
    }

    pub(super) fn answered(&mut self, sent: Sent) {
        self.answers[sent as usize] += 1;
    }

    /// Writes all counters except those of rules into an image. The causes of malformed packets are left out: their
    /// sum is among the drops.
    pub(super) fn export(&self, writer: &mut Writer) {
        self.forwarded.export(writer);
        writer.counters(&self.dropped);
        writer.counters(&self.answers);
        writer.put(&self.default_policy);
    }

    /// Adds those of an image.
    pub(super) fn import(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.forwarded.import(reader)?;
        let known = match reader.version() {
            1 => DROPS_V1,
            2 => DROPS_V2,
            _ => self.dropped.len(),
        };
        reader.counters(&mut self.dropped[..known])?;
        reader.counters(&mut self.answers)?;
        self.default_policy.more(reader.get()?);
        Ok(())
    }

    /// Adds to the counters of the rule at `index`.
    pub(super) fn more_of_rule(&mut self, index: usize, more: Count) {
        if let Some(count) = self.rules.get_mut(index) {
            count.more(more);
        }
    }

    pub(super) fn report(
        &self,
        numbers: impl Iterator<Item = u32>,
        states: &States,
        sink: &mut dyn FnMut(Metric),
    ) {
        self.forwarded.report(sink);
        for reason in DROPS {
            let count = self.dropped[reason.index()];
            sink(Metric::new("packets_dropped_total", count).with("reason", reason.name()));
        }
        for (error, count) in &self.malformed {
            sink(Metric::new("packets_malformed_total", *count).with("reason", error.as_str()));
        }
        for (result, count) in icmp_error::RESULTS.into_iter().zip(self.answers) {
            sink(Metric::new("reject_answers_total", count).with("result", result));
        }
        let default = self.default_policy;
        sink(Metric::new("default_policy_packets_total", default.packets));
        sink(Metric::new("default_policy_bytes_total", default.bytes));
        if self.rules.len() <= RULES_REPORTED_MAX {
            self.report_rules(numbers, sink);
        }
        sink(Metric::new("states", states.len() as u64));
        sink(Metric::new("states_max", states.capacity() as u64));
        sink(Metric::new("states_created_total", states.created));
        sink(Metric::new("states_expired_total", states.expired));
        sink(Metric::new("states_half_open", states.half_open() as u64));
        sink(Metric::new("states_evicted_total", states.evicted));
    }

    /// Rules with one number are one series.
    fn report_rules(&self, numbers: impl Iterator<Item = u32>, sink: &mut dyn FnMut(Metric)) {
        let mut series: Vec<(u32, Count)> = Vec::new();
        for (number, count) in numbers.zip(&self.rules) {
            match series.last_mut() {
                Some((last, sum)) if *last == number => {
                    sum.packets += count.packets;
                    sum.bytes += count.bytes;
                }
                _ => series.push((number, *count)),
            }
        }
        for (number, count) in series {
            let number = number.to_string();
            sink(Metric::new("rule_packets_total", count.packets).with("rule", number.clone()));
            sink(Metric::new("rule_bytes_total", count.bytes).with("rule", number));
        }
    }
}
