//! The capacity of this host, for engines that schedule.

use crate::facts::{BuiltIn, ThisHost};
use nfluid_api::types::{Amount, Capacity};
use nfluid_control::capacity::{self, capacity};
use nfluid_control::host::Catalogue as _;
use nfluid_control::model::Deployment;
use nfluid_control::tier::{Isolation, Tier};
use nfluid_sandbox::{EMULATOR, has_kvm};
use std::collections::BTreeMap;
use std::path::Path;

/// The labels that the operator has given to the host.
pub type Labels = BTreeMap<String, String>;

/// Returns the capacity of this host with a deployment.
pub fn of_host(deployment: &Deployment, labels: &Labels) -> Capacity {
    let found = capacity(deployment, &ThisHost);
    let amount = |amount: capacity::Amount| Amount::new(amount.total, amount.used);
    let tiers = Tier::ALL.into_iter().filter(|tier| runs(*tier));
    Capacity {
        cpus: found.cpus,
        share_per_mille: amount(found.share),
        memory_bytes: amount(found.memory),
        ports: amount(found.ports),
        instances: amount(found.instances),
        tiers: tiers.map(|tier| tier.to_string()).collect(),
        nfs: BuiltIn.names(),
        architecture: std::env::consts::ARCH.to_owned(),
        labels: labels.clone(),
    }
}

/// Returns true if this host has what instances of a tier need.
fn runs(tier: Tier) -> bool {
    let isolation = tier.isolation();
    if isolation == Isolation::LINUX {
        return Path::new(EMULATOR).is_file();
    }
    isolation != Isolation::MICROVM || has_kvm().is_ok()
}
