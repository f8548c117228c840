//! Guests: clients of a template, and the objects that are created for each of them.

use super::{AT, Stage, Template};
use crate::decode::join;
use crate::host::{PROGRAM_BYTES_MIN, rings_bytes};
use crate::model::{Deployment, Instance, PortRef};
use crate::spec::InstanceSpec;
use crate::wiring::Destination;
use serde_json::Value;

/// A client for which an instance is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The template.
    pub template: String,
    /// The client, in the form for configurations: an address, or a VLAN id.
    pub client: String,
}

impl Guest {
    /// Returns the name of the client's instance, the first of several.
    pub fn name(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric();
        let client = self.client.chars();
        let client: String = client.map(|c| if is_plain(c) { c } else { '-' }).collect();
        format!("{}{AT}{client}", self.template)
    }

    /// Returns the name of the instance at this position of the client's chain.
    pub fn name_at(&self, place: usize) -> String {
        match place {
            0 => self.name(),
            place => format!("{}{AT}{}", self.name(), place + 1),
        }
    }
}

/// The objects that are created for a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The instances, with all defaults filled in.
    pub instances: Vec<(String, InstanceSpec)>,
    /// The destinations of their ports' frames.
    pub wires: Vec<(PortRef, Destination)>,
}

/// A variable that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// The text between the braces, or after an opening brace that is not closed.
    pub name: String,
    /// The key of the text within the configuration, for example `rules`.
    pub path: String,
    /// The line within the text, from 1.
    pub line: u32,
}

impl Template {
    /// Returns the instances of a client, in their order.
    ///
    /// # Errors
    /// The position of the first instance whose configuration has an unknown variable, and the variable.
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

    /// Returns the port that receives frames from the client, and the port that receives frames for it.
    pub fn ends_of(&self, guest: &Guest) -> Option<(PortRef, PortRef)> {
        let stages = &self.stages.0;
        let last = guest.name_at(stages.len().checked_sub(1)?);
        let entry = PortRef::instance(guest.name(), &stages.first()?.input);
        Some((entry, PortRef::instance(&last, &stages.last()?.output)))
    }

    /// Returns all objects of a client.
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

/// Returns the number of bytes that the instances of one client need for their rings and programs.
pub fn bytes_of_client(deployment: &Deployment, template: &Template) -> u64 {
    let needed = template.stages.0.iter().filter_map(|stage| {
        let flavor = deployment.flavor(&stage.instance.flavor)?;
        Some(rings_bytes(flavor.ring, stage.instance.ports.len(), 1) + PROGRAM_BYTES_MIN)
    });
    needed.fold(0, u64::saturating_add)
}

/// Replaces the variables in every text.
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
                fill_in(item, &join(path, key), value_of)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// Returns the text with its variables replaced; `None` if it has none. Replaced values are not expanded again.
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
