//! Instances of tier `xdp`: their network functions and interfaces.

use super::instances::report_config;
use super::slow;
use super::uplinks::{is_interface_name, not_an_interface, report_place};
use super::{Background, Environment};
use crate::fast::{Attach, Direction, MEMBERS_MAX};
use crate::host::InterfaceFact;
use crate::model::{Deployment, Instance, XdpMode};
use crate::report::{Report, did_you_mean};
use std::collections::HashMap;

/// The users of each interface, by its name and namespace.
type Users<'a> = HashMap<(&'a str, Option<&'a str>), User<'a>>;

enum User<'a> {
    Uplink(&'a str),
    /// In the order of the document.
    FastPaths(Vec<(&'a str, &'a Attach)>),
}

pub fn check(
    deployment: &Deployment,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let uplinks = deployment.uplinks.iter();
    let mut users: Users<'_> = uplinks
        .map(|(name, uplink)| {
            let place = (uplink.interface.as_str(), uplink.netns.as_deref());
            (place, User::Uplink(name))
        })
        .collect();
    let mut taps = slow::Taps::new();
    for (name, instance) in deployment.instances.iter() {
        let Some(attach) = &instance.attach else {
            continue;
        };
        let path = format!("instances.{name}");
        let present = background.present;
        let before = present.and_then(|present| present.instances.get(name));
        if before != Some(instance) {
            check_function(instance, &path, background, environment, report);
            check_direction(instance, attach, &path, environment, report);
        }
        check_neighbours(attach, &path, report);
        check_interfaces(attach, &path, &mut users, name, report);
        slow::check(deployment, name, instance, &mut taps, environment, report);
        // An interface in use may disappear and return at any time; the daemon handles that.
        let was_at = before.and_then(|before| before.attach.as_ref());
        if !was_at.is_some_and(|was_at| was_at.is_at(attach)) {
            check_presence(instance, attach, &path, environment, report);
        }
    }
}

fn check_function(
    instance: &Instance,
    path: &str,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let nf = instance.program.name();
    if nf.is_empty() || report.is_spoilt(&format!("{path}.config")) {
        return;
    }
    let catalogue = environment.catalogue;
    let names = catalogue.fast_names();
    if !names.iter().any(|name| name == nf) {
        report.error(
            &format!("{path}.nf"),
            format!("the NF '{}' has no fast path", nf.escape_debug()),
            did_you_mean(nf, names.iter().map(String::as_str), "there are"),
        );
        return;
    }
    if let Err(error) = catalogue.validate_fast(nf, &instance.config) {
        report_config(&error, &format!("{path}.config"), background.root, report);
    }
}

/// Checks the direction: XDP does not see egress packets, and not every NF supports every direction and mode.
fn check_direction(
    instance: &Instance,
    attach: &Attach,
    path: &str,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let is_xdp = matches!(attach.mode, XdpMode::Native | XdpMode::Generic);
    if attach.direction == Direction::Egress && is_xdp {
        report.error(
            &format!("{path}.direction"),
            "XDP sees only what comes in by an interface, not what goes out",
            "write 'mode: tc', where both are seen, or remove 'direction: egress'",
        );
        return;
    }
    let checked = environment
        .catalogue
        .validate_attach(instance.program.name(), attach);
    if let Err(why) = checked {
        report.error(&format!("{path}.{}", why.key), why.message, why.remedy);
    }
}

/// Checks that the libxdp dispatcher is used only at XDP.
fn check_neighbours(attach: &Attach, path: &str, report: &mut Report<'_>) {
    if attach.beside.is_none() {
        if attach.priority.is_some() {
            report.error(
                &format!("{path}.priority"),
                "'priority' needs 'beside': without a dispatcher a program has no priority",
                "add 'beside: libxdp', or set the position among the instances on the interface with 'order'",
            );
        }
        return;
    }
    if attach.mode == XdpMode::Tc || attach.direction == Direction::Egress {
        report.error(
            &format!("{path}.beside"),
            "libxdp's dispatcher is at XDP, and this instance is at tc",
            "remove 'beside': at tc, programs at XDP do not matter; or remove 'mode: tc' and 'direction'",
        );
    }
}

