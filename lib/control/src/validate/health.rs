//! Health checks: they must be consistent with the rest of the instance.

use crate::health::{Check, Remedy};
use crate::model::{Instance, RestartPolicy};
use crate::quantity::Millis;
use crate::report::Report;

pub fn check(instance: &Instance, path: &str, report: &mut Report<'_>) {
    let Some(health) = &instance.health else {
        return;
    };
    let path = format!("{path}.health");
    let is_hosted = instance.program.is_hosted(instance.tier);
    if !is_hosted && health.checks.contains(&Check::Process) {
        report.error(
            &format!("{path}.checks"),
            "a program of your own has no control socket on which it could answer",
            "write 'checks: [progress]', or remove 'checks'",
        );
    }
    if health.action == Remedy::Restart && instance.restart.policy == RestartPolicy::Never {
        report.error(
            &path,
            "the instance would be killed when unhealthy, and not started again: its restart policy is 'never'",
            "write 'action: report', or another 'restart'",
        );
    }
    let Some(wake) = instance.wake else { return };
    let asleep = Millis(wake.after.0.div_ceil(1_000));
    if health.makes(Check::Progress, is_hosted) && health.timeout < asleep.plus(asleep) {
        report.error(
            &format!("{path}.timeout"),
            format!(
                "frames can wait {} until the instance is woken, and the check reports a hang after {}",
                wake.after, health.timeout
            ),
            format!("write at least {}, twice 'wake.after'", asleep.plus(asleep)),
        );
    }
}
