//! D1: very many polling NFs. Where several share a core, an NF without frames yields the core: otherwise each would
//! use its whole time slice, and no number above a few per core would work.

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
