//! Changes of instances that are on their way to another host.
//!
//! The other host is told of an instance, its links and its chains once, and the instance is removed here when it runs there. A change
//! in between would be accepted and lost. The platform refuses actions on such an instance itself; the rest is carried out by its guards
//! and by the ports beside it, and is refused here.

use crate::action::Action;
use crate::apply::Platform;
use crate::model::{Chain, Deployment, Link, PortRef};
use crate::wiring::Destination;
use nfluid_api::types::Problem;

/// Checks a change of the whole deployment.
///
/// # Errors
/// The change is about an instance that may be on another host.
pub fn check(
    platform: &impl Platform,
    present: &Deployment,
    desired: &Deployment,
) -> Result<(), Problem> {
    for (name, new) in desired.instances.iter() {
        let old = present.instances.get(name);
        if old.is_some_and(|old| !old.is_guarded_like(new)) {
            check_stays(platform, name)?;
        }
    }
    for name in platform.leaving() {
        let stays = desired.instances.contains(&name);
        if stays && wires(present, &name) != wires(desired, &name) {
            check_stays(platform, &name)?;
        }
    }
    Ok(())
}

/// Checks the actions of a change that adds or removes single instances: it changes links of others.
///
/// # Errors
/// As for [`check`].
pub fn check_step(platform: &impl Platform, actions: &[Action]) -> Result<(), Problem> {
    for name in platform.leaving() {
        let is_its = |port: &PortRef| port.owner() == Some(&name);
        let is_wired = |action: &Action| match action {
            Action::Wire { port, old, new } => {
                let ends = [old, new].into_iter().flatten();
                is_its(port) || ends.flat_map(Destination::targets).any(is_its)
            }
            _ => false,
        };
        let is_removed =
            |action: &Action| matches!(action, Action::Instance(gone) if gone.name == name);
        if actions.iter().any(is_wired) && !actions.iter().any(is_removed) {
            check_stays(platform, &name)?;
        }
    }
    Ok(())
}

fn check_stays(platform: &impl Platform, name: &str) -> Result<(), Problem> {
    platform.check_stays(name).map_err(|cause| {
        Problem::failed(format!("{cause}; nothing was changed")).with_remedy(cause.remedy)
    })
}

/// Returns the links and the chains of an instance.
fn wires<'d>(deployment: &'d Deployment, name: &str) -> (Vec<&'d Link>, Vec<&'d Chain>) {
    let links = deployment.links.iter().filter(|link| link.is_of(name));
    let chains = deployment.chains.iter().map(|(_, chain)| chain);
    let chains = chains.filter(|chain| chain.ends_at(name) || chain.crosses(name));
    (links.collect(), chains.collect())
}
