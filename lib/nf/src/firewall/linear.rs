//! Linear evaluation.

use super::packet::Packet;
use super::rule::{Rule, RuleAction};

/// The plain reference: rule by rule, in order. Returns the index of the first rule from `start`
/// on whose conditions hold; `check-state` rules have none and are skipped.
pub fn first_match(rules: &[Rule], packet: &Packet, start: usize) -> Option<usize> {
    let rest = rules.get(start..)?;
    rest.iter()
        .position(|rule| rule.action != RuleAction::CheckState && rule.matches(packet))
        .map(|index| start + index)
}
