//! Flavors, uplinks, switches, links and chains.

use super::fields::{Fields, list, mapping, name, parsed, read, text, wrong_type};
use super::instance::owner;
use super::interface::host;
use crate::matching::{MatchRule, PortRange, parse_prefix};
use crate::model::{
    Attachment, BUILT_IN_FLAVORS, Chain, DEFAULT_FLAVOR, Flavor, Hop, Link, PortRef, Steering,
    SuperFrames, Switch, Tunnel, Uplink, UplinkKind, VXLAN_PORT, XdpMode,
};
use crate::quantity::Millis;
use crate::report::Report;
use crate::yaml::{Kind, Node};
use ipnet::IpNet;

/// Minimum and maximum number of slots of a ring.
const RING_BOUNDS: (i64, i64) = (64, 1024);
/// VLAN ids that can be used (IEEE 802.1Q: 0 is priority only, 4095 reserved).
const VLAN_BOUNDS: (i64, i64) = (1, 4094);
/// Minimum and maximum ageing time of an address (IEEE 802.1D section 7.9.2).
const AGEING_BOUNDS: (Millis, Millis) = (Millis::secs(10), Millis::secs(1_000_000));

/// Numbers of tunnels (RFC 7348: 24 bits; 0 is what switches without tunnels have).
const VNI_BOUNDS: (i64, i64) = (1, 0x00ff_ffff);
const UDP_PORT_BOUNDS: (i64, i64) = (1, 65_535);
/// MTU of tunnels: the least of IPv6 (RFC 8200), and the longest packet of a port.
const TUNNEL_MTU_BOUNDS: (i64, i64) = (1280, 9216);

/// Converts a number whose bounds were checked.
fn narrow<T: TryFrom<i64>>(n: Option<i64>) -> Option<T> {
    n.and_then(|n| T::try_from(n).ok())
}

