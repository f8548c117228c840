//! Templates.

use super::fields::{Fields, parsed};
use super::{Attachments, instance, network};
use crate::model::PortRef;
use crate::quantity::Millis;
use crate::report::Report;
use crate::template::{
    Activate, COUNT_BOUNDS, ClientBy, IDLE_BOUNDS, IDLE_DEFAULT, MOST_DEFAULT, PER_SECOND_DEFAULT,
    Template,
};
use crate::yaml::{Kind, Mark, Node};

pub fn template(
    node: &Node,
    path: &str,
    attachments: &Attachments,
    report: &mut Report<'_>,
) -> Template {
    let nothing = Node {
        kind: Kind::Mapping(Vec::new()),
        mark: Mark::default(),
    };
    let mut unread = Report::new(None, None);
    let mut template = Template {
        activate: Activate::OnDemand,
        from: PortRef::Uplink(String::new()),
        to: PortRef::Uplink(String::new()),
        rules: Vec::new(),
        client: ClientBy::Address,
        most: MOST_DEFAULT,
        per_second: PER_SECOND_DEFAULT,
        idle: IDLE_DEFAULT,
        input: "in".into(),
        output: "out".into(),
        instance: instance::instance(&nothing, path, attachments, &mut unread),
    };
    let Some(mut fields) = Fields::new(node, path, report) else {
        return template;
    };
    let words = [("on-demand", Activate::OnDemand)];
    if fields.get("activate").is_none() {
        report.error(
            path,
            "the template does not say when its instances are made",
            "add 'activate: on-demand'",
        );
    }
    fields.choice("activate", &words, report);
    for (key, end) in [("from", &mut template.from), ("to", &mut template.to)] {
        match fields.get(key) {
            None => report.error(
                path,
                format!("the template does not say '{key}'"),
                format!("add '{key}: UPLINK'"),
            ),
            Some((node, path)) => {
                if let Some(port) = parsed(node, &path, report) {
                    *end = port;
                }
            }
        }
    }
    if let Some((node, path)) = fields.get("match") {
        template.rules = network::rules(node, &path, report);
    }
    let words = [
        ("address", ClientBy::Address),
        ("vlan", ClientBy::Vlan),
        ("mac", ClientBy::Mac),
    ];
    template.client = fields.choice("client", &words, report).unwrap_or_default();
    let mut count = |key, default| {
        let found = fields.integer(key, COUNT_BOUNDS, report);
        found.map_or(default, |count| count as u32)
    };
    template.most = count("most", MOST_DEFAULT);
    template.per_second = count("per_second", PER_SECOND_DEFAULT);
    if let Some(idle) = idle(&mut fields, report) {
        template.idle = idle;
    }
    for (key, port) in [("in", &mut template.input), ("out", &mut template.output)] {
        if let Some(name) = fields.text(key, report) {
            *port = name;
        }
    }
    match fields.get("instance") {
        Some((node, path)) => {
            template.instance = instance::instance(node, &path, attachments, report);
        }
        None => report.error(
            path,
            "the template does not say what each client gets",
            "add 'instance: { nf: NAME, ... }'",
        ),
    }
    fields.finish(report);
    template
}

fn idle(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Millis> {
    let (node, path) = fields.get("idle")?;
    let idle: Millis = parsed(node, &path, report)?;
    let (least, most) = IDLE_BOUNDS;
    if (least..=most).contains(&idle) {
        return Some(idle);
    }
    let message = format!("a time of {idle} is out of range");
    report.error_at(
        node.mark,
        &path,
        message,
        format!("write {least} to {most}"),
    );
    None
}
