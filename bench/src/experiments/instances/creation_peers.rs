//! Time of other ways to start something isolated, with no and with many idle instances, alternately with an instance
//! of nfluid: a process, namespaces, containers, all with one program that exits at once.

use super::creation::peers::Peers;
use super::creation::setup::{Setup, Way};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;

/// Shells of the pool.
const SHELLS: usize = 8;

const QUANTITIES: [Quantity; 1] = [Quantity::new(
    ".median_ms",
    "ms",
    &[("median", Shown::Median), ("p99", Shown::P99)],
)
.with_p99(".p99_ms")];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let numbers = report.choose([0, 1000], [0, 10]);
    let rounds = report.effort(30, 3);
    let mut setup = Setup::new()?;
    let mut sweep = Sweep::plain(&["", "beside"], QUANTITIES);
    let mut whats = Vec::new();
    for idle in numbers {
        setup.populate(idle)?;
        setup.pool(SHELLS)?;
        let mut peers = Peers::new()?;
        let (mut packet_ms, mut answer_ms) = (Samples::default(), Samples::default());
        for round in 0..rounds {
            interrupt::check()?;
            let created = setup.cycle(Way::Pool)?;
            packet_ms.push(created.first_packet_ms);
            answer_ms.push(created.answer_ms);
            for peer in &mut peers.found {
                // Containers of one run have unique names.
                peer.measure(idle * rounds + round + 1)?;
            }
        }
        let own = [
            (
                "nfluid",
                "an instance from the pool, until the daemon answers",
                &answer_ms,
            ),
            (
                "nfluid_packet",
                "the same, until the first frame has come through it",
                &packet_ms,
            ),
        ];
        let others = peers
            .found
            .iter()
            .map(|peer| (peer.name, peer.what, &peer.ms));
        for (name, what, ms) in own.into_iter().chain(others) {
            let conditions = format!("{what}; beside {idle} idle instances");
            let key = [name.to_owned(), idle.to_string()];
            let side = Side::new(key, format!("l2peers.{name}.{idle}"), ()).under(&conditions);
            sweep.add(&side, [ms.clone()]);
            whats.push(what);
        }
        for (name, why) in &peers.left_out {
            println!("{name} left out: {why}");
        }
        setup.pool(0)?;
    }
    sweep.notes = &["what"];
    for (row, what) in sweep.rows_mut().iter_mut().zip(whats) {
        row.notes.push(what.to_owned());
    }
    sweep.report_all(report);
    sweep.print("Starting something isolated; others: until it has ended, ms");
    Ok(())
}
