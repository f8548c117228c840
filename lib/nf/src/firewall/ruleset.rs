//! A rule list made ready for evaluation.

use super::classifier::Classifier;
use super::linear::{self, Linear};
use super::packet::Packet;
use super::rule::{KeepState, Rule, RuleAction};
use alloc::vec::Vec;

/// Lists up to this length are evaluated linearly; measured by `examples/firewall_speed.rs`.
const LINEAR_MAX: usize = 64;

/// The method of finding the first matching rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Rule by rule in the order of the list: the reference for the others.
    Reference,
    /// Rule by rule, compiled.
    Linear,
    /// Bit vectors.
    Classifier,
}

#[derive(Debug)]
enum Matcher {
    Reference,
    Linear(Linear),
    Classifier(Classifier),
}

/// Rules in order, and the fastest way to find the first that matches.
#[derive(Debug)]
pub struct Ruleset {
    rules: Vec<Rule>,
    /// The actions of each rule, stored separately from the rules so that they stay in the caches.
    actions: Vec<(RuleAction, Option<KeepState>)>,
    checks_states_at: usize,
    matcher: Matcher,
}

impl Ruleset {
    /// Compiles `rules` for the engine that is fastest for so many.
    pub fn new(rules: Vec<Rule>) -> Self {
        let engine = if rules.len() <= LINEAR_MAX {
            Engine::Linear
        } else {
            Engine::Classifier
        };
        Self::with_engine(rules, engine)
    }

    /// Returns true if look-ups are so expensive that it pays to do the look-ups of a batch together and to remember
    /// their results.
    #[inline]
    pub fn is_long(&self) -> bool {
        matches!(self.matcher, Matcher::Classifier(_))
    }

    /// Compiles `rules` for this engine.
    pub fn with_engine(rules: Vec<Rule>, engine: Engine) -> Self {
        let checks_states_at = rules.iter().position(Rule::checks_states);
        let actions = rules.iter().map(|rule| (rule.action, rule.keep_state));
        Ruleset {
            actions: actions.collect(),
            checks_states_at: checks_states_at.unwrap_or(usize::MAX),
            matcher: match engine {
                Engine::Reference => Matcher::Reference,
                Engine::Linear => Matcher::Linear(Linear::new(&rules)),
                Engine::Classifier => Matcher::Classifier(Classifier::new(&rules)),
            },
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
        match &self.matcher {
            Matcher::Reference => linear::first_match(&self.rules, packet, start),
            Matcher::Linear(linear) => linear.first_match(&self.rules, packet, start),
            Matcher::Classifier(classifier) => classifier.first_match(packet, start),
        }
    }

    /// As [`Ruleset::first_match`] from the first rule on, for all packets of a batch: look-ups of
    /// different packets wait for memory at the same time, not one after the other.
    #[inline]
    pub fn first_matches<'p>(
        &self,
        packets: impl Iterator<Item = &'p Packet> + Clone,
        found: &mut [Option<usize>],
    ) {
        if let Matcher::Classifier(classifier) = &self.matcher {
            classifier.first_matches(packets, found);
            return;
        }
        for (packet, found) in packets.zip(found) {
            *found = self.first_match(packet, 0);
        }
    }

    /// Returns the action of the rule at `index`.
    #[inline]
    pub fn action(&self, index: usize) -> (RuleAction, Option<KeepState>) {
        self.actions[index]
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
