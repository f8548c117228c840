//! A rule as a map of YAML or JSON. Every value is written as in the text form; lists may be YAML
//! lists or comma-separated.

use super::items::{self, Result};
use super::parse::Context;
use super::rule::{
    ACK, Answer, Family, FlagsMatch, FragmentMatch, KeepState, Negatable, OneOf, Rule, RuleAction,
    SYN,
};
use super::validate;
use crate::function::ConfigError;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Deserialize;

/// A number or a word.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a word or a number")]
enum Word {
    Number(u32),
    Text(String),
}

/// A word or a list of words.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a word, a number or a list of them")]
enum Words {
    One(Word),
    Many(Vec<Word>),
}

impl Words {
    /// Returns the text form, and true if `not` is before it.
    fn text(&self) -> (bool, String) {
        let words = match self {
            Words::One(word) => core::slice::from_ref(word),
            Words::Many(words) => words,
        };
        let joined = words
            .iter()
            .map(|word| match word {
                Word::Number(number) => number.to_string(),
                Word::Text(text) => text.trim().into(),
            })
            .collect::<Vec<_>>()
            .join(",");
        match joined.strip_prefix("not ") {
            Some(rest) => (true, rest.trim().into()),
            None => (false, joined),
        }
    }
}

/// `keep_state`: true, or a map of limits.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected true, or a map with max, max_per_source or timeout"
)]
enum Keep {
    Plain(bool),
    #[serde(rename_all = "snake_case")]
    Limits(Limits),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    max: Option<core::num::NonZeroU32>,
    max_per_source: Option<core::num::NonZeroU32>,
    timeout: Option<core::num::NonZeroU32>,
}

/// `frag`: true, false or which fragments.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, first, later or any")]
enum Frag {
    Is(bool),
    Which(String),
}

/// A rule as a map.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    number: Option<u32>,
    action: String,
    proto: Option<Words>,
    from: Option<Words>,
    from_ports: Option<Words>,
    to: Option<Words>,
    to_ports: Option<Words>,
    direction: Option<String>,
    recv: Option<String>,
    vlan: Option<Words>,
    frag: Option<Frag>,
    tcp_flags: Option<Words>,
    established: Option<bool>,
    setup: Option<bool>,
    icmp_types: Option<Words>,
    icmp6_types: Option<Words>,
    keep_state: Option<Keep>,
}

impl Entry {
    /// The rule.
    pub(super) fn rule(self, context: &mut Context<'_>) -> core::result::Result<Rule, ConfigError> {
        let action = at("action", self.action())?;
        let mut rule = Rule::any(0, action);
        rule.protocol = optional_list("proto", self.proto.as_ref(), items::protocol)?;
        rule.from.addresses = optional_list("from", self.from.as_ref(), items::prefix)?;
        rule.from.ports = list("from_ports", self.from_ports.as_ref(), items::ports)?;
        rule.to.addresses = optional_list("to", self.to.as_ref(), items::prefix)?;
        rule.to.ports = list("to_ports", self.to_ports.as_ref(), items::ports)?;
        rule.in_port = self.in_port(context)?;
        rule.vlan = list("vlan", self.vlan.as_ref(), items::vlan)?;
        rule.fragment = at("frag", self.fragment())?;
        rule.flags = self.flags()?;
        rule.icmp = self.icmp()?;
        rule.keep_state = self.keep_state.and_then(Keep::state);
        at("", validate::check(&rule))?;
        if action == RuleAction::CheckState && rule != Rule::any(0, action) {
            let message = "'check-state' takes no conditions";
            return Err(ConfigError::at("action", message));
        }
        rule.number = at("number", context.number(self.number))?;
        Ok(rule)
    }

    fn action(&self) -> Result<RuleAction> {
        match self.action.strip_prefix("unreach ") {
            Some(reason) => {
                let reason = items::unreachable(reason.trim())?;
                Ok(RuleAction::Reject(Answer::Unreachable(reason)))
            }
            None => items::action(&self.action),
        }
    }

