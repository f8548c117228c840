//! Instances.

use super::access::access;
use super::config::config;
use super::cpus::cpus;
use super::fast;
use super::fields::{Fields, integer, list, name, read, text, wrong_type};
use super::group::{parent, placement};
use super::health::health;
use super::interface::interface;
use super::io::model;
use super::network::attachment;
use super::security_group::{groups_of_port, prefixes};
use super::stack::stack;
use super::table::table;
use crate::attachments::Attachments;
use crate::members::REPLICAS_MAX;
use crate::model::Frames;
use crate::model::{Instance, Port, PortApi, Program, QUEUES_MAX, Restart, RestartPolicy};
use crate::portion::Portion;
use crate::quantity::{Micros, ValueError};
use crate::report::Report;
use crate::table::Table;
use crate::tier::Tier;
use crate::wake::{AFTER_MAX, FRAMES_MAX, FRAMES_MIN, Wake};
use crate::yaml::{Kind, Node};

/// Maximum length of an owner's name in bytes.
const OWNER_BYTES_MAX: usize = 128;
/// Bounds of a port's MTU: IPv4's minimum (RFC 791), and the longest that interfaces commonly have.
const MTU_BOUNDS: (i64, i64) = (68, 9216);

pub fn instance(
    node: &Node,
    path: &str,
    attachments: &Attachments,
    report: &mut Report<'_>,
) -> Instance {
    if fast::has_interface_ports(node) {
        return fast::fast_path(node, path, attachments, report);
    }
    let mut instance = Instance::default();
    let Some(mut fields) = Fields::new(node, path, report) else {
        return instance;
    };
    if let Some(program) = program(&mut fields, path, report) {
        instance.program = program;
    }
    if let Some((node, path)) = fields.get("config") {
        instance.config = config(node, &path, attachments, report);
    }
    instance.stack = stack(&mut fields, report);
    match fields.get("ports") {
        Some((node, path)) => {
            instance.ports = ports(node, &path, report);
            // An empty table would be written without the key, and read again with the default ports.
            let has_none = instance.ports.is_empty() && instance.stack.is_none();
            if has_none && !report.is_spoilt(&path) {
                let remedy = "name at least one, or remove 'ports': it has 'in' and 'out' then";
                report.error(&path, "an instance cannot have 0 ports", remedy);
            }
        }
        None if instance.stack.is_some() => instance.ports = Table::new(),
        None => {}
    }
    if let Some(flavor) = fields.text("flavor", report) {
        instance.flavor = flavor;
    }
    instance.owner = owner(&mut fields, report);
    instance.group = parent(&mut fields, report);
    instance.share = portion(&mut fields, "share", report);
    instance.cap = portion(&mut fields, "cap", report);
    instance.guarantee = portion(&mut fields, "guarantee", report);
    instance.memory = fields.parsed("memory", report);
    if let Some((node, path)) = fields.get("cpus") {
        instance.cpus = cpus(node, &path, report);
    }
    instance.placement = placement(&mut fields, report);
    if let Some((node, path)) = fields.get("slice") {
        instance.slice = read(node, &path, report, slice);
    }
    instance.frames = fields.choice("frames", &Frames::ALL, report);
    if let Some((node, path)) = fields.get("restart") {
        instance.restart = restart(node, &path, report);
    }
    let tiers = Tier::ALL.map(|tier| (tier.0.name, tier));
    let has_interfaces = instance
        .ports
        .iter()
        .any(|(_, port)| port.interface.is_some());
    let default = match has_interfaces {
        true => Tier::STACK,
        false => Tier::default(),
    };
    instance.tier = fields.choice("tier", &tiers, report).unwrap_or(default);
    instance.access = access(&mut fields, report);
    if let Some((node, path)) = fields.get("io") {
        instance.io = Some(model(node, &path, report));
    }
    if let Some((node, path)) = fields.get("trust") {
        instance.trust = name(node, &path, report);
    }
    if let Some((node, path)) = fields.get("wake") {
        instance.wake = wake(node, &path, report);
    }
    if let Some((node, path)) = fields.get("health") {
        instance.health = Some(health(node, &path, report));
    }
    instance.replicas = fields
        .integer("replicas", (1, REPLICAS_MAX.into()), report)
        .and_then(|replicas| u16::try_from(replicas).ok());
    fields.finish(report);
    instance
}

