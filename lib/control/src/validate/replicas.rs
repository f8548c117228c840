//! Instances with several members: the flows of the instance must be divisible.

use super::Environment;
use crate::model::{Instance, Program};
use crate::report::Report;
use crate::spec::PortSpec;

/// The checks that do not depend on the NF.
pub(super) fn check(instance: &Instance, path: &str, report: &mut Report<'_>) {
    if instance.members() <= 1 {
        return;
    }
    let path = format!("{path}.replicas");
    if !matches!(instance.program, Program::BuiltIn { .. }) {
        report.error(
            &path,
            "the flow state of your own program cannot be moved from one member to another",
            "remove 'replicas'; several instances and a chain for each divide traffic by rules",
        );
    }
    if instance.trust.is_some() {
        report.error(
            &path,
            "a member of a trust group holds slots of other members, and cannot give up its flows",
            "remove 'trust' or 'replicas'",
        );
    }
    for (port, spec) in instance.ports.iter() {
        if spec.attachment.is_some() {
            report.error(
                &path,
                format!(
                    "a switch knows port '{port}' by its number, which stands for one instance"
                ),
                "remove 'replicas', or reach the port by a link or a chain",
            );
        }
        if spec.queues.unwrap_or(1) > 1 {
            report.error(
                &path,
                format!("port '{port}' has queues: its flows are divided among threads already"),
                "remove 'queues' or 'replicas'",
            );
        }
    }
}

/// Checks that the NF supports several members.
pub(super) fn check_flows(
    nf: &str,
    instance: &Instance,
    path: &str,
    environment: Environment<'_>,
    ports: &[PortSpec],
    report: &mut Report<'_>,
) {
    if instance.members() <= 1 {
        return;
    }
    if let Err(why) = environment.catalogue.queues(nf, &instance.config, ports) {
        report.error(
            &format!("{path}.replicas"),
            format!("the NF '{nf}' cannot be several instances: {why}"),
            "remove 'replicas'",
        );
    }
}
