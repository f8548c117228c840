//! The firewall by number of rules, of which only the last matches; the longest list also with more flows than the
//! firewall remembers, so that the rules are searched.

use super::alone::measure;
use crate::report::Report;
use crate::workload::Workload;

/// Flows that fit the firewall's memory of flows.
const FEW: u32 = 1000;
/// Flows that exceed the firewall's memory of flows.
const MANY: u32 = 65_536;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let firewall = |rules, flows| Workload::Firewall { rules, flows };
    let workloads = [
        ("firewall10", firewall(10, FEW)),
        ("firewall100", firewall(100, FEW)),
        ("firewall1000", firewall(1000, FEW)),
        ("firewall10000", firewall(10_000, FEW)),
        ("firewall10000.flows64k", firewall(10_000, MANY)),
    ];
    measure(report, "Firewall by number of rules", &workloads, &[64])
}
