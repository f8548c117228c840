//! The capacity of this host, for engines that schedule.

use crate::facts::{BuiltIn, ThisHost};
use nfluid_api::types::Capacity;
use nfluid_control::capacity::capacity;
use nfluid_control::model::Deployment;
use nfluid_control::tier::{Isolation, Tier};
use nfluid_sandbox::{EMULATOR, has_kvm};
use std::collections::BTreeMap;
use std::path::Path;

/// The labels that the operator has given to the host.
pub type Labels = BTreeMap<String, String>;

/// Returns the capacity of this host with a deployment.
pub fn of_host(deployment: &Deployment, labels: &Labels) -> Capacity {
    let tiers = Tier::ALL.into_iter().filter(|tier| runs(*tier));
    capacity(deployment, &ThisHost).for_engines(tiers, &BuiltIn, labels)
}

/// Returns true if this host has what instances of a tier need.
fn runs(tier: Tier) -> bool {
    let isolation = tier.isolation();
    if isolation == Isolation::LINUX {
        return Path::new(EMULATOR).is_file();
    }
    isolation != Isolation::MICROVM || has_kvm().is_ok()
}
