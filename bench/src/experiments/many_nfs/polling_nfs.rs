//! D1: very many NFs that poll. Where several share a core, one that finds nothing lets the others run:
//! without that, each would burn its whole time slice, and no number above a few per core would work.

use super::massive::{Architecture, Buffers, Entry, Sizes, Waiting, measure};
use crate::report::Report;
use crate::roles::work::Waits;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let architecture = Architecture {
        id: "d1",
        title: "NFs that poll",
        waiting: Waiting {
            waits: Waits::Yielding,
            ..Waiting::SLEEPING
        },
        buffers: Buffers::Isolated,
        entry: Entry::Port,
    };
    let sizes = Sizes::common(report);
    measure(report, &[architecture], &sizes)
}
