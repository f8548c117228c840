//! What a firewall has done, and who decides its rules.

use super::rules::Splitting;
use nfluid_api::types::FastRules;
use nfluid_evnf::firewall::Exit;
use nfluid_netdev::Place;
use std::collections::BTreeMap;

/// What became of packets that left a firewall like this: `up` is handed up to the kernel for a reason.
pub fn verdict(exit: Exit) -> &'static str {
    match exit {
        Exit::Drop => "drop",
        Exit::Accept => "pass",
        _ => "up",
    }
}

/// Who decides the rules, over all interfaces.
pub fn rules(loaded: &[Option<Splitting>], places: &[Place]) -> FastRules {
    let mut rules = FastRules::default();
    for (place, splitting) in places.iter().zip(loaded) {
        if let Some(splitting) = splitting {
            splitting.describe(&place.interface, &mut rules);
        }
    }
    rules
}

/// Adds figures of rules, by name with labels.
pub fn add_metrics(rules: &FastRules, metrics: &mut BTreeMap<String, f64>) {
    for (by, count) in [("fast", rules.fast), ("kernel", rules.kernel)] {
        metrics.insert(format!("xdp_rules{{by=\"{by}\"}}"), count as f64);
    }
}
