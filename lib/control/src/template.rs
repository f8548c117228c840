//! Instances on demand. Every client of an uplink gets the instance, or the chain of instances, that a template
//! describes. The instance is created when the client's first frame comes, and ended when the client has been silent
//! for a while ([ADR 14](../../../docs/adr/0014-on-demand.md)).

use crate::host::{PROGRAM_BYTES_MIN, rings_bytes};
use crate::matching::{EtherType, MatchRule};
use crate::model::{Deployment, Instance, PortRef};
use crate::quantity::Millis;
use crate::spec::InstanceSpec;
use crate::wiring::Destination;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// How long a client may be silent before its instance is ended, if the template does not say.
pub const IDLE_DEFAULT: Millis = Millis::secs(2);
/// Shortest and longest that a template may say.
pub const IDLE_BOUNDS: (Millis, Millis) = (Millis(100), Millis::secs(86_400));
/// Most clients at once of a template that does not say.
pub const MOST_DEFAULT: u32 = 1000;
/// Instances made per second for a template that does not say.
pub const PER_SECOND_DEFAULT: u32 = 100;
/// Bounds of both.
pub const COUNT_BOUNDS: (i64, i64) = (1, 16_000);
/// Most instances of a client.
pub const STAGES_MAX: usize = 8;
/// Between a template's and a client's name in the name of an instance, and before the number of a further one: no other
/// instance has it in its name.
pub const AT: char = '@';
/// What a configuration may have in `${...}`.
pub const VARIABLES: [&str; 3] = ["client", "name", "template"];

/// When the instances of a template are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activate {
    /// When a client's first frame comes.
    OnDemand,
}

/// The field that distinguishes clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientBy {
    /// Their IP address: the source of frames that come in at `from`, the destination of those that come in at `to`.
    #[default]
    Address,
    /// The VLAN that they are in, on both sides.
    Vlan,
    /// Their MAC address, as [`ClientBy::Address`].
    Mac,
}

/// A template, as a user writes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Template {
    /// When its instances are made.
    pub activate: Activate,
    /// Where clients come from: an uplink.
    pub from: PortRef,
    /// Where their frames go, and where frames for them come from: an uplink.
    pub to: PortRef,
    /// The frames that belong to clients: those that match one of these rules; empty: all.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<MatchRule>,
    /// The field that distinguishes clients.
    pub client: ClientBy,
    /// Most clients at once.
    pub most: u32,
    /// Most instances made per second; as many may be made at once.
    pub per_second: u32,
    /// Time for which a client may be silent.
    #[serde(serialize_with = "as_text")]
    pub idle: Millis,
    /// The instances of each client.
    #[serde(flatten)]
    pub stages: Stages,
}

/// What each client of a template gets, in the order in which its frames cross it: one instance (`instance`, `in` and `out` of
/// the template), or several (`via`).
#[derive(Clone, Debug, PartialEq)]
pub struct Stages(pub Vec<Stage>);

/// An instance that each client gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// The port that gets the frames from the client.
    #[serde(rename = "in")]
    pub input: String,
    /// The port that gets the frames for the client.
    #[serde(rename = "out")]
    pub output: String,
    /// What it is. Texts of its configuration may say `${client}`, `${name}` and `${template}`.
    pub instance: Instance,
}

impl Serialize for Stages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [one] = self.0.as_slice() {
            return one.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("via", &self.0)?;
        map.end()
    }
}

fn as_text<S: Serializer>(time: &Millis, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// A client for which an instance is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The template.
    pub template: String,
    /// The client, in the form for configurations: an address, or the number of a VLAN.
    pub client: String,
}

impl Guest {
    /// The name of its instance; of several, the first.
    pub fn name(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric();
        let client = self.client.chars();
        let client: String = client.map(|c| if is_plain(c) { c } else { '-' }).collect();
        format!("{}{AT}{client}", self.template)
    }

    /// The name of the instance at this place of its chain.
    pub fn name_at(&self, place: usize) -> String {
        match place {
            0 => self.name(),
            place => format!("{}{AT}{}", self.name(), place + 1),
        }
    }
}

/// The objects that are created for a guest.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Its instances, with nothing left to default.
    pub instances: Vec<(String, InstanceSpec)>,
    /// Where the frames of their ports go.
    pub wires: Vec<(PortRef, Destination)>,
}

/// A variable that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// What stands in the braces, or behind one that is not closed.
    pub name: String,
    /// The key of the text within the configuration, for example `rules`.
    pub path: String,
    /// The line within the text, from 1.
    pub line: u32,
}

impl Template {
    /// Which frames that come in at `from` are clients'.
    pub fn forward_rules(&self) -> Vec<MatchRule> {
        match self.client {
            ClientBy::Address => with_addresses(&self.rules),
            _ => self.rules.clone(),
        }
    }

    /// Which frames that come in at `to` are for clients.
    pub fn return_rules(&self) -> Vec<MatchRule> {
        let rules = self.forward_rules();
        rules.iter().map(MatchRule::mirrored).collect()
    }