/// Reads whose instance it is.
pub fn owner(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<String> {
    let (node, path) = fields.get("owner")?;
    read(node, &path, report, |owner| {
        if (1..=OWNER_BYTES_MAX).contains(&owner.len())
            && owner.bytes().all(|c| c.is_ascii_graphic())
        {
            return Ok(owner.to_owned());
        }
        Err(ValueError::new(
            "it is no name of an owner".to_owned(),
            format!("write 1 to {OWNER_BYTES_MAX} printable ASCII characters without spaces"),
        ))
    })
}

/// Reads the part of the CPUs that one instance can use.
fn portion(fields: &mut Fields<'_>, key: &'static str, report: &mut Report<'_>) -> Option<Portion> {
    let (node, path) = fields.get(key)?;
    read(node, &path, report, Portion::of_instance)
}

fn program(fields: &mut Fields<'_>, path: &str, report: &mut Report<'_>) -> Option<Program> {
    let nf = fields.get("nf");
    let program = fields.get("program");
    let image = fields.get("image");
    let args = fields.get("args");
    let entrypoint = fields.get("entrypoint");
    if let (None, Some((node, path))) = (&image, &entrypoint) {
        report.error_at(
            node.mark,
            path,
            "only an image has an entrypoint",
            "write 'program', or 'image: oci:/DIR'",
        );
    }
    let built_in = nf.is_some();
    if let (true, Some((node, path))) = (built_in, &args) {
        report.error_at(
            node.mark,
            path,
            "a built-in NF takes no arguments",
            "put its settings under 'config'",
        );
    }
    let api = fields.get("api");
    if let (None, Some((node, path))) = (&program, &api) {
        report.error_at(
            node.mark,
            path,
            "only a program of the host has an 'api'",
            "remove 'api', or write 'program: /PATH'",
        );
    }
    let api = fields.choice("api", &PortApi::ALL, report);
    let mut words = |found: Option<(&Node, String)>| {
        found.map_or_else(Vec::new, |(node, path)| texts(node, &path, report))
    };
    let (args, entrypoint) = (words(args), words(entrypoint));
    match (nf, program, image) {
        (Some((node, path)), None, None) => Some(Program::BuiltIn {
            nf: text(node, &path, report)?.to_owned(),
        }),
        (None, Some((node, path)), None) => Some(Program::Path {
            program: text(node, &path, report)?.to_owned(),
            args,
            api: api.unwrap_or_default(),
        }),
        (None, None, Some((node, path))) => Some(Program::Image {
            image: text(node, &path, report)?.to_owned(),
            entrypoint,
            args,
        }),
        (None, None, None) => {
            report.error(
                path,
                "the instance has no program",
                "add 'nf: NAME' for a built-in NF, 'program: /PATH' for your own, or 'image: oci:/DIR'",
            );
            None
        }
        (_, Some((node, path)), _) | (_, _, Some((node, path))) => {
            report.error_at(
                node.mark,
                &path,
                "an instance has one of 'nf', 'program' and 'image'",
                "remove the others",
            );
            None
        }
    }
}

fn texts(node: &Node, path: &str, report: &mut Report<'_>) -> Vec<String> {
    list(node, path, report)
        .iter()
        .enumerate()
        .filter_map(|(i, item)| text(item, &format!("{path}[{i}]"), report))
        .map(str::to_owned)
        .collect()
}

/// Maximum length of a port's name in bytes: the size of the field in an instance's port table.
const PORT_NAME_MAX: usize = 31;

fn check_port_name(name: &str, path: &str, report: &mut Report<'_>) {
    if name.len() > PORT_NAME_MAX {
        let message = format!("a port's name cannot have {} characters", name.len());
        report.error(path, message, format!("use at most {PORT_NAME_MAX}"));
    }
}

/// Reads a mapping from names to ports, or a list of names.
fn ports(node: &Node, path: &str, report: &mut Report<'_>) -> Table<Port> {
    let Kind::Sequence(items) = &node.kind else {
        return table(Some((node, path.to_owned())), report, port);
    };
    let mut ports = Table::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let name = name(item, &path, report);
        if let Some(name) = &name {
            check_port_name(name, &path, report);
        }
        if let Some(name) = name
            && ports.insert(name.clone(), Port::default()).is_some()
        {
            let message = format!("duplicate name '{name}'");
            report.error_at(item.mark, &path, message, "rename or remove one");
        }
    }
    ports
}

