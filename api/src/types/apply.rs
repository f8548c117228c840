//! Changes of the desired state.

use super::Diagnostic;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

/// A request to apply a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// The YAML (or JSON) document.
    pub text: String,
    /// Name of the document in error messages: the file as the user named it, `-` for stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Texts of the files that the document names (`rules_file`, `routes_file`), by the name in the document. The
    /// daemon opens no file on a client's behalf.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attachments: BTreeMap<String, String>,
    /// Validates and plans, and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Adds the document's objects to the present deployment, and replaces those of the same name, instead of replacing
    /// the whole deployment by the document.
    #[serde(default)]
    pub merge: bool,
    /// The owner whose instances the document's instances of the same names take the places of: they are made anew, and links and chains stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// A request to create an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// The instance, in the syntax of a deployment's `instances`.
    #[schema(value_type = Object)]
    pub instance: Value,
    /// Links of its ports, in the syntax of a deployment's `links`: `["fw1.in", "lan"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<[String; 2]>,
    /// Texts of the files that the instance names, as in [`ApplyRequest`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attachments: BTreeMap<String, String>,
    /// Validates and plans, and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The owner whose instance of the same name gives way, as in [`ApplyRequest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

impl CreateRequest {
    /// Returns the same request as a document that adds the instance `name`.
    pub fn value(&self, name: &str) -> Value {
        serde_json::json!({
            "version": 1,
            "instances": { name: self.instance },
            "links": self.links,
        })
    }

    /// Returns the same request as a request to apply that document.
    pub fn document(self, name: &str) -> ApplyRequest {
        ApplyRequest {
            text: self.value(name).to_string(),
            attachments: self.attachments,
            dry_run: self.dry_run,
            merge: true,
            replaces: self.replaces,
            ..ApplyRequest::default()
        }
    }
}

/// The changes that an apply or a delete made, or would make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApplyResponse {
    /// True if nothing was changed: the changes are those that would be made.
    pub dry_run: bool,
    /// The changes; empty if the deployment was already as desired.
    pub changes: Vec<Change>,
    /// Warnings: accepted parts that are probably mistakes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Diagnostic>,
    /// The time of each phase, if single instances were created or ended by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Timeline>,
}

/// The time of each phase of a change, until the change was made. Writing it to the disk comes in addition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// Start of the change, in nanoseconds of the host's monotonic clock.
    pub begun_ns: u64,
    /// The phases since then, in their order.
    pub phases: Vec<Phase>,
}

/// A part of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Phase {
    /// Name of the phase.
    pub what: String,
    /// Duration in nanoseconds.
    pub took_ns: u64,
}

/// The kinds of objects.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Instances that share the group's CPU time.
    Group,
    /// A named ring size and memory limit.
    Flavor,
    /// Prepared instances.
    Pool,
    /// A port backed by a real interface.
    Uplink,
    /// A learning bridge.
    Switch,
    /// Rules for what passes the ports that are in a group.
    SecurityGroup,
    /// A network function.
    Instance,
    /// A port of an instance.
    Port,
    /// A connection of two ports.
    Link,
    /// An ordered list of NFs between two end points.
    Chain,
    /// The instance or chain that each client of an uplink gets, on demand.
    Template,
    /// Settings of the platform, which belong to no object.
    Platform,
}

impl Kind {
    /// All kinds, in the order in which they depend on each other.
    pub const ALL: [Kind; 12] = [
        Kind::Platform,
        Kind::Group,
        Kind::Flavor,
        Kind::Pool,
        Kind::Uplink,
        Kind::Switch,
        Kind::SecurityGroup,
        Kind::Instance,
        Kind::Port,
        Kind::Link,
        Kind::Chain,
        Kind::Template,
    ];

    /// Returns the kind's name in the singular.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Group => "group",
            Kind::Flavor => "flavor",
            Kind::Pool => "pool",
            Kind::Uplink => "uplink",
            Kind::Switch => "switch",
            Kind::SecurityGroup => "security group",
            Kind::Instance => "instance",
            Kind::Port => "port",
            Kind::Link => "link",
            Kind::Chain => "chain",
            Kind::Template => "template",
            Kind::Platform => "platform",
        }
    }

    /// Returns the kind's name in the plural, as in the API's paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Kind::Group => "groups",
            Kind::Flavor => "flavors",
            Kind::Pool => "pools",
            Kind::Uplink => "uplinks",
            Kind::Switch => "switches",
            Kind::SecurityGroup => "security-groups",
            Kind::Instance => "instances",
            Kind::Port => "ports",
            Kind::Link => "links",
            Kind::Chain => "chains",
            Kind::Template => "templates",
            Kind::Platform => "platform",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// The object was created.
    Created,
    /// The object was changed without being created again.
    Changed,
    /// The object was removed and created again; its state is lost.
    Replaced,
    /// The object was removed.
    Removed,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verb::Created => "created",
            Verb::Changed => "changed",
            Verb::Replaced => "replaced",
            Verb::Removed => "removed",
        })
    }
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The kind of the change.
    pub verb: Verb,
    /// The kind of the object.
    pub kind: Kind,
    /// The object's name; `instance.port` for a port, `a -- b` for a link.
    pub name: String,
    /// The keys that differ, for example `share: 30% -> 50%`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind, self.name, self.verb)?;
        if !self.details.is_empty() {
            write!(f, " ({})", self.details.join(", "))?;
        }
        Ok(())
    }
}

/// An object by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectName {
    /// The kind of the object.
    pub kind: Kind,
    /// The name of the object.
    pub name: String,
}

/// Most time in milliseconds that [`StopRequest`] gives a program: the request is answered afterwards.
pub const STOP_WAIT_MS_MAX: u64 = 90_000;

/// How a program is asked to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopRequest {
    /// The signal, such as `SIGINT`; absent: what the instance says.
    pub signal: Option<String>,
    /// Time in milliseconds after which it is killed, at most [`STOP_WAIT_MS_MAX`]; absent: what the instance says.
    pub wait_ms: Option<u64>,
}

/// A request to remove objects from the deployment: those of `objects` and those that `text` names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteRequest {
    /// Objects, by kind and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectName>,
    /// A document. All of its objects are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Name of the document in error messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Removes the links of the instances and uplinks of `objects` as well.
    #[serde(default)]
    pub with_links: bool,
    /// Removes all objects.
    #[serde(default)]
    pub everything: bool,
    /// Signal by which programs of the instances of `objects` are asked to end, such as `SIGINT`, instead of what their
    /// instances say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Time in milliseconds after which these programs are killed, instead of what their instances say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 90000)]
    pub stop_wait_ms: Option<u64>,
    /// Validates and plans, and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
}