    fn in_port(&self, context: &Context<'_>) -> core::result::Result<Option<u8>, ConfigError> {
        let direction = match self.direction.as_deref() {
            None => None,
            Some("out") => Some(0),
            Some("in") => Some(1),
            Some(word) => {
                let message = items::expected("'in' or 'out'", word);
                return Err(ConfigError::at("direction", message));
            }
        };
        let recv = self.recv.as_deref().map(|name| context.port(name));
        let recv = at("recv", recv.transpose())?;
        if recv.is_some() && direction.is_some() && recv != direction {
            return Err(ConfigError::at("recv", "contradicts 'direction'"));
        }
        Ok(recv.or(direction))
    }

    fn fragment(&self) -> Result<Option<Negatable<FragmentMatch>>> {
        let (negated, of) = match &self.frag {
            None => return Ok(None),
            Some(Frag::Is(is)) => (!is, FragmentMatch::Later),
            Some(Frag::Which(word)) => {
                let of = items::fragment(word);
                (
                    false,
                    of.ok_or_else(|| items::expected("first, later or any", word))?,
                )
            }
        };
        Ok(Some(Negatable { negated, of }))
    }

    fn flags(&self) -> core::result::Result<Vec<Negatable<FlagsMatch>>, ConfigError> {
        let mut flags = Vec::new();
        if let Some(words) = &self.tcp_flags {
            let (negated, text) = words.text();
            let of = at("tcp_flags", items::tcp_flags(&text))?;
            flags.push(Negatable { negated, of });
        }
        let setup = FlagsMatch::Exact {
            set: SYN,
            clear: ACK,
        };
        for (wanted, of) in [
            (self.setup, setup),
            (self.established, FlagsMatch::Established),
        ] {
            flags.extend(wanted.map(|wanted| Negatable {
                negated: !wanted,
                of,
            }));
        }
        Ok(flags)
    }

    fn icmp(&self) -> core::result::Result<OneOf<super::rule::IcmpMatch>, ConfigError> {
        let v4 = list("icmp_types", self.icmp_types.as_ref(), |word| {
            items::icmp_type(word, Family::V4)
        })?;
        let v6 = list("icmp6_types", self.icmp6_types.as_ref(), |word| {
            items::icmp_type(word, Family::V6)
        })?;
        match (v4.is_any(), v6.is_any()) {
            (false, false) => Err(ConfigError::at(
                "icmp6_types",
                "'icmp_types' and 'icmp6_types' in one rule: write two",
            )),
            (false, true) => Ok(v4),
            (true, _) => Ok(v6),
        }
    }
}

impl Keep {
    fn state(self) -> Option<KeepState> {
        match self {
            Keep::Plain(false) => None,
            Keep::Plain(true) => Some(KeepState::default()),
            Keep::Limits(limits) => Some(KeepState {
                max: limits.max.map(Into::into),
                max_per_source: limits.max_per_source.map(Into::into),
                timeout_s: limits.timeout.map(Into::into),
            }),
        }
    }
}

fn at<T>(key: &str, result: Result<T>) -> core::result::Result<T, ConfigError> {
    result.map_err(|message| ConfigError::at(key, message))
}

fn list<T>(
    key: &str,
    words: Option<&Words>,
    item: impl FnMut(&str) -> Result<T>,
) -> core::result::Result<OneOf<T>, ConfigError> {
    let Some(words) = words else {
        return Ok(OneOf::default());
    };
    let (negated, text) = words.text();
    let items = at(key, items::list(&text, item))?;
    at(key, items::negatable(negated, items))
}

/// As [`list`], of items one of which is "any".
fn optional_list<T>(
    key: &str,
    words: Option<&Words>,
    item: impl FnMut(&str) -> Result<Option<T>>,
) -> core::result::Result<OneOf<T>, ConfigError> {
    let all = list(key, words, item)?;
    let items = all.items.into_iter().collect::<Option<Vec<T>>>();
    at(
        key,
        items::negatable(all.negated, items.unwrap_or_default()),
    )
}
