//! A rule list made ready for evaluation.

use super::linear;
use super::packet::Packet;
use super::rule::{KeepState, Rule, RuleAction};
use alloc::vec::Vec;

/// Rules in order, and the fastest way to find the first that matches.
#[derive(Debug)]
pub struct Ruleset {
    rules: Vec<Rule>,
    checks_states_at: usize,
}

impl Ruleset {
    /// Compiles `rules`.
    pub fn new(rules: Vec<Rule>) -> Self {
        let checks_states_at = rules.iter().position(Rule::checks_states);
        Ruleset {
            checks_states_at: checks_states_at.unwrap_or(usize::MAX),
            rules,
        }
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Index of the rule at which states are looked at: the first that keeps or checks states.
    #[inline]
    pub fn checks_states_at(&self) -> usize {
        self.checks_states_at
    }

    /// Index of the first rule, from `start` on, whose conditions hold for `packet`.
    /// `check-state` rules have no conditions and are never found.
    #[inline]
    pub fn first_match(&self, packet: &Packet, start: usize) -> Option<usize> {
        linear::first_match(&self.rules, packet, start)
    }

    /// The rule that would make a state of `packet`, were it a flow's first.
    pub fn keeper_of(&self, packet: &Packet) -> Option<(u32, KeepState)> {
        let mut start = 0;
        while let Some(index) = self.first_match(packet, start) {
            let rule = &self.rules[index];
            match rule.action {
                RuleAction::Count | RuleAction::CheckState => start = index + 1,
                RuleAction::Allow => return rule.keep_state.map(|keep| (index as u32, keep)),
                RuleAction::Deny | RuleAction::Reject(_) => return None,
            }
        }
        None
    }
}
