//! D1: very many NFs that poll. Where several share a core, one that finds nothing lets the others run:
//! without that, each would burn its whole time slice, and no number above a few per core would work.

use super::massive::{Architecture, Sweep, Waiting, measure};
use crate::report::Report;
use crate::roles::Waits;
use nfluid_switch::Wake;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let architecture = Architecture {
        id: "d1",
        title: "NFs that poll",
        waiting: Waiting {
            waits: Waits::Yielding,
            wake: Wake::AT_ONCE,
            list: None,
        },
    };
    let sweep = Sweep {
        nfs: report.choose(vec![2, 4, 10, 40, 100, 400, 1000, 2000], vec![2, 100]),
        lens: report.choose(vec![700, 64, 1514], vec![700]),
        rounds: report.choose(5, 2),
        seconds: report.choose(1.0, 0.2),
    };
    measure(report, &architecture, &sweep)
}