    /// The instances of a guest, in their order.
    ///
    /// # Errors
    /// The place of the first one whose configuration has a variable that there is not, and that.
    pub fn instances_of(&self, guest: &Guest) -> Result<Vec<Instance>, (usize, UnknownVariable)> {
        let filled = |(place, stage): (usize, &Stage)| {
            let name = guest.name_at(place);
            let value_of = |variable: &str| match variable {
                "client" => Some(guest.client.as_str()),
                "name" => Some(name.as_str()),
                "template" => Some(guest.template.as_str()),
                _ => None,
            };
            let mut instance = stage.instance.clone();
            match fill_in(&mut instance.config, "", &value_of) {
                Ok(()) => Ok(instance),
                Err(unknown) => Err((place, unknown)),
            }
        };
        self.stages.0.iter().enumerate().map(filled).collect()
    }

    /// The ports of a guest's instances that get what comes from it, and what is for it.
    pub fn ends_of(&self, guest: &Guest) -> Option<(PortRef, PortRef)> {
        let stages = &self.stages.0;
        let last = guest.name_at(stages.len().checked_sub(1)?);
        let entry = PortRef::instance(guest.name(), &stages.first()?.input);
        Some((entry, PortRef::instance(&last, &stages.last()?.output)))
    }

    /// All that is made for a guest.
    ///
    /// # Errors
    /// As [`Template::instances_of`].
    pub fn resolve(
        &self,
        deployment: &Deployment,
        guest: &Guest,
    ) -> Result<Resolved, (usize, UnknownVariable)> {
        let filled = self.instances_of(guest)?;
        let port = |place: usize, of: fn(&Stage) -> &String| {
            let stage = self.stages.0.get(place)?;
            Some(PortRef::instance(guest.name_at(place), of(stage)))
        };
        let mut wires = Vec::new();
        for (place, stage) in self.stages.0.iter().enumerate() {
            let before = place.checked_sub(1);
            let before = before.and_then(|before| port(before, |stage| &stage.output));
            let behind = port(place + 1, |stage| &stage.input);
            let name = guest.name_at(place);
            let ends = [
                (&stage.input, before.unwrap_or_else(|| self.from.clone())),
                (&stage.output, behind.unwrap_or_else(|| self.to.clone())),
            ];
            wires.extend(
                ends.map(|(own, to)| (PortRef::instance(&name, own), Destination::Port(to))),
            );
        }
        let instances = filled.iter().enumerate().map(|(place, instance)| {
            let name = guest.name_at(place);
            let spec = InstanceSpec::resolve(deployment, &name, instance);
            (name, spec)
        });
        Ok(Resolved {
            instances: instances.collect(),
            wires,
        })
    }
}

/// Bytes that the instances of one client need for their rings and programs.
pub fn bytes_of_client(deployment: &Deployment, template: &Template) -> u64 {
    let needed = template.stages.0.iter().filter_map(|stage| {
        let flavor = deployment.flavor(&stage.instance.flavor)?;
        Some(rings_bytes(flavor.ring, stage.instance.ports.len()) + PROGRAM_BYTES_MIN)
    });
    needed.fold(0, u64::saturating_add)
}

/// Only frames with an address have a sender by address: others are left to the rules behind.
fn with_addresses(rules: &[MatchRule]) -> Vec<MatchRule> {
    let all = [MatchRule::default()];
    let rules = if rules.is_empty() { &all } else { rules };
    let families = |rule: &MatchRule| {
        let is_ip = rule.src.is_some() || rule.dst.is_some() || rule.proto.is_some();
        if is_ip || rule.ether.is_some() {
            return vec![rule.clone()];
        }
        let of = |ether| MatchRule {
            ether: Some(EtherType(ether)),
            ..rule.clone()
        };
        vec![of(0x0800), of(0x86dd)]
    };
    rules.iter().flat_map(families).collect()
}

/// Puts the values of variables into every text.
fn fill_in<'a>(
    value: &mut Value,
    path: &str,
    value_of: &impl Fn(&str) -> Option<&'a str>,
) -> Result<(), UnknownVariable> {
    match value {
        Value::String(text) => {
            if let Some(filled) = filled(text, path, value_of)? {
                *text = filled;
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                fill_in(item, &format!("{path}[{i}]"), value_of)?;
            }
        }
        Value::Object(entries) => {
            for (key, item) in entries {
                fill_in(item, &crate::decode::join(path, key), value_of)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// The text with the values of its variables; nothing: it has none. What a value says is not looked at again.
fn filled<'a>(
    text: &str,
    path: &str,
    value_of: &impl Fn(&str) -> Option<&'a str>,
) -> Result<Option<String>, UnknownVariable> {
    let (mut rest, mut out) = (text, String::new());
    while let Some((before, behind)) = rest.split_once("${") {
        out.push_str(before);
        let closed = behind.split_once('}');
        let found = closed.and_then(|(name, after)| Some((value_of(name)?, after)));
        let Some((value, after)) = found else {
            let line = 1 + out.matches('\n').count();
            let name = closed.map_or(behind, |(name, _)| name);
            return Err(UnknownVariable {
                name: name.lines().next().unwrap_or_default().to_owned(),
                path: path.to_owned(),
                line: u32::try_from(line).unwrap_or(u32::MAX),
            });
        };
        out.push_str(value);
        rest = after;
    }
    if out.is_empty() && rest.len() == text.len() {
        return Ok(None);
    }
    out.push_str(rest);
    Ok(Some(out))
}
