//! The configuration of `nf: edpi`, accepted as a whole or refused with the wrong key. Names of applications are
//! nDPI's; only its process can check them.

use super::Edpi;
use crate::config::wrong;
use crate::error::broken;
use crate::function::{FastFunction, FunctionConfig, Site};
use crate::record::Numbers;
use nfluid_control::apply::PlatformError;
use nfluid_control::host::NfConfigError;
use nfluid_control::quantity::{Bytes, Millis};
use nfluid_dpi::classifier::Limits;
use nfluid_dpi::inspector::{Again, Settings, with_ledger};
use nfluid_dpi::library::{LIBRARY, Library};
use nfluid_dpi::policy::{Rule, Rules, Treatment, When};
use nfluid_evnf::inspector::{Action, Sizes};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const FLOWS_MAX: u64 = 1 << 22;
const COPIES_MIN: u64 = 64 << 10;
const COPIES_MAX: u64 = 1 << 30;
/// Memory that nDPI takes before the first packet, and per inspected flow; a generous estimate.
const MEMORY_BASE: u64 = 128 << 20;
const MEMORY_PER_FLOW: u64 = 4 << 10;
const MEMORY_MIN: u64 = 64 << 20;

/// Configuration of an eDPI.
#[derive(Clone, Debug, PartialEq)]
pub struct InspectorConfig {
    /// The configuration as written by the user.
    pub text: Value,
    /// Flows in the table of the fast path.
    flows: u32,
    /// Bytes of waiting packet copies.
    copies: u32,
    /// Flows that the slow path remembers.
    remember: u32,
    idle: Duration,
    /// Memory limit of the slow path's process, in bytes.
    pub memory: u64,
    /// The library to open.
    pub library: String,
    again: AgainConfig,
    others: RuleConfig,
    elephant: Elephant,
    applications: BTreeMap<String, RuleConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Text {
    flows: u64,
    copies: Amount,
    remember: u64,
    idle: Time,
    memory: Option<Amount>,
    library: String,
    fast: Fast,
    elephant: Elephant,
    again: AgainConfig,
    applications: BTreeMap<String, Value>,
}

impl Default for Text {
    fn default() -> Self {
        Text {
            flows: 65_536,
            copies: Amount(4 << 20),
            remember: 65_536,
            idle: Time(Duration::from_secs(30)),
            memory: None,
            library: LIBRARY.to_owned(),
            fast: Fast::Known,
            elephant: Elephant::default(),
            again: AgainConfig::default(),
            applications: BTreeMap::new(),
        }
    }
}

/// The condition for offloading an application's flows to the fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fast {
    #[default]
    Known,
    Elephant,
    Never,
}

/// The threshold of an elephant flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Elephant {
    bytes: Amount,
    /// Bytes per second.
    rate: Amount,
}