fn port(node: &Node, path: &str, report: &mut Report<'_>) -> Port {
    check_port_name(path.rsplit('.').next().unwrap_or_default(), path, report);
    let Some(mut fields) = Fields::new(node, path, report) else {
        return Port::default();
    };
    let port = Port {
        mac: fields.parsed("mac", report),
        mtu: fields
            .integer("mtu", MTU_BOUNDS, report)
            .and_then(|mtu| u16::try_from(mtu).ok()),
        queues: fields
            .integer("queues", (1, QUEUES_MAX.into()), report)
            .and_then(|queues| u16::try_from(queues).ok()),
        attachment: attachment(&mut fields, report),
        interface: interface(&mut fields, report),
        security_groups: groups_of_port(&mut fields, report),
        allowed_addresses: prefixes("allowed_addresses", &mut fields, report),
    };
    fields.finish(report);
    port
}

const POLICIES: [(&str, RestartPolicy); 3] = [
    ("always", RestartPolicy::Always),
    ("on-failure", RestartPolicy::OnFailure),
    ("never", RestartPolicy::Never),
];

/// Reads `always`, or a mapping.
fn restart(node: &Node, path: &str, report: &mut Report<'_>) -> Restart {
    let mut restart = Restart::default();
    if let Some(scalar) = node.as_scalar() {
        match POLICIES.iter().find(|(name, _)| *name == scalar.text) {
            Some((_, policy)) => restart.policy = *policy,
            None => wrong_type(
                node,
                path,
                "always, on-failure, never, or a mapping",
                report,
            ),
        }
        return restart;
    }
    let Some(mut fields) = Fields::new(node, path, report) else {
        return restart;
    };
    if let Some(policy) = fields.choice("policy", &POLICIES, report) {
        restart.policy = policy;
    }
    if let Some(backoff) = fields.parsed("backoff", report) {
        restart.backoff = backoff;
    }
    restart.max = fields
        .integer("max", (0, 1_000_000), report)
        .and_then(|max| u32::try_from(max).ok());
    if let Some(healthy) = fields.parsed("healthy", report) {
        restart.healthy = healthy;
    }
    fields.finish(report);
    restart
}

/// Reads a number of frames and a time, both of which are required.
fn wake(node: &Node, path: &str, report: &mut Report<'_>) -> Option<Wake> {
    let mut fields = Fields::new(node, path, report)?;
    let mut required = |key: &'static str, report: &mut Report<'_>| {
        let found = fields.get(key);
        if found.is_none() {
            let remedy = "write both, for example { frames: 32, after: 500us }; without 'wake' each frame wakes";
            report.error_at(node.mark, path, format!("'{key}' is missing"), remedy);
        }
        found
    };
    let bounds = (FRAMES_MIN.into(), FRAMES_MAX.into());
    let frames = required("frames", report)
        .and_then(|(node, path)| integer(node, &path, bounds, report))
        .and_then(|frames| u32::try_from(frames).ok());
    let after = required("after", report)
        .and_then(|(node, path)| read(node, &path, report, wait_for_others));
    fields.finish(report);
    Some(Wake {
        frames: frames?,
        after: after?,
    })
}

/// Reads a time slice, within the bounds of the kernel (6.12).
fn slice(text: &str) -> Result<Micros, ValueError> {
    let slice: Micros = text.parse()?;
    if (100..=100_000).contains(&slice.0) {
        return Ok(slice);
    }
    Err(ValueError::new(
        format!("a slice cannot be {slice}"),
        "write 100us to 100ms",
    ))
}

/// Reads the maximum time that a frame can wait for others.
fn wait_for_others(text: &str) -> Result<Micros, ValueError> {
    let after: Micros = text.parse()?;
    if (1..=AFTER_MAX.0).contains(&after.0) {
        return Ok(after);
    }
    Err(ValueError::new(
        format!("a frame cannot wait {after} for others"),
        format!("write 1us to {AFTER_MAX}"),
    ))
}
