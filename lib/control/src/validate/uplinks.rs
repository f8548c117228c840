//! Uplinks: their interfaces.

use crate::host::{Host, InterfaceFact};
use crate::model::{Deployment, Steering, Tunnel, Uplink, UplinkKind, XdpMode};
use crate::report::{Report, did_you_mean};
use std::collections::HashMap;

/// Maximum length of an interface's name in bytes (the kernel's IFNAMSIZ without its final zero).
const INTERFACE_NAME_MAX: usize = 15;

pub fn check(
    deployment: &Deployment,
    present: Option<&Deployment>,
    host: &dyn Host,
    report: &mut Report<'_>,
) {
    let mut users: HashMap<(&str, Option<&str>), &str> = HashMap::new();
    let mut tunnels: HashMap<(u32, u16, Option<&str>), &str> = HashMap::new();
    for (name, uplink) in deployment.uplinks.iter() {
        let path = format!("uplinks.{name}");
        if report.is_spoilt(&path) {
            continue;
        }
        let interface_path = format!("{path}.interface");
        if !is_interface_name(&uplink.interface) {
            not_an_interface(&uplink.interface, &interface_path, report);
            continue;
        }
        let place = (uplink.interface.as_str(), uplink.netns.as_deref());
        if let Some(other) = users.insert(place, name) {
            report.error(
                &interface_path,
                format!("uplink '{other}' has the interface '{}' already", place.0),
                "use one uplink per interface; several chains may share it",
            );
            continue;
        }
        if let Some(tunnel) = &uplink.tunnel
            && let Some(other) =
                tunnels.insert((tunnel.vni, tunnel.port, uplink.netns.as_deref()), name)
        {
            report.error(
                &format!("{path}.tunnel.vni"),
                format!("uplink '{other}' has the number {} already", tunnel.vni),
                "give each tunnel of a namespace its own, the same at both ends",
            );
            continue;
        }
        // An interface in use may disappear and return at any time. The daemon handles that, and a missing interface
        // must not prevent changes of the rest of the deployment.
        if present.and_then(|present| present.uplinks.get(name)) == Some(uplink) {
            continue;
        }
        check_steering(uplink, &path, host, report);
        if let Some(tunnel) = &uplink.tunnel {
            let was = present.and_then(|present| present.uplinks.get(name));
            let is_its_own = was.is_some_and(|was| {
                let place = (was.interface.as_str(), was.netns.as_deref());
                was.tunnel.is_some() && place == (&uplink.interface, uplink.netns.as_deref())
            });
            check_tunnel(uplink, tunnel, is_its_own, &path, host, report);
            continue;
        }
        match uplink.kind {
            UplinkKind::Xdp => {
                let netns = uplink.netns.as_deref();
                check_place(&uplink.interface, netns, &path, host, report);
            }
            UplinkKind::Tap => check_tap(uplink, &path, host, report),
        }
    }
}

pub(super) fn is_interface_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b':';
    (1..=INTERFACE_NAME_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && !matches!(name, "." | "..")
}

pub(super) fn not_an_interface(name: &str, path: &str, report: &mut Report<'_>) {
    report.error(
        path,
        format!("'{}' cannot be an interface", name.escape_debug()),
        format!("use 1 to {INTERFACE_NAME_MAX} characters without spaces and slashes"),
    );
}

/// Checks that an interface exists and is free. `path` is that of the object that uses the interface.
pub(super) fn check_place(
    interface: &str,
    netns: Option<&str>,
    path: &str,
    host: &dyn Host,
    report: &mut Report<'_>,
) {
    let remedy = format!("remove it: 'ip link set dev {interface} xdp off'");
    let fact = host.interface(interface, netns);
    report_place((interface, netns), fact, &remedy, path, report);
}

