//! The firewall by number of rules, of which the last one matches.

use super::alone::measure;
use super::subject::Subject;
use crate::report::Report;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let subjects = [
        ("firewall10", Subject::Firewall { rules: 10 }),
        ("firewall100", Subject::Firewall { rules: 100 }),
        ("firewall1000", Subject::Firewall { rules: 1000 }),
        ("firewall10000", Subject::Firewall { rules: 10_000 }),
    ];
    measure(report, "Firewall by number of rules", &subjects, &[64])
}