pub fn ring(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<u32> {
    let (node, path) = fields.get("ring")?;
    let slots = super::fields::integer(node, &path, RING_BOUNDS, report)?;
    if slots & (slots - 1) != 0 {
        let message = format!("a ring of {slots} slots is not a power of two");
        report.error_at(node.mark, &path, message, "write 64, 128, 256, 512 or 1024");
        return None;
    }
    narrow(Some(slots))
}

pub fn flavor(node: &Node, path: &str, report: &mut Report<'_>) -> Flavor {
    let default = BUILT_IN_FLAVORS
        .iter()
        .find(|(name, _)| *name == DEFAULT_FLAVOR)
        .map_or(BUILT_IN_FLAVORS[0].1, |(_, flavor)| *flavor);
    let Some(mut fields) = Fields::new(node, path, report) else {
        return default;
    };
    let flavor = Flavor {
        ring: ring(&mut fields, report).unwrap_or(default.ring),
        memory: fields.parsed("memory", report).unwrap_or(default.memory),
    };
    fields.finish(report);
    flavor
}

pub fn attachment(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Attachment> {
    let switch = fields.text("switch", report);
    let has_switch = switch.is_some();
    let vlan = narrow(fields.integer("vlan", VLAN_BOUNDS, report));
    let learn = fields.flag("learn", report);
    for key in ["vlan", "learn"] {
        if let Some((node, path)) = fields.get(key)
            && !has_switch
        {
            let message = format!("'{key}' has no effect without a switch");
            report.error_at(
                node.mark,
                &path,
                message,
                "add 'switch: NAME', or remove it",
            );
        }
    }
    switch.map(|switch| Attachment {
        switch,
        vlan,
        learn,
    })
}

const XDP_MODES: [(&str, XdpMode); 3] = [
    ("auto", XdpMode::Auto),
    ("native", XdpMode::Native),
    ("generic", XdpMode::Generic),
];

/// Reads the mode of an uplink's XDP program.
fn xdp_mode(fields: &mut Fields<'_>, report: &mut Report<'_>) -> XdpMode {
    let mode = fields.choice("mode", &XDP_MODES, report);
    mode.unwrap_or_default()
}

/// Reads the mode of a fast path.
pub fn fast_mode(fields: &mut Fields<'_>, report: &mut Report<'_>) -> XdpMode {
    let [auto, native, generic] = XDP_MODES;
    let modes = [auto, native, generic, ("tc", XdpMode::Tc)];
    fields.choice("mode", &modes, report).unwrap_or_default()
}

pub fn uplink(node: &Node, path: &str, report: &mut Report<'_>) -> Uplink {
    let mut uplink = Uplink {
        interface: String::new(),
        netns: None,
        kind: UplinkKind::Xdp,
        tunnel: None,
        mode: XdpMode::Auto,
        steering: Steering::Xdp,
        mac: None,
        super_frames: SuperFrames::Auto,
        ring: None,
        attachment: None,
        owner: None,
    };
    let Some(mut fields) = Fields::new(node, path, report) else {
        return uplink;
    };
    match fields.get("interface") {
        None => report.error(path, "the uplink has no interface", "add 'interface: NAME'"),
        Some((node, path)) => {
            uplink.interface = text(node, &path, report).unwrap_or_default().to_owned();
        }
    }
    uplink.netns = fields.text("netns", report);
    let kinds = [("xdp", UplinkKind::Xdp), ("tap", UplinkKind::Tap)];
    uplink.kind = fields.choice("kind", &kinds, report).unwrap_or_default();
    if let Some((node, path)) = fields.get("tunnel") {
        uplink.tunnel = tunnel(node, &path, report);
    }
    uplink.mode = xdp_mode(&mut fields, report);
    let steerings = [
        ("xdp", Steering::Xdp),
        ("nic", Steering::Nic),
        ("hybrid", Steering::Hybrid),
    ];
    uplink.steering = fields
        .choice("steering", &steerings, report)
        .unwrap_or_default();
    uplink.mac = fields.parsed("mac", report);
    let kinds = [("auto", SuperFrames::Auto), ("off", SuperFrames::Off)];
    uplink.super_frames = fields.choice("super", &kinds, report).unwrap_or_default();
    uplink.ring = ring(&mut fields, report);
    uplink.attachment = attachment(&mut fields, report);
    uplink.owner = owner(&mut fields, report);
    fields.finish(report);
    uplink
}

/// Reads a tunnel.
fn tunnel(node: &Node, path: &str, report: &mut Report<'_>) -> Option<Tunnel> {
    let mut fields = Fields::new(node, path, report)?;
    let mut address = |key| {
        let (node, path) = fields.get(key)?;
        read(node, &path, report, |text| host(text, "host"))
    };
    let (remote, local) = (address("remote"), address("local"));
    let vni = fields.integer("vni", VNI_BOUNDS, report);
    let port = narrow(fields.integer("port", UDP_PORT_BOUNDS, report));
    let mtu = narrow(fields.integer("mtu", TUNNEL_MTU_BOUNDS, report));
    for key in ["remote", "vni"] {
        if fields.get(key).is_none() {
            let message = format!("the tunnel has no '{key}'");
            report.error_at(
                node.mark,
                path,
                message,
                "write '{ remote: 192.0.2.2, vni: 100 }'",
            );
        }
    }
    fields.finish(report);
    Some(Tunnel {
        remote: remote?,
        local,
        vni: narrow(vni)?,
        port: port.unwrap_or(VXLAN_PORT),
        mtu,
    })
}

pub fn switch(node: &Node, path: &str, report: &mut Report<'_>) -> Switch {
    let mut switch = Switch::default();
    let Some(mut fields) = Fields::new(node, path, report) else {
        return switch;
    };
    if let Some((node, path)) = fields.get("ageing")
        && let Some(ageing) = parsed::<Millis>(node, &path, report)
    {
        let (least, most) = AGEING_BOUNDS;
        if (least..=most).contains(&ageing) {
            switch.ageing = ageing;
        } else {
            let message = format!("an ageing time of {ageing} is out of range");
            report.error_at(
                node.mark,
                &path,
                message,
                format!("write {least} to {most}"),
            );
        }
    }
    if let Some(addresses) = narrow(fields.integer("addresses", (16, 1 << 20), report)) {
        switch.addresses = addresses;
    }
    switch.owner = owner(&mut fields, report);
    fields.finish(report);
    switch
}

pub fn links(node: &Node, path: &str, report: &mut Report<'_>) -> Vec<Link> {
    // A link that cannot be read keeps its place, since key paths contain the positions of links.
    let nowhere = || {
        Link(
            PortRef::Uplink(String::new()),
            PortRef::Uplink(String::new()),
        )
    };
    list(node, path, report)
        .iter()
        .enumerate()
        .map(|(i, item)| link(item, &format!("{path}[{i}]"), report).unwrap_or_else(nowhere))
        .collect()
}

fn link(node: &Node, path: &str, report: &mut Report<'_>) -> Option<Link> {
    let Kind::Sequence(ends) = &node.kind else {
        wrong_type(
            node,
            path,
            "a list of two ports, [fw1.out, nat1.in]",
            report,
        );
        return None;
    };
    let [a, b] = ends.as_slice() else {
        report.error_at(
            node.mark,
            path,
            format!("a link has two ends, not {}", ends.len()),
            "write two ports, [fw1.out, nat1.in]; three or more need a switch",
        );
        return None;
    };
    let a = parsed(a, &format!("{path}[0]"), report);
    let b = parsed(b, &format!("{path}[1]"), report);
    Some(Link(a?, b?))
}

pub fn chain(node: &Node, path: &str, report: &mut Report<'_>) -> Chain {
    let mut chain = Chain {
        from: PortRef::Uplink(String::new()),
        to: PortRef::Uplink(String::new()),
        via: Vec::new(),
        rules: Vec::new(),
        return_rules: None,
    };
    let Some(mut fields) = Fields::new(node, path, report) else {
        return chain;
    };
    for (key, end) in [("from", &mut chain.from), ("to", &mut chain.to)] {
        match fields.get(key) {
            None => report.error(
                path,
                format!("the chain has no '{key}'"),
                format!("add '{key}: UPLINK' or '{key}: INSTANCE.PORT'"),
            ),
            Some((node, path)) => {
                if let Some(port) = parsed(node, &path, report) {
                    *end = port;
                }
            }
        }
    }
    if let Some((node, path)) = fields.get("via") {
        for (i, item) in list(node, &path, report).iter().enumerate() {
            if let Some(hop) = hop(item, &format!("{path}[{i}]"), report) {
                chain.via.push(hop);
            }
        }
    }
    if let Some((node, path)) = fields.get("match") {
        chain.rules = rules(node, &path, report);
    }
    if let Some((node, path)) = fields.get("return") {
        chain.return_rules = Some(rules(node, &path, report));
    }
    fields.finish(report);
    chain
}

/// Reads `fw1`, or `{instance: r1, in: a, out: b}`.
fn hop(node: &Node, path: &str, report: &mut Report<'_>) -> Option<Hop> {
    let mut hop = Hop {
        instance: String::new(),
        input: "in".into(),
        output: "out".into(),
    };
    if node.as_scalar().is_some() {
        hop.instance = name(node, path, report)?;
        return Some(hop);
    }
    let mut fields = Fields::new(node, path, report)?;
    match fields.get("instance") {
        None => report.error_at(
            node.mark,
            path,
            "this step has no instance",
            "write a name, or {instance: NAME, in: PORT, out: PORT}",
        ),
        Some((node, path)) => {
            hop.instance = text(node, &path, report).unwrap_or_default().to_owned();
        }
    }
    if let Some(port) = fields.text("in", report) {
        hop.input = port;
    }
    if let Some(port) = fields.text("out", report) {
        hop.output = port;
    }
    fields.finish(report);
    (!hop.instance.is_empty()).then_some(hop)
}

pub fn rules(node: &Node, path: &str, report: &mut Report<'_>) -> Vec<MatchRule> {
    if matches!(node.kind, Kind::Mapping(_)) {
        return rule(node, path, report).into_iter().collect();
    }
    list(node, path, report)
        .iter()
        .enumerate()
        .filter_map(|(i, item)| rule(item, &format!("{path}[{i}]"), report))
        .collect()
}

fn rule(node: &Node, path: &str, report: &mut Report<'_>) -> Option<MatchRule> {
    if node.is_null() || mapping(node, path, report)?.is_empty() {
        report.error_at(
            node.mark,
            path,
            "an empty rule matches everything",
            "name a field (vlan, ether, src, dst, proto, sport, dport), or leave 'match' out",
        );
        return None;
    }
    let mut fields = Fields::new(node, path, report)?;
    let rule = MatchRule {
        vlan: narrow(fields.integer("vlan", VLAN_BOUNDS, report)),
        ether: fields.parsed("ether", report),
        src: prefix(&mut fields, "src", report),
        dst: prefix(&mut fields, "dst", report),
        proto: fields.parsed("proto", report),
        sport: fields.parsed("sport", report),
        dport: fields.parsed("dport", report),
    };
    fields.finish(report);
    check_rule(&rule, path, report);
    Some(rule)
}

fn prefix(fields: &mut Fields<'_>, key: &'static str, report: &mut Report<'_>) -> Option<IpNet> {
    let (node, path) = fields.get(key)?;
    read(node, &path, report, parse_prefix)
}

/// Reports fields that can never match together.
fn check_rule(rule: &MatchRule, path: &str, report: &mut Report<'_>) {
    let ports: [(&str, Option<PortRange>); 2] = [("sport", rule.sport), ("dport", rule.dport)];
    let has_ports = rule.proto.is_some_and(|proto| proto.has_ports());
    for (key, range) in ports {
        if range.is_some() && !has_ports {
            report.error(
                &format!("{path}.{key}"),
                format!("'{key}' needs a protocol that has ports"),
                "add 'proto: tcp' (or udp, sctp) to the rule",
            );
        }
    }
    let families = [rule.src, rule.dst].map(|net| net.map(|net| net.network().is_ipv4()));
    if let [Some(src), Some(dst)] = families
        && src != dst
    {
        report.error(
            path,
            "'src' is of one IP version and 'dst' of the other",
            "write two rules",
        );
    }
    if let Some(ether) = rule.ether {
        let wanted = families
            .into_iter()
            .flatten()
            .map(|is_ipv4| if is_ipv4 { 0x0800 } else { 0x86dd });
        let is_ip = matches!(ether.0, 0x0800 | 0x86dd);
        if wanted.clone().any(|wanted| wanted != ether.0) || (rule.proto.is_some() && !is_ip) {
            report.error(
                &format!("{path}.ether"),
                format!("frames of type {ether} do not have the rule's other fields"),
                "leave 'ether' out: addresses and protocols imply it",
            );
        }
    }
}
