//! Templates, and chains on demand, which are templates as well.

use super::fields::{Fields, list, parsed};
use super::{instance, network};
use crate::attachments::Attachments;
use crate::model::PortRef;
use crate::quantity::Millis;
use crate::report::Report;
use crate::template::{
    Activate, COUNT_BOUNDS, ClientBy, IDLE_BOUNDS, IDLE_DEFAULT, MOST_DEFAULT, PER_SECOND_DEFAULT,
    STAGES_MAX, Stage, Stages, Template,
};
use crate::yaml::Node;

pub fn template(
    node: &Node,
    path: &str,
    attachments: &Attachments,
    report: &mut Report<'_>,
) -> Template {
    let mut template = Template {
        activate: Activate::OnDemand,
        from: PortRef::Uplink(String::new()),
        to: PortRef::Uplink(String::new()),
        rules: Vec::new(),
        client: ClientBy::Address,
        most: MOST_DEFAULT,
        per_second: PER_SECOND_DEFAULT,
        idle: IDLE_DEFAULT,
        stages: Stages(Vec::new()),
    };
    let Some(mut fields) = Fields::new(node, path, report) else {
        return template;
    };
    let words = [("on-demand", Activate::OnDemand)];
    if fields.get("activate").is_none() {
        report.error(
            path,
            "the template has no 'activate'",
            "add 'activate: on-demand'",
        );
    }
    fields.choice("activate", &words, report);
    for (key, end) in [("from", &mut template.from), ("to", &mut template.to)] {
        match fields.get(key) {
            None => report.error(
                path,
                format!("the template has no '{key}'"),
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
    template.stages = stages(&mut fields, path, attachments, report);
    fields.finish(report);
    template
}

/// Reads `instance`, with `in` and `out` beside it, or a list of several in `via`.
fn stages(
    fields: &mut Fields<'_>,
    path: &str,
    attachments: &Attachments,
    report: &mut Report<'_>,
) -> Stages {
    let Some((node, via)) = fields.get("via") else {
        return Stages(
            stage(fields, path, attachments, report)
                .into_iter()
                .collect(),
        );
    };
    for key in ["instance", "in", "out"] {
        if let Some((node, path)) = fields.get(key) {
            let remedy = "write it in an item of 'via', or leave 'via' out";
            report.error_at(node.mark, &path, format!("'{key}' beside 'via'"), remedy);
        }
    }
    let items = list(node, &via, report);
    if !(1..=STAGES_MAX).contains(&items.len()) {
        let message = format!("{} instances for each client", items.len());
        let remedy = format!("write 1 to {STAGES_MAX}: [{{ instance: {{ nf: NAME }} }}]");
        report.error_at(node.mark, &via, message, remedy);
    }
    let read = |(i, item): (usize, &Node)| {
        let path = format!("{via}[{i}]");
        if item.as_scalar().is_some() {
            let message = "each client gets instances of its own: the name of an instance is not accepted here";
            let remedy = "write { instance: { nf: NAME, ... } }";
            report.error_at(item.mark, &path, message, remedy);
            return None;
        }
        let mut fields = Fields::new(item, &path, report)?;
        let stage = stage(&mut fields, &path, attachments, report);
        fields.finish(report);
        stage
    };
    Stages(items.iter().enumerate().filter_map(read).collect())
}

fn stage(
    fields: &mut Fields<'_>,
    path: &str,
    attachments: &Attachments,
    report: &mut Report<'_>,
) -> Option<Stage> {
    let input = fields.text("in", report);
    let output = fields.text("out", report);
    let Some((node, path)) = fields.get("instance") else {
        report.error(
            path,
            "the template has no instance",
            "add 'instance: { nf: NAME, ... }'",
        );
        return None;
    };
    Some(Stage {
        input: input.unwrap_or_else(|| "in".into()),
        output: output.unwrap_or_else(|| "out".into()),
        instance: instance::instance(node, &path, attachments, report),
    })
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
