//! Instances: program, configuration, flavor and memory.

use super::{Background, Environment, health, replicas};
use crate::attachments::FILE_KEYS;
use crate::frames::SLOT_MTU_MAX;
use crate::host::{Host, NETMAP_TX_RINGS, NfConfigError, PROGRAM_BYTES_MIN, rings_bytes};
use crate::model::{
    BUILT_IN_FLAVORS, Deployment, Frames, Instance, PORTS_MAX, Port, PortApi, Program,
};
use crate::quantity::Bytes;
use crate::report::{Report, did_you_mean};
use crate::spec::{PortSpec, port_specs};
use crate::tier::{Isolation, PortKind};
use crate::yaml::Node;

pub fn check(
    deployment: &Deployment,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let mut total = 0u64;
    let host_bytes = environment.host.memory_bytes();
    let processes = deployment.instances.iter();
    for (name, instance) in processes.filter(|(_, it)| it.tier.capabilities().has_process) {
        let path = format!("instances.{name}");
        let before = background
            .present
            .and_then(|present| present.instances.get(name));
        if before != Some(instance) {
            check_program(name, instance, &path, background.root, environment, report);
        }
        check_wake(deployment, instance, &path, report);
        check_frames(instance, &path, report);
        check_mtu(instance, &path, report);
        health::check(instance, &path, report);
        let memory = check_memory(deployment, instance, &path, host_bytes, report);
        total = total.saturating_add(memory.0.saturating_mul(instance.members().into()));
    }
    if total > host_bytes && !deployment.overcommit {
        report.warning(
            "instances",
            format!(
                "the memory limits add up to {} MiB, the host has {} MiB",
                total >> 20,
                host_bytes >> 20
            ),
            "lower 'memory' or use smaller flavors, if the instances will use their limits",
        );
    }
}

pub(super) fn check_program(
    name: &str,
    instance: &Instance,
    path: &str,
    root: Option<&Node>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let is_unread = instance.program.name().is_empty();
    if is_unread || report.is_spoilt(&format!("{path}.ports")) {
        return;
    }
    let ports = instance.queues();
    let fewest = usize::from(instance.stack.is_none());
    if !(fewest..=PORTS_MAX).contains(&ports) {
        report.error(
            &format!("{path}.ports"),
            format!("an instance cannot have {ports} ports, queues counted"),
            format!("give it 1 to {PORTS_MAX}"),
        );
        return;
    }
    check_tier(instance, path, report);
    check_switches(instance, path, report);
    replicas::check(instance, path, report);
    match &instance.program {
        Program::BuiltIn { nf } => {
            check_built_in(name, nf, instance, path, root, environment, report);
        }
        Program::Path { .. } | Program::Image { .. } if instance.stack.is_some() => report.error(
            &format!("{path}.listen"),
            "programs of your own cannot get sockets of the kernel's stack",
            "remove 'listen'; 'nf: tls' takes it",
        ),
        Program::Path { program, .. } => {
            let path = format!("{path}.program");
            if !program.starts_with('/') {
                report.error(
                    &path,
                    format!("'{program}' is not an absolute path"),
                    "begin it with '/': the daemon's working directory is not yours",
                );
            } else if instance.tier.capabilities().boots_kernel {
                // Whether the kernel is there is looked at when it is started.
            } else if let Err(reason) = environment.host.program(program) {
                report.error(
                    &path,
                    format!("'{program}' cannot be run: {reason}"),
                    "name an executable that exists on the host",
                );
            }
        }
        Program::Image { image, .. } => {
            check_image(image, environment.host, path, report);
        }
    }
}

/// Checks that there is an image of this name, for the instance or pool at `path`.
pub fn check_image(image: &str, host: &dyn Host, path: &str, report: &mut Report<'_>) {
    if let Err(reason) = host.image(image) {
        report.error(
            &format!("{path}.image"),
            reason,
            "'skopeo copy docker://NAME:TAG oci:/DIR:TAG' brings an image here",
        );
    }
}

