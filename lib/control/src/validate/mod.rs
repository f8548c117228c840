//! Validation: the parts of a deployment must be consistent with each other, and fit the host.
//!
//! Every check reports its findings and continues. A check is skipped if it would only repeat a known fault.

mod access;
mod congestion;
mod environment;
mod fast;
mod groups;
mod guarantees;
mod health;
mod instances;
mod interfaces;
mod io;
mod loops;
pub mod pools;
mod replicas;
mod security_groups;
pub(crate) mod shares;
mod slow;
mod stack;
mod templates;
mod topology;
mod trust;
mod uplinks;

pub use environment::{Background, Environment};

use crate::guards::with_guards;
use crate::model::Deployment;
use crate::report::Report;

/// Checks a deployment.
pub fn validate(
    deployment: &Deployment,
    background: Background<'_>,
    environment: Environment<'_>,
    report: &mut Report<'_>,
) {
    security_groups::check(deployment, report);
    let deployment = &*with_guards(deployment);
    let present = background.present.map(with_guards);
    let background = Background {
        present: present.as_deref(),
        ..background
    };
    uplinks::check(deployment, background.present, environment.host, report);
    instances::check(deployment, background, environment, report);
    fast::check(deployment, background, environment, report);
    shares::check(deployment, environment.host, report);
    io::check(deployment, background, environment.host, report);
    congestion::check(deployment, environment.host, report);
    trust::check(deployment, report);
    stack::check(deployment, report);
    interfaces::check(deployment, report);
    pools::check(deployment, environment.host, report);
    templates::check(deployment, background, environment, report);
    check_structure(deployment, report);
}

/// The checks that need neither host nor catalogue.
pub fn validate_structure(deployment: &Deployment, report: &mut Report<'_>) {
    security_groups::check(deployment, report);
    check_structure(&with_guards(deployment), report);
}

fn check_structure(deployment: &Deployment, report: &mut Report<'_>) {
    groups::check(deployment, report);
    topology::check(deployment, report);
    loops::check(deployment, report);
}
