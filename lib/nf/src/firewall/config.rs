//! Configuration of a firewall.

use super::entry::Entry;
use super::parse::{self, Context};
use super::rule::Rule;
use crate::bucket::Rate;
use crate::config;
use crate::function::{ConfigError, PortInfo};
use crate::prefix::Prefix;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;
use serde_json::Value;

/// Most items in the lists of all rules together: bounds the memory of the compiled form.
const ITEMS_MAX: usize = 1_000_000;
/// Most states that may be asked for; one takes about 180 bytes.
const STATES_MAX: u32 = 16_777_216;
/// Longest timeout: ten years, far below the overflow of nanoseconds.
const TIMEOUT_MAX_S: u32 = 315_360_000;

/// Treatment of an IP packet that no rule decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DefaultPolicy {
    Allow,
    #[default]
    Deny,
}

/// Treatment of frames that are not IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NonIp {
    /// All pass.
    Allow,
    /// ARP passes: without it IPv4 hosts do not find each other.
    #[default]
    Arp,
    /// None passes.
    Deny,
}

/// Idle times in seconds after which a state ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timeouts {
    /// TCP before the other side has answered; the kernel's `nf_conntrack_tcp_timeout_syn_sent`.
    pub(super) tcp_opening: u32,
    /// TCP before the opener has acknowledged the answer; the kernel's `nf_conntrack_tcp_timeout_syn_recv`.
    pub(super) tcp_answered: u32,
    /// TCP in use; RFC 5382 REQ-5 asks for at least 2 h 4 min.
    pub(super) tcp_established: u32,
    /// TCP after a FIN.
    pub(super) tcp_closing: u32,
    /// TCP after a RST or a FIN of both sides.
    pub(super) tcp_closed: u32,
    /// UDP before the first reply.
    pub(super) udp_opening: u32,
    /// UDP in use; RFC 4787 REQ-5 asks for at least 2 min.
    pub(super) udp: u32,
    /// ICMP queries.
    pub(super) icmp: u32,
    /// Everything else.
    pub(super) other: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_opening: 120,
            tcp_answered: 60,
            tcp_established: 7_440,
            tcp_closing: 60,
            tcp_closed: 5,
            udp_opening: 30,
            udp: 120,
            icmp: 30,
            other: 120,
        }
    }
}

impl Timeouts {
    fn check(&self) -> Result<(), ConfigError> {
        let all = [
            ("tcp_opening", self.tcp_opening),
            ("tcp_answered", self.tcp_answered),
            ("tcp_established", self.tcp_established),
            ("tcp_closing", self.tcp_closing),
            ("tcp_closed", self.tcp_closed),
            ("udp_opening", self.udp_opening),
            ("udp", self.udp),
            ("icmp", self.icmp),
            ("other", self.other),
        ];
        match all.iter().find(|(_, s)| !(1..=TIMEOUT_MAX_S).contains(s)) {
            None => Ok(()),
            Some((name, seconds)) => Err(ConfigError::at(
                format!("states.timeouts.{name}"),
                format!("expected 1 to {TIMEOUT_MAX_S} seconds, found {seconds}"),
            )),
        }
    }
}

/// The state table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct States {
    /// Most states at once.
    pub(super) max: u32,
    /// Passes ICMP errors about a packet of a state, if true.
    pub(super) icmp_errors: bool,
    /// Passes TCP segments out of their windows, except RSTs, if true.
    pub(super) tcp_liberal: bool,
    /// Idle times.
    pub(super) timeouts: Timeouts,
}

impl Default for States {
    fn default() -> Self {
        States {
            max: 65_536,
            icmp_errors: true,
            tcp_liberal: false,
            timeouts: Timeouts::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    default: DefaultPolicy,
    non_ip: NonIp,
    own_addresses: Option<Vec<String>>,
    rules: Value,
    states: States,
    reject_rate: u32,
    seed: u64,
}

impl Default for Document {
    fn default() -> Self {
        Document {
            default: DefaultPolicy::default(),
            non_ip: NonIp::default(),
            own_addresses: None,
            rules: Value::Null,
            states: States::default(),
            reject_rate: 100,
            seed: 0,
        }
    }
}

/// A checked configuration.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) default: DefaultPolicy,
    pub(super) non_ip: NonIp,
    /// The addresses that the protected side may call its own; absent: any.
    pub(super) own_addresses: Option<Vec<Prefix>>,
    pub(super) rules: Vec<Rule>,
    pub(super) states: States,
    /// Answers to rejected packets: one second's worth at once.
    pub(super) reject_rate: Rate,
    /// Key of the state table's hash; the host gives a random one.
    pub(super) seed: u64,
}

impl Config {
    /// Reads and checks a configuration.
    pub(super) fn parse(value: &Value, ports: &[PortInfo]) -> Result<Config, ConfigError> {
        let document: Document = config::parse(value)?;
        document.states.timeouts.check()?;
        if !(1..=STATES_MAX).contains(&document.states.max) {
            let message = format!("expected 1 to {STATES_MAX}, found {}", document.states.max);
            return Err(ConfigError::at("states.max", message));
        }
        let rules = rules(&document.rules, ports)?;
        let items: usize = rules.iter().map(Rule::items).sum();
        if items > ITEMS_MAX {
            let message = format!("{items} list items in all rules: at most {ITEMS_MAX} fit");
            return Err(ConfigError::at("rules", message));
        }
        Ok(Config {
            default: document.default,
            non_ip: document.non_ip,
            own_addresses: document.own_addresses.map(prefixes).transpose()?,
            rules,
            states: document.states,
            reject_rate: Rate {
                per_second: document.reject_rate,
                burst: document.reject_rate,
            },
            seed: document.seed,
        })
    }
}

/// The `own_addresses` key.
fn prefixes(texts: Vec<String>) -> Result<Vec<Prefix>, ConfigError> {
    let read = |(index, text): (usize, &String)| {
        Prefix::parse(text)
            .map_err(|message| ConfigError::at(format!("own_addresses[{index}]"), message))
    };
    texts.iter().enumerate().map(read).collect()
}

/// The `rules` key: one text, or a list of lines and maps.
fn rules(value: &Value, ports: &[PortInfo]) -> Result<Vec<Rule>, ConfigError> {
    let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
    let mut context = Context::new(&names);
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => parse::rules(text, "rules", &mut context),
        Value::Array(items) => {
            let mut rules = Vec::with_capacity(items.len().min(parse::RULES_MAX));
            for (index, item) in items.iter().enumerate() {
                let path = format!("rules[{index}]");
                rules.extend(one_rule(item, path, &mut context)?);
            }
            Ok(rules)
        }
        _ => Err(ConfigError::at(
            "rules",
            "expected a text with one rule per line, or a list of rules",
        )),
    }
}

fn one_rule(
    item: &Value,
    path: String,
    context: &mut Context<'_>,
) -> Result<Vec<Rule>, ConfigError> {
    match item {
        Value::String(text) => parse::rules(text, &path, context),
        Value::Object(_) => {
            let entry: Entry = config::parse(item).map_err(|error| under(&path, error))?;
            let rule = entry.rule(context).map_err(|error| under(&path, error))?;
            Ok(alloc::vec![rule])
        }
        _ => Err(ConfigError::at(
            path,
            "expected a rule: a line such as 'allow tcp from any to any 22', or a map with the key 'action'",
        )),
    }
}

/// Returns the error with its path below `parent`.
fn under(parent: &str, mut error: ConfigError) -> ConfigError {
    error.path = match error.path.as_str() {
        "" => parent.into(),
        key => format!("{parent}.{key}"),
    };
    error
}