/// Checks that a program on netmap is asked for nothing that netmap has no words for.
fn check_netmap(instance: &Instance, path: &str, report: &mut Report<'_>) {
    if instance
        .frames
        .is_some_and(|frames| frames != Frames::Plain)
    {
        report.error(
            &format!("{path}.frames"),
            "a program on netmap takes frames as they are on a wire",
            "remove 'frames'",
        );
    }
    if instance.trust.is_some() {
        report.error(
            &format!("{path}.trust"),
            "a program on netmap has buffers of its own, and swaps them between its rings",
            "remove 'trust'",
        );
    }
}

/// Checks that the tier of an instance has what the instance asks for.
fn check_tier(instance: &Instance, path: &str, report: &mut Report<'_>) {
    let tier = instance.tier;
    if instance.stack.is_some() && !tier.takes(PortKind::Sockets) {
        report.error(
            &format!("{path}.tier"),
            format!("an instance of tier '{tier}' cannot have sockets of the kernel's stack"),
            "remove 'tier': an instance that listens is of tier 'process'",
        );
    }
    let api = instance.program.api();
    if api != PortApi::Library && tier.isolation() != Isolation::PROCESS {
        report.error(
            &format!("{path}.api"),
            format!("a program of tier '{tier}' has no ports of the switch"),
            "remove 'api', or 'tier'",
        );
    }
    if api == PortApi::Netmap {
        check_netmap(instance, path, report);
    }
    if tier.capabilities().queues {
        return;
    }
    if tier.capabilities().boots_kernel && matches!(instance.program, Program::BuiltIn { .. }) {
        report.error(
            &format!("{path}.nf"),
            format!("an instance of tier '{tier}' runs a kernel, and no built-in NF"),
            "write 'program: /boot/vmlinuz-...', or another tier",
        );
    }
    let several = |port: &Port| port.queues.filter(|queues| *queues > 1);
    let divided = instance.ports.iter();
    let divided = divided.filter_map(|(name, port)| Some((name, several(port)?)));
    for (name, queues) in divided {
        report.error(
            &format!("{path}.ports"),
            format!(
                "port '{}' has {queues} queues, and an instance of tier '{tier}' has one thread",
                name.escape_debug()
            ),
            "remove 'queues'; 'replicas' divides the flows among several instances",
        );
    }
    if let Program::Path { args, .. } = &instance.program
        && !args.is_empty()
        && !tier.capabilities().own_stack
    {
        report.error(
            &format!("{path}.args"),
            format!(
                "a program of tier '{tier}' is that of a virtual machine, which takes no arguments"
            ),
            "write what it needs under 'config'",
        );
    }
}

/// Checks the frames that an instance says that it takes.
fn check_frames(instance: &Instance, path: &str, report: &mut Report<'_>) {
    let Some(frames) = instance.frames.filter(|frames| *frames != Frames::Plain) else {
        return;
    };
    let reason = if instance.stack.is_some() {
        "an instance on the kernel's stack gets no frames".to_owned()
    } else if instance.trust.is_some() {
        "the memory of a trust group has no room for long frames".to_owned()
    } else if frames > instance.program.frames() {
        let nf = instance.program.name().escape_debug();
        format!("the NF '{nf}' looks at each packet by itself")
    } else {
        return;
    };
    report.error(
        &format!("{path}.frames"),
        format!("this instance cannot take frames that are '{frames}': {reason}"),
        "remove 'frames', or write 'frames: plain'",
    );
}

/// Checks that long packets have memory.
fn check_mtu(instance: &Instance, path: &str, report: &mut Report<'_>) {
    if instance.trust.is_none() {
        return;
    }
    for (name, _) in long_ports(instance) {
        report.error(
            &format!("{path}.ports.{name}.mtu"),
            format!(
                "the memory of a trust group has no room for packets above {SLOT_MTU_MAX} bytes"
            ),
            "write a smaller 'mtu', or remove 'trust'",
        );
    }
}