impl Default for Elephant {
    fn default() -> Self {
        Elephant {
            bytes: Amount(1 << 20),
            rate: Amount(1 << 20),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AgainConfig {
    packets: u64,
    after: Time,
    look: u32,
}

impl Default for AgainConfig {
    fn default() -> Self {
        let usual = Again::default();
        AgainConfig {
            packets: usual.packets,
            after: Time(usual.after),
            look: usual.look,
        }
    }
}

/// The treatment of an application's flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    #[serde(default)]
    fast: Option<Fast>,
    #[serde(default, rename = "do")]
    treatment: Do,
    #[serde(default)]
    dscp: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Do {
    #[default]
    Pass,
    Forward,
    Drop,
}

/// Bytes: a number, or a number with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Amount(u64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Amount(bytes)),
            Written::Text(text) => {
                let read: Bytes = text.parse().map_err(serde::de::Error::custom)?;
                Ok(Amount(read.0))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let read: Millis = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Time(read.duration()))
    }
}

fn within(path: &str, value: u64, least: u64, most: u64) -> Result<u32, NfConfigError> {
    let found = u32::try_from(value).ok();
    found
        .filter(|_| (least..=most).contains(&value))
        .ok_or_else(|| wrong(path, format!("{value}; write {least} to {most}")))
}

impl InspectorConfig {
    /// Parses the configuration.
    ///
    /// # Errors
    /// The first error in the configuration.
    pub fn read(value: &Value) -> Result<Self, NfConfigError> {
        let text = Text::deserialize(value).map_err(|error| wrong("", error))?;
        let copies = within("copies", text.copies.0, COPIES_MIN, COPIES_MAX)?;
        if !copies.is_power_of_two() {
            let message = format!("{copies} bytes; write a power of two, for example 4MiB");
            return Err(wrong("copies", message));
        }
        let remember = within("remember", text.remember, 1, FLOWS_MAX)?;
        let needed = MEMORY_BASE + u64::from(remember) * MEMORY_PER_FLOW;
        let memory = text.memory.map_or(needed, |memory| memory.0);
        if memory < MEMORY_MIN {
            let message = format!("{memory} bytes; nDPI alone takes {}", Bytes(MEMORY_MIN));
            return Err(wrong("memory", message));
        }
        if text.library.is_empty() || text.library.contains('\0') {
            return Err(wrong("library", "that is no name of a library"));
        }
        within("again.look", u64::from(text.again.look), 1, 1000)?;
        if text.idle.0 < Duration::from_secs(1) {
            return Err(wrong("idle", "write 1s or more"));
        }
        let mut applications = BTreeMap::new();
        for (name, value) in &text.applications {
            let path = format!("applications.{name}");
            let rule = RuleConfig::deserialize(value).map_err(|error| wrong(&path, error))?;
            if rule.dscp.is_some_and(|dscp| dscp > 63) {
                return Err(wrong(format!("{path}.dscp"), "write 0 to 63"));
            }
            applications.insert(name.clone(), rule);
        }
        Ok(InspectorConfig {
            text: value.clone(),
            flows: within("flows", text.flows, 1, FLOWS_MAX)?,
            copies,
            remember,
            idle: text.idle.0,
            memory,
            library: text.library,
            again: text.again,
            others: RuleConfig {
                fast: Some(text.fast),
                ..RuleConfig::default()
            },
            elephant: text.elephant,
            applications,
        })
    }

    /// Returns the sizes of the tables, which are fixed while the tables are in use.
    pub fn sizes_of_tables(&self) -> Sizes {
        with_ledger(Sizes {
            flows: self.flows,
            copies: self.copies,
            ..Sizes::default()
        })
    }

    /// Returns the settings of the classifier.
    pub fn settings(&self) -> Settings {
        Settings {
            limits: Limits {
                flows: self.remember as usize,
                idle: self.idle,
                ..Limits::default()
            },
            sizes: self.sizes_of_tables(),
            again: Again {
                packets: self.again.packets,
                after: self.again.after.0,
                look: self.again.look,
            },
        }
    }

    /// Returns the treatment of each application's flows, by nDPI's numbers.
    ///
    /// # Errors
    /// The name of an application that nDPI does not know.
    pub fn rules(&self, library: &Library) -> Result<Rules, String> {
        let mut by_application = HashMap::new();
        for (name, rule) in &self.applications {
            let Some(number) = library.protocol(name) else {
                return Err(format!(
                    "applications.{name}: nDPI {} knows no application of that name; 'ndpiReader -H' lists them",
                    library.version()
                ));
            };
            by_application.insert(number, self.rule(rule));
        }
        Ok(Rules {
            by_application,
            others: self.rule(&self.others),
        })
    }

