//! The network functions one by one (H5).

use super::alone::measure;
use crate::report::Report;
use crate::workload::Workload;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let workloads = [
        ("bridge", Workload::Bridge),
        (
            "firewall10",
            Workload::Firewall {
                rules: 10,
                flows: 1000,
            },
        ),
        (
            "firewall50",
            Workload::Firewall {
                rules: 50,
                flows: 1000,
            },
        ),
        ("router10", Workload::Router { routes: 10 }),
        ("nat10k", Workload::Nat { flows: 10_000 }),
    ];
    let sizes = report.choose(vec![64, 128, 256, 512, 1024, 1514], vec![64, 1514]);
    measure(
        report,
        "One NF, alone on its core, traffic on the other",
        &workloads,
        &sizes,
    )
}