/// Returns the ports whose packets need memory for long frames.
pub(super) fn long_ports(instance: &Instance) -> impl Iterator<Item = (&str, &Port)> {
    let is_long = |port: &Port| port.mtu.is_some_and(|mtu| mtu > SLOT_MTU_MAX);
    let ports = instance.ports.iter();
    ports.filter(move |(_, port)| is_long(port))
}

/// Checks the wake-up condition: if a receiver waits for more than half of its ring, frames are dropped before it is
/// awake.
fn check_wake(deployment: &Deployment, instance: &Instance, path: &str, report: &mut Report<'_>) {
    let (Some(wake), Some(flavor)) = (instance.wake, deployment.flavor(&instance.flavor)) else {
        return;
    };
    let most = flavor.ring / 2;
    if wake.frames > most {
        report.error(
            &format!("{path}.wake.frames"),
            format!(
                "an instance whose rings have {} slots cannot wait for {} frames: the ring would run over before it is awake",
                flavor.ring, wake.frames
            ),
            format!("write at most {most}, half of the ring, or choose a larger flavor"),
        );
    }
}

/// Checks that ports on switches have one queue: a switch identifies a port by its number, and further queues would be
/// other ports.
fn check_switches(instance: &Instance, path: &str, report: &mut Report<'_>) {
    for (name, port) in instance.ports.iter() {
        if port.queues.unwrap_or(1) > 1 && port.attachment.is_some() {
            report.error(
                &format!("{path}.ports.{name}.queues"),
                "a port on a switch has one queue",
                "remove 'queues', or reach the port by a link or a chain",
            );
        }
    }
}

/// Checks that the NF can work on several queues: each queue has an NF of its own, which uses that queue of each port.
fn check_queues(
    nf: &str,
    instance: &Instance,
    path: &str,
    environment: Environment<'_>,
    ports: &[PortSpec],
    report: &mut Report<'_>,
) {
    let most = ports.iter().map(|port| port.queues).max().unwrap_or(1);
    if most == 1 {
        return;
    }
    let path = format!("{path}.ports");
    if let Some(other) = ports.iter().find(|port| port.queues != most) {
        report.error(
            &format!("{path}.{}", other.name),
            format!(
                "the ports of the NF '{nf}' have different numbers of queues: {} and {most}",
                other.queues
            ),
            format!("write 'queues: {most}' at all of them"),
        );
    } else if let Err(why) = environment.catalogue.queues(nf, &instance.config, ports) {
        report.error(
            &path,
            format!("the NF '{nf}' cannot have several queues: {why}"),
            "remove 'queues'; for more cores, use several instances",
        );
    }
}

fn check_built_in(
    name: &str,
    nf: &str,
    instance: &Instance,
    path: &str,
    root: Option<&Node>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let catalogue = environment.catalogue;
    let Some((fewest, most)) = catalogue.ports(nf) else {
        let names = catalogue.names();
        report.error(
            &format!("{path}.nf"),
            format!("unknown NF '{}'", nf.escape_debug()),
            did_you_mean(nf, names.iter().map(String::as_str), "there are"),
        );
        return;
    };
    if catalogue.has_threads(nf) && instance.tier.isolation() != Isolation::PROCESS {
        report.error(
            &format!("{path}.tier"),
            format!(
                "the NF '{nf}' has threads of its own, and an instance of tier '{}' has one",
                instance.tier
            ),
            "remove 'tier'",
        );
        return;
    }
    let count = instance.ports.len();
    match (&instance.stack, most) {
        (None, 0) => {
            report.error(
                path,
                format!("the NF '{nf}' has no ports: it listens on the kernel's stack"),
                "add 'listen: ADDRESS:PORT', and no 'ports'",
            );
            return;
        }
        (Some(_), 1..) => {
            report.error(
                &format!("{path}.listen"),
                format!("the NF '{nf}' has ports, and does not listen on the kernel's stack"),
                "remove 'listen'",
            );
            return;
        }
        _ => {}
    }
    // An instance without ports is reported elsewhere.
    if most > 0 && !(fewest..=most).contains(&count) {
        let wanted = if fewest == most {
            format!("{fewest}")
        } else {
            format!("{fewest} to {most}")
        };
        report.error(
            &format!("{path}.ports"),
            format!("the NF '{nf}' has {wanted} ports, not {count}"),
            "add or remove ports",
        );
        return;
    }
    if report.is_spoilt(&format!("{path}.config")) {
        return;
    }
    let ports = port_specs(name, instance);
    if let Err(error) = catalogue.validate(nf, &instance.config, &ports) {
        report_config(&error, &format!("{path}.config"), root, report);
        return;
    }
    check_queues(nf, instance, path, environment, &ports, report);
    replicas::check_flows(nf, instance, path, environment, &ports, report);
}