/// Checks that each interface has either an uplink, or fast paths with different positions.
fn check_interfaces<'a>(
    attach: &'a Attach,
    path: &str,
    users: &mut Users<'a>,
    name: &'a str,
    report: &mut Report<'_>,
) {
    for interface in &attach.interfaces {
        let path_of = |key: &str| format!("{path}.{key}");
        if !is_interface_name(interface) {
            not_an_interface(interface, &path_of("interface"), report);
            continue;
        }
        let place = (interface.as_str(), attach.netns.as_deref());
        let user = users.entry(place);
        match user.or_insert_with(|| User::FastPaths(Vec::new())) {
            User::Uplink(uplink) => report.error(
                &path_of("interface"),
                format!("uplink '{uplink}' has the interface '{interface}' already"),
                "an interface has one XDP program: use another interface, or remove one of them",
            ),
            User::FastPaths(others) => {
                if let Some((key, message, remedy)) = dispute(name, attach, interface, others) {
                    report.error(&path_of(key), message, remedy);
                } else {
                    others.push((name, attach));
                }
            }
        }
    }
}

/// Returns the reason why a fast path cannot share an interface with others: the key, the fault, the remedy.
fn dispute(
    name: &str,
    attach: &Attach,
    interface: &str,
    all: &[(&str, &Attach)],
) -> Option<(&'static str, String, String)> {
    // Each direction has a list of fast paths of its own.
    let others: Vec<_> = all
        .iter()
        .filter(|(_, other)| other.direction == attach.direction)
        .collect();
    if others.iter().any(|(other, _)| *other == name) {
        let message = format!("the interface '{interface}' is in the list twice");
        return Some(("interface", message, "remove one of them".to_owned()));
    }
    if let Some((other, _)) = others
        .iter()
        .find(|(_, other)| other.order.is_none() || attach.order.is_none())
    {
        return Some((
            "interface",
            format!("instance '{other}' has the interface '{interface}' already"),
            "set the order in which packets pass them: 'order: 10' in the first, 'order: 20' in the next one; or use another interface"
                .to_owned(),
        ));
    }
    if let Some((other, _)) = others.iter().find(|(_, other)| other.order == attach.order) {
        return Some((
            "order",
            format!("instance '{other}' has this position on the interface '{interface}' already"),
            "give each a number of its own: the lowest is the first".to_owned(),
        ));
    }
    if let Some((other, _)) = others.iter().find(|(_, other)| other.mode != attach.mode) {
        return Some((
            "mode",
            format!("instance '{other}' wants another mode of the interface '{interface}'"),
            "all fast paths on one interface have the same mode: write the same in both".to_owned(),
        ));
    }
    if let Some((other, _)) = others
        .iter()
        .find(|(_, other)| other.run_priority() != attach.run_priority())
    {
        let key = if attach.priority.is_some() {
            "priority"
        } else {
            "beside"
        };
        return Some((
            key,
            format!("instance '{other}' has another 'beside' or 'priority' on the interface '{interface}'"),
            "all fast paths on one interface share one position in libxdp's dispatcher: write the same 'beside' and 'priority' in all"
                .to_owned(),
        ));
    }
    if others.len() >= MEMBERS_MAX {
        let message = format!("the interface '{interface}' has {MEMBERS_MAX} fast paths already");
        let remedy =
            "the kernel follows no longer sequence of tail calls: use another interface".to_owned();
        return Some(("interface", message, remedy));
    }
    None
}

/// Checks that an interface exists. At XDP, the interface has room for one program; at tc, programs at XDP do not
/// matter.
fn check_presence(
    instance: &Instance,
    attach: &Attach,
    path: &str,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let at_tc = Attach {
        mode: XdpMode::Tc,
        ..attach.clone()
    };
    let catalogue = environment.catalogue;
    let can_be_at_tc = catalogue
        .validate_attach(instance.program.name(), &at_tc)
        .is_ok();
    let netns = attach.netns.as_deref();
    for interface in attach
        .interfaces
        .iter()
        .filter(|name| is_interface_name(name))
    {
        let fact = environment.host.interface(interface, netns);
        let has_room = attach.mode == XdpMode::Tc || attach.beside.is_some();
        if has_room && matches!(fact, InterfaceFact::Busy(_)) {
            continue;
        }
        let mut remedy = format!(
            "remove it: 'ip link set dev {interface} xdp off'; or write 'beside: libxdp', if it is libxdp's dispatcher"
        );
        if can_be_at_tc {
            remedy += "; or write 'mode: tc', which is beside what others have there";
        }
        report_place((interface, netns), fact, &remedy, path, report);
    }
}
