//! Slow paths of fast paths: the functions that can have one of their own, and its taps.

use super::Environment;
use super::uplinks::{is_interface_name, not_an_interface};
use crate::model::{Deployment, Instance, UplinkKind, XdpMode};
use crate::report::Report;
use std::collections::HashMap;

/// The fast path of each tap, by the tap's name and namespace.
pub type Taps<'a> = HashMap<(&'a str, Option<&'a str>), &'a str>;

pub fn check<'a>(
    deployment: &'a Deployment,
    name: &'a str,
    instance: &'a Instance,
    taps: &mut Taps<'a>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    let Some(attach) = &instance.attach else {
        return;
    };
    let Some(slow) = &attach.slow else {
        return;
    };
    let path = format!("instances.{name}.slow");
    // Functions that hand up packets that another function can decide. The slow path of all others is a part of
    // themselves, or the kernel.
    let functions = environment.catalogue.slow_path_names();
    if !functions.iter().any(|nf| nf == instance.program.name()) {
        report.error(
            &path,
            format!(
                "'{}' has no slow path but the kernel",
                instance.program.name().escape_debug()
            ),
            format!(
                "remove 'slow', or write 'slow: kernel'; an instance of {} in front of it on the interface (a lower 'order') can have \
                 another, which gets what neither can read",
                functions.join(", ")
            ),
        );
    }
    // In these modes, packets from the slow path would meet the program again, and be handed up again.
    if matches!(attach.mode, XdpMode::Generic | XdpMode::Tc) {
        report.error(
            &format!("instances.{name}.mode"),
            "packets from the slow path would enter this fast path again",
            "a fast path with a slow path of its own must be in the driver: write 'mode: native', or remove 'mode'",
        );
    }
    if attach.interfaces.len() > 1 {
        report.error(
            &format!("instances.{name}.interface"),
            "a slow path returns packets to one interface, and this fast path has several",
            "make an instance for each interface, each with a slow path",
        );
    }
    let netns = attach.netns.as_deref();
    for tap in slow.taps() {
        if !is_interface_name(tap) {
            not_an_interface(tap, &path, report);
        } else if attach.interfaces.iter().any(|own| own == tap) {
            let message = format!("'{tap}' is the interface of the fast path itself");
            report.error(&path, message, "a loop: name a tap that a program has open");
        } else if taps.contains_key(&(tap, netns)) {
            let other = taps.get(&(tap, netns)).copied().unwrap_or_default();
            report.error(
                &path,
                format!("'{tap}' is in the slow path of instance '{other}' already"),
                "give each slow path taps of its own, and different ones to 'tap' and 'back'",
            );
        } else {
            check_uplink(deployment, (tap, netns), &path, report);
        }
        taps.entry((tap, netns)).or_insert(name);
    }
}

/// Checks the use of a tap by an uplink: if an uplink of this deployment has the interface, the uplink must be a tap.
fn check_uplink(
    deployment: &Deployment,
    (tap, netns): (&str, Option<&str>),
    path: &str,
    report: &mut Report<'_>,
) {
    let mut uplinks = deployment.uplinks.iter();
    let found =
        uplinks.find(|(_, uplink)| uplink.interface == tap && uplink.netns.as_deref() == netns);
    if let Some((uplink, found)) = found
        && found.kind != UplinkKind::Tap
    {
        report.error(
            path,
            format!("the uplink '{uplink}' has the interface '{tap}' at XDP: packets sent into the tap are never read"),
            "write 'kind: tap' in the uplink, with an interface name of its own",
        );
    }
}