/// Reports the fault of an interface. `remedy` is the remedy if another party uses the interface.
pub(super) fn report_place(
    (interface, netns): (&str, Option<&str>),
    fact: InterfaceFact,
    remedy: &str,
    path: &str,
    report: &mut Report<'_>,
) {
    let interface_path = format!("{path}.interface");
    let somewhere = match netns {
        Some(netns) => format!("in the namespace '{netns}'"),
        None => "in the daemon's namespace".to_owned(),
    };
    match fact {
        InterfaceFact::Present => {}
        InterfaceFact::Missing(names) => report.error(
            &interface_path,
            format!("there is no interface '{interface}' {somewhere}"),
            did_you_mean(interface, names.iter().map(String::as_str), "there are"),
        ),
        InterfaceFact::Elsewhere(netns) => report.error(
            &interface_path,
            format!("there is no interface '{interface}' {somewhere}"),
            format!("it is in the namespace '{netns}': add 'netns: {netns}'"),
        ),
        InterfaceFact::NoNamespace => no_namespace(netns, path, report),
        InterfaceFact::Busy(program) => report.error(
            &interface_path,
            format!("the interface '{interface}' has an XDP program already: {program}"),
            remedy,
        ),
    }
}

/// Checks an uplink whose NIC classifies: the interface must be a NIC that can classify, and must not be on a switch,
/// where frames are not classified.
fn check_steering(uplink: &Uplink, path: &str, host: &dyn Host, report: &mut Report<'_>) {
    if uplink.steering == Steering::Xdp {
        return;
    }
    let path = format!("{path}.steering");
    let remedy =
        "write 'steering: xdp', or remove it: every interface's frames can be classified by XDP";
    let interface = &uplink.interface;
    let netns = uplink.netns.as_deref();
    if uplink.kind == UplinkKind::Tap {
        report.error(&path, "a tap has no NIC that classifies", remedy);
    } else if uplink.tunnel.is_some() {
        report.error(&path, "a tunnel has no NIC that classifies", remedy);
    } else if let Some(attachment) = &uplink.attachment {
        let message = format!(
            "nothing is classified at an uplink on switch '{}': the address decides",
            attachment.switch.escape_debug()
        );
        report.error(&path, message, "remove 'steering', or 'switch'");
    } else if host.interface(interface, netns) == InterfaceFact::Present
        && let Err(why) = host.steering(interface, netns)
    {
        report.error(&path, why, remedy);
    }
}

/// Checks a tunnel. `is_its_own`: the interface is that of the uplink as it is now.
fn check_tunnel(
    uplink: &Uplink,
    tunnel: &Tunnel,
    is_its_own: bool,
    path: &str,
    host: &dyn Host,
    report: &mut Report<'_>,
) {
    if uplink.kind == UplinkKind::Tap {
        report.error(
            &format!("{path}.kind"),
            "a tap is no tunnel",
            "remove 'kind: tap', or 'tunnel'",
        );
    }
    if tunnel
        .local
        .is_some_and(|local| local.is_ipv4() != tunnel.remote.is_ipv4())
    {
        report.error(
            &format!("{path}.tunnel.local"),
            "one end of the tunnel has an IPv4 address, the other one IPv6",
            "write both of the same kind",
        );
    }
    let netns = uplink.netns.as_deref();
    match host.interface(&uplink.interface, netns) {
        InterfaceFact::NoNamespace => no_namespace(netns, path, report),
        InterfaceFact::Present | InterfaceFact::Busy(_) if !is_its_own => report.error(
            &format!("{path}.interface"),
            format!("there is an interface '{}' already", uplink.interface),
            "choose another name: the tunnel's interface is made",
        ),
        _ => {}
    }
}

fn check_tap(uplink: &Uplink, path: &str, host: &dyn Host, report: &mut Report<'_>) {
    if uplink.mode != XdpMode::Auto {
        report.error(
            &format!("{path}.mode"),
            "a tap has no XDP mode",
            "remove 'mode', or 'kind: tap'",
        );
    }
    let netns = uplink.netns.as_deref();
    if host.interface(&uplink.interface, netns) == InterfaceFact::NoNamespace {
        no_namespace(netns, path, report);
    }
}

fn no_namespace(netns: Option<&str>, path: &str, report: &mut Report<'_>) {
    let netns = netns.unwrap_or_default();
    report.error(
        &format!("{path}.netns"),
        format!("there is no network namespace '{netns}'"),
        format!("make it first: 'ip netns add {netns}'; 'ip netns' lists those that exist"),
    );
}
