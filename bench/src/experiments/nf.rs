//! The network functions one by one (H6).

use super::alone::measure;
use super::subject::Subject;
use crate::report::Report;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let subjects = [
        ("bridge", Subject::Bridge),
        (
            "firewall10",
            Subject::Firewall {
                rules: 10,
                flows: 1000,
            },
        ),
        (
            "firewall50",
            Subject::Firewall {
                rules: 50,
                flows: 1000,
            },
        ),
        ("router10", Subject::Router { routes: 10 }),
        ("nat10k", Subject::Nat { flows: 10_000 }),
    ];
    let sizes = report.choose(vec![64, 128, 256, 512, 1024, 1514], vec![64, 1514]);
    measure(
        report,
        "One NF, alone on its core, traffic on the other",
        &subjects,
        &sizes,
    )
}
