//! The slow path of an instance of tier `xdp`.

use super::fast::has_interface_ports;
use super::fields::{Fields, text, wrong_type};
use crate::fast::{Attach, Slow};
use crate::model::{Deployment, Link, PortRef, Steering, SuperFrames, Uplink, UplinkKind, XdpMode};
use crate::quantity::Mac;
use crate::report::Report;
use crate::yaml::{Kind, Node};

/// Instance ports as the slow path: `port` receives packets from the fast path; packets return by `back`, or by `port`
/// if `back` is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    port: PortRef,
    back: Option<PortRef>,
}

/// The value of `slow`.
pub enum SlowValue {
    Taps(Slow),
    Ports(Ports),
}

/// Reads `kernel`, `{tap: NAME, back: NAME}`, or `{port: INSTANCE.PORT, back: INSTANCE.PORT}`.
pub fn slow(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<SlowValue> {
    let (node, path) = fields.get("slow")?;
    if let Kind::Scalar(_) = node.kind {
        if text(node, &path, report)? != "kernel" {
            let wanted = "'kernel', {tap: NAME}, or {port: INSTANCE.PORT}";
            wrong_type(node, &path, wanted, report);
        }
        return None;
    }
    let mut fields = Fields::new(node, &path, report)?;
    let [tap, port, back] = ["tap", "port", "back"].map(|key| fields.get(key));
    let said = match (tap, port) {
        (Some((node, path)), None) => {
            let back = back.and_then(|(node, path)| text(node, &path, report));
            let tap = text(node, &path, report);
            tap.map(|tap| {
                SlowValue::Taps(Slow {
                    tap: tap.to_owned(),
                    back: back.map(str::to_owned),
                })
            })
        }
        (None, Some((node, path))) => {
            let back = back.and_then(|(node, path)| port_of_instance(node, &path, report));
            let port = port_of_instance(node, &path, report);
            port.map(|port| SlowValue::Ports(Ports { port, back }))
        }
        _ => {
            let message = "a slow path is either a tap or a port of an instance";
            let remedy = "write 'tap: NAME' or 'port: INSTANCE.PORT', or 'slow: kernel'";
            report.error_at(node.mark, &path, message, remedy);
            None
        }
    };
    fields.finish(report);
    said
}

fn port_of_instance(node: &Node, path: &str, report: &mut Report<'_>) -> Option<PortRef> {
    let port = super::fields::parsed(node, path, report)?;
    if let PortRef::Uplink(name) = &port {
        let message = format!("'{name}' is no port of an instance");
        report.error_at(node.mark, path, message, "write INSTANCE.PORT");
        return None;
    }
    Some(port)
}

/// Returns the ports that an instance's `slow` names. Faults of `slow` are reported elsewhere.
pub fn ports_of(instance: &Node) -> Option<Ports> {
    if !has_interface_ports(instance) {
        return None;
    }
    let mut silent = Report::new(None, None);
    let mut fields = Fields::new(instance, "", &mut silent)?;
    match slow(&mut fields, &mut silent)? {
        SlowValue::Ports(ports) => Some(ports),
        SlowValue::Taps(_) => None,
    }
}

/// Expands the short form `slow: {port: ...}`: an uplink with a tap for each port, and a link between them.
pub fn write_out(
    deployment: &mut Deployment,
    wanted: Vec<(String, Ports)>,
    report: &mut Report<'_>,
) {
    for (name, Ports { port, back }) in wanted {
        let netns = attach_of(deployment, &name).and_then(|attach| attach.netns.clone());
        let tap = join(deployment, &name, ("slow", port), netns.clone(), report);
        let back = back.map(|back| join(deployment, &name, ("back", back), netns, report));
        if let Some(attach) = attach_of(deployment, &name) {
            attach.slow = Some(Slow { tap, back });
        }
    }
}

fn attach_of<'a>(deployment: &'a mut Deployment, name: &str) -> Option<&'a mut Attach> {
    deployment.instances.get_mut(name)?.attach.as_mut()
}

/// Links a port to an uplink of its own. Returns the name of the uplink's tap.
fn join(
    deployment: &mut Deployment,
    name: &str,
    (word, port): (&str, PortRef),
    netns: Option<String>,
    report: &mut Report<'_>,
) -> String {
    let uplink = format!("{name}-{word}");
    // An interface's name has 15 bytes.
    let [_, hash @ ..] = Mac::derived(&uplink).0;
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let tap = format!("nfslo{hash}");
    let own = Uplink {
        interface: tap.clone(),
        netns,
        kind: UplinkKind::Tap,
        tunnel: None,
        mode: XdpMode::Auto,
        steering: Steering::Xdp,
        mac: None,
        super_frames: SuperFrames::Auto,
        ring: None,
        attachment: None,
        // What is made for an instance stays as long as it.
        owner: deployment
            .instances
            .get(name)
            .and_then(|it| it.owner.clone()),
    };
    let link = Link(PortRef::Uplink(uplink.clone()), port);
    // A deployment that is read again contains the expanded form already.
    let is_there = deployment.uplinks.get(&uplink) == Some(&own);
    if deployment.uplinks.contains(&uplink) && !is_there {
        report.error(
            &format!("instances.{name}.slow"),
            format!("its slow path needs the name '{uplink}' for its uplink, and another uplink has this name"),
            "rename the other uplink",
        );
        return tap;
    }
    if !is_there {
        deployment.uplinks.insert(uplink, own);
    }
    if !deployment.links.contains(&link) {
        deployment.links.push(link);
    }
    tap
}
