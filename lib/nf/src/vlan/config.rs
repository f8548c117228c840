//! Configuration: one tag to push, or a table of identifiers.

use crate::config;
use crate::function::ConfigError;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use nfluid_wire::{EtherType, VlanTag};
use serde::Deserialize;
use serde_json::Value;

/// Identifiers that a frame may carry: 0 is a priority tag, 4095 reserved (IEEE 802.1Q).
const ID_LAST: u16 = 4094;

/// Which tag protocol identifier announces a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Kind {
    /// Customer tag, 0x8100.
    #[default]
    #[serde(rename = "802.1q")]
    Customer,
    /// Service tag, 0x88a8.
    #[serde(rename = "802.1ad")]
    Service,
}

impl Kind {
    fn tpid(self) -> EtherType {
        match self {
            Kind::Customer => EtherType::VLAN,
            Kind::Service => EtherType::QINQ,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Push {
    id: u16,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    priority: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    access: u16,
    trunk: u16,
}

/// Treatment of a frame that no rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unmatched {
    #[default]
    Drop,
    /// The frame passes unchanged.
    Pass,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    push: Option<Push>,
    #[serde(default)]
    translate: Vec<Pair>,
    #[serde(default)]
    unmatched: Unmatched,
}

/// The configuration, checked and ready for the data path.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) action: TagAction,
    pub(super) unmatched: Unmatched,
}

/// Treatment of tags.
#[derive(Debug)]
pub(super) enum TagAction {
    /// To the trunk: this tag is added. To the access port: it is removed.
    Push(VlanTag),
    /// The outermost identifier is replaced: by identifier, to the trunk and to the access port.
    /// 0: no rule.
    Translate { trunk: Vec<u16>, access: Vec<u16> },
}

impl Rules {
    /// Reads and checks a configuration.
    pub(super) fn parse(value: &Value) -> Result<Rules, ConfigError> {
        let config: Config = config::parse(value)?;
        let action = match (config.push, &config.translate[..]) {
            (Some(push), []) => push.check()?,
            (None, [_, ..]) => translation(&config.translate)?,
            _ => {
                let message = "give either 'push: {id: 7}' or 'translate: [{access: 1, trunk: 2}]'";
                return Err(ConfigError::at("", message));
            }
        };
        Ok(Rules {
            action,
            unmatched: config.unmatched,
        })
    }
}

impl Push {
    fn check(&self) -> Result<TagAction, ConfigError> {
        check_id("push.id".into(), self.id)?;
        if self.priority > 7 {
            let message = format!("{} is not within 0 to 7", self.priority);
            return Err(ConfigError::at("push.priority", message));
        }
        Ok(TagAction::Push(VlanTag {
            tpid: self.kind.tpid(),
            pcp: self.priority,
            dei: false,
            vid: self.id,
        }))
    }
}

fn translation(pairs: &[Pair]) -> Result<TagAction, ConfigError> {
    let table = || vec![0; usize::from(ID_LAST) + 2];
    let (mut trunk, mut access) = (table(), table());
    for (index, pair) in pairs.iter().enumerate() {
        let path = |key: &str| format!("translate[{index}].{key}");
        check_id(path("access"), pair.access)?;
        check_id(path("trunk"), pair.trunk)?;
        fill(&mut trunk, pair.access, pair.trunk, path("access"))?;
        fill(&mut access, pair.trunk, pair.access, path("trunk"))?;
    }
    Ok(TagAction::Translate { trunk, access })
}

fn check_id(path: String, id: u16) -> Result<(), ConfigError> {
    if (1..=ID_LAST).contains(&id) {
        return Ok(());
    }
    let message = format!("{id} is not within 1 to {ID_LAST}");
    Err(ConfigError::at(path, message))
}

fn fill(table: &mut [u16], from: u16, to: u16, path: String) -> Result<(), ConfigError> {
    let place = &mut table[usize::from(from)];
    if *place != 0 {
        return Err(ConfigError::at(
            path,
            format!("{from} is translated already"),
        ));
    }
    *place = to;
    Ok(())
}