    /// Returns the actions of no rule: the fast path never performs them, whatever the classifier says.
    pub fn forbidden(&self) -> Vec<Action> {
        let rules = self.applications.values();
        let asked: Vec<Do> = rules.map(|rule| rule.treatment).collect();
        let not_asked = |(wanted, action)| (!asked.contains(&wanted)).then_some(action);
        [(Do::Forward, Action::Forward), (Do::Drop, Action::Drop)]
            .into_iter()
            .filter_map(not_asked)
            .collect()
    }

    fn rule(&self, rule: &RuleConfig) -> Rule {
        let when = match rule.fast.or(self.others.fast).unwrap_or_default() {
            Fast::Known => When::Known,
            Fast::Never => When::Never,
            Fast::Elephant => When::Elephant {
                bytes: self.elephant.bytes.0,
                rate: self.elephant.rate.0,
            },
        };
        let action = match rule.treatment {
            Do::Pass => Action::Pass,
            Do::Forward => Action::Forward,
            Do::Drop => Action::Drop,
        };
        Rule {
            // Flows to be dropped are dropped as soon as their application is known.
            when: match (rule.treatment, rule.fast) {
                (Do::Drop, None) => When::Known,
                _ => when,
            },
            treatment: Treatment::Fast {
                action,
                dscp: rule.dscp,
            },
        }
    }
}

impl FunctionConfig for InspectorConfig {
    fn sizes(&self) -> Vec<u32> {
        let sizes = self.sizes_of_tables();
        vec![sizes.flows, sizes.copies]
    }

    fn load(
        &self,
        site: &Site<'_>,
        _: &mut Numbers,
    ) -> Result<Box<dyn FastFunction>, PlatformError> {
        Ok(Box::new(Edpi::load(self, site.pins).map_err(broken)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_left_out_has_a_default_and_amounts_have_units() {
        let config = InspectorConfig::read(&json!({})).expect("it is right");
        assert_eq!((config.flows, config.copies), (65_536, 4 << 20));
        assert_eq!(config.library, LIBRARY);
        assert_eq!(config.memory, MEMORY_BASE + 65_536 * MEMORY_PER_FLOW);
        let written = json!({
            "copies": "1MiB", "elephant": { "bytes": "64KiB" }, "idle": "5s", "fast": "elephant",
            "again": { "packets": 9 }, "applications": { "TLS": { "do": "forward", "dscp": 10 } },
        });
        let config = InspectorConfig::read(&written).expect("it is right");
        assert_eq!(config.copies, 1 << 20);
        assert_eq!(config.settings().again.packets, 9);
        assert_eq!(config.settings().limits.idle, Duration::from_secs(5));
        let elephant = When::Elephant {
            bytes: 64 << 10,
            rate: 1 << 20,
        };
        let tls = config.rule(&config.applications["TLS"]);
        assert_eq!(tls.when, elephant, "as all others");
        let forwarded = Treatment::Fast {
            action: Action::Forward,
            dscp: Some(10),
        };
        assert_eq!(tls.treatment, forwarded);
        let unwanted = RuleConfig {
            treatment: Do::Drop,
            ..RuleConfig::default()
        };
        assert_eq!(config.rule(&unwanted).when, When::Known);
        assert_eq!(config.forbidden(), [Action::Drop], "nobody asks for it");
    }

    // promise: 15.27
    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            (json!({ "flows": 0 }), "flows"),
            (json!({ "copies": "5MiB" }), "copies"),
            (json!({ "memory": "1MiB" }), "memory"),
            (json!({ "idle": "10ms" }), "idle"),
            (json!({ "again": { "look": 0 } }), "again.look"),
            (
                json!({ "applications": { "TLS": { "dscp": 64 } } }),
                "applications.TLS.dscp",
            ),
            (
                json!({ "applications": { "TLS": { "do": "praise" } } }),
                "applications.TLS",
            ),
            (json!({ "colour": 1 }), ""),
        ];
        for (config, path) in cases {
            let error = InspectorConfig::read(&config).expect_err("it is wrong");
            assert_eq!(error.path, path, "{config}: {}", error.message);
        }
    }
}