/// Reports an error at the line that the NF names: in the document, or in the file that the text was read from.
pub(super) fn report_config(
    error: &NfConfigError,
    path: &str,
    root: Option<&Node>,
    report: &mut Report<'_>,
) {
    let remedy = "'docs/guide', or the NF's README.md in 'lib/nf/src', describes its configuration";
    let full_path = if error.path.is_empty() {
        path.to_owned()
    } else {
        format!("{path}.{}", error.path)
    };
    let file_key = FILE_KEYS
        .iter()
        .find(|(_, text_key)| *text_key == error.path)
        .map(|(file_key, _)| format!("{path}.{file_key}"));
    let file = file_key
        .as_deref()
        .and_then(|key| root?.at(key)?.as_scalar());
    if let Some(file) = file {
        report.error_in_file(&file.text, error.line, &full_path, &error.message);
        return;
    }
    let text = root.and_then(|root| root.at(&full_path)?.as_scalar());
    match (text, error.line) {
        (Some(text), Some(line)) => {
            let mark = crate::yaml::Mark {
                line: text.first_line.saturating_add(line).saturating_sub(1),
                column: 1,
            };
            report.error_at(mark, &full_path, error.message.clone(), remedy);
        }
        (None, Some(line)) => {
            let message = format!("line {line}: {}", error.message);
            report.error(&full_path, message, remedy);
        }
        (_, None) => report.error(&full_path, error.message.clone(), remedy),
    }
}

/// Returns the instance's memory limit, after checking it.
pub(super) fn check_memory(
    deployment: &Deployment,
    instance: &Instance,
    path: &str,
    host_bytes: u64,
    report: &mut Report<'_>,
) -> Bytes {
    let Some(flavor) = deployment.flavor(&instance.flavor) else {
        if !report.is_spoilt(&format!("{path}.flavor")) {
            let built_in = BUILT_IN_FLAVORS.iter().map(|(name, _)| *name);
            let known = deployment.flavors.names().chain(built_in);
            report.error(
                &format!("{path}.flavor"),
                format!("there is no flavor '{}'", instance.flavor.escape_debug()),
                did_you_mean(&instance.flavor, known, "there are"),
            );
        }
        return Bytes(0);
    };
    let memory = instance.memory.unwrap_or(flavor.memory);
    let tx_rings = match instance.program.api() {
        PortApi::Netmap => NETMAP_TX_RINGS,
        PortApi::Library | PortApi::Dpdk => 1,
    };
    let rings = rings_bytes(flavor.ring, instance.queues(), tx_rings);
    let least = rings.saturating_add(PROGRAM_BYTES_MIN);
    let path = match instance.memory {
        Some(_) => format!("{path}.memory"),
        None => path.to_owned(),
    };
    if memory.0 < least {
        let ports = instance.queues();
        report.error(
            &path,
            format!(
                "{memory} is less than {ports} ports with rings of {} slots and a program need",
                flavor.ring
            ),
            format!(
                "give it at least {}MiB, or a flavor with smaller rings",
                least.div_ceil(1 << 20)
            ),
        );
    } else if memory.0 > host_bytes {
        report.error(
            &path,
            format!("{memory} is more than the host has"),
            format!("the host has {} MiB", host_bytes >> 20),
        );
    }
    memory
}
