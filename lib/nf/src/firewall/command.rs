//! Commands of an operator to a running firewall.

use super::Firewall;
use super::rule::Rule;
use super::state::{Count, State};
use crate::function::{CommandError, Nanos};
use alloc::collections::BinaryHeap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use serde_json::{Value, json};

/// Most rows of one answer.
const ROWS_MAX: usize = 1000;
/// States in an answer unless another number is given.
const STATES_DEFAULT: usize = 20;
const COMMANDS: &[&str] = &["rules", "states", "flush-states"];

impl Firewall {
    pub(super) fn run_command(
        &mut self,
        now: Nanos,
        name: &str,
        args: &[String],
    ) -> Result<Value, CommandError> {
        match (name, args) {
            ("rules", []) => Ok(self.show_rules(0, ROWS_MAX)),
            ("rules", [first]) => Ok(self.show_rules(number(first)?, ROWS_MAX)),
            ("rules", [first, count]) => {
                let count = (number(count)? as usize).min(ROWS_MAX);
                Ok(self.show_rules(number(first)?, count))
            }
            ("states", []) => Ok(self.show_states(now, STATES_DEFAULT)),
            ("states", [count]) => {
                Ok(self.show_states(now, (number(count)? as usize).min(ROWS_MAX)))
            }
            ("flush-states", []) => Ok(json!({"flushed": self.states.flush()})),
            ("rules", _) => Err(usage("rules [FIRST-NUMBER [COUNT]]")),
            ("states", _) => Err(usage("states [COUNT]")),
            ("flush-states", _) => Err(usage("flush-states")),
            _ => Err(CommandError::Unknown(COMMANDS)),
        }
    }

    /// At most `count` rules whose numbers are not below `first`, with counters.
    fn show_rules(&self, first: u32, count: usize) -> Value {
        let rules = self.ruleset.rules();
        let start = rules.partition_point(|rule| rule.number < first);
        let shown = rules.iter().enumerate().skip(start).take(count);
        let rows: Vec<Value> = shown
            .map(|(index, rule)| self.rule_row(index, rule))
            .collect();
        json!({"rules": rows, "total": rules.len()})
    }

    fn rule_row(&self, index: usize, rule: &Rule) -> Value {
        let Count { packets, bytes } = self.counters.rule(index);
        json!({
            "number": rule.number,
            "rule": rule.to_string(),
            "packets": packets,
            "bytes": bytes,
            "states": self.states.of_rule(index),
        })
    }

    /// The `count` live states with most bytes.
    fn show_states(&self, now: Nanos, count: usize) -> Value {
        let mut top = BinaryHeap::with_capacity(count + 1);
        let live = self.states.iter().filter(|state| state.expires > now);
        for (index, state) in live.clone().enumerate() {
            top.push(Reverse((state.forth.bytes + state.back.bytes, index)));
            if top.len() > count {
                top.pop();
            }
        }
        let mut chosen: Vec<usize> = top.iter().map(|Reverse((_, index))| *index).collect();
        chosen.sort_unstable();
        let mut wanted = chosen.into_iter().peekable();
        let mut states: Vec<&State> = live
            .enumerate()
            .filter_map(|(index, state)| wanted.next_if_eq(&index).map(|_| state))
            .collect();
        states.sort_by_key(|state| Reverse(state.forth.bytes + state.back.bytes));
        let rows: Vec<Value> = states
            .iter()
            .map(|state| self.state_row(now, state))
            .collect();
        json!({
            "states": rows,
            "total": self.states.len(),
            "max": self.states.capacity(),
        })
    }

    fn state_row(&self, now: Nanos, state: &State) -> Value {
        let first = state.first();
        let (src_port, dst_port) = first.ports();
        let number = self
            .ruleset
            .rules()
            .get(state.rule as usize)
            .map(|r| r.number);
        json!({
            "protocol": first.protocol,
            "src": first.addresses.src().to_string(),
            "src_port": src_port,
            "dst": first.addresses.dst().to_string(),
            "dst_port": dst_port,
            "vlan": first.vlan,
            "phase": state.phase().name(),
            "rule": number,
            "expires_s": state.expires.since(now).0 / 1_000_000_000,
            "forth": {"packets": state.forth.packets, "bytes": state.forth.bytes},
            "back": {"packets": state.back.packets, "bytes": state.back.bytes},
        })
    }
}

fn number(word: &str) -> Result<u32, CommandError> {
    word.parse()
        .map_err(|_| CommandError::BadArgument(format!("expected a number, found '{word}'")))
}

fn usage(usage: &str) -> CommandError {
    CommandError::BadArgument(format!("usage: {usage}"))
}
