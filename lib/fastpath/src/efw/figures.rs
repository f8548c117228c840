//! Metrics of a firewall, and the split of its rules between fast path and kernel.

use super::rules::Splitting;
use nfluid_api::types::FastRules;
use nfluid_evnf::firewall::Exit;
use nfluid_netdev::Place;
use std::collections::BTreeMap;

/// Returns the verdict of an exit of a firewall; `up` packets are handed up to the kernel for a reason.
pub fn verdict(exit: Exit) -> &'static str {
    match exit {
        Exit::Drop => "drop",
        Exit::Accept => "pass",
        _ => "up",
    }
}

/// Returns how many rules the fast path and the kernel decide, over all interfaces.
pub fn rules(loaded: &[Option<Splitting>], places: &[Place]) -> FastRules {
    let mut rules = FastRules::default();
    for (place, splitting) in places.iter().zip(loaded) {
        if let Some(splitting) = splitting {
            splitting.describe(&place.interface, &mut rules);
        }
    }
    rules
}

/// Adds metrics of the rules, by name with labels.
pub fn add_metrics(rules: &FastRules, metrics: &mut BTreeMap<String, f64>) {
    for (by, count) in [("fast", rules.fast), ("kernel", rules.kernel)] {
        metrics.insert(format!("xdp_rules{{by=\"{by}\"}}"), count as f64);
    }
}
