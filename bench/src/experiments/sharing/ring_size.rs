//! R2: ten forwarding processes on one core, with rings of different sizes (Sharing CPUs by congestion
//! control, KBNets '17).

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::roles::function::Manner;
use crate::roles::work::Waits;
use crate::setups::fleet::Fleet;
use crate::setups::forwarders::{LEN, QUANTITIES, forwarders, measure};
use crate::sweep::{Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_testbed::scratch::Scratch;

const PROCESSES: usize = 10;
const SIZES: [u32; 5] = [64, 128, 256, 512, 1024];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let sizes = report.choose(SIZES.to_vec(), vec![128, 1024]);
    let (rounds, seconds) = report.effort((9, 0.4), (3, 0.15));
    let mut sweep = Sweep::new(&["manner", "slots"], QUANTITIES);
    for (name, manner) in [("sleep", Manner::HOSTED), ("poll-yield", POLLING)] {
        let mut scratch = Scratch::new("r2")?;
        let mut sides = Vec::new();
        for &ring in &sizes {
            let fleet = Fleet::start(&mut scratch, forwarders(PROCESSES, manner, ring))?;
            sides.push(side(name, ring, fleet));
        }
        let rows = sweep.run(report, rounds, &mut sides, |fleet, _| {
            measure(fleet, &scratch, seconds)
        })?;
        sweep.report(report, rows);
    }
    report.plot(Plot {
        id: "r2".to_owned(),
        title: format!("{PROCESSES} forwarders on one core, {LEN} B"),
        x: Axis::log("slots per ring"),
        y: Axis::linear("Mpps"),
        series: lines(sweep.rows(), 0),
    });
    sweep.print("Forwarders on one core, by ring size");
    Ok(())
}

fn side(name: &str, ring: u32, fleet: Fleet) -> Side<Fleet> {
    let conditions =
        format!("{LEN} B, {PROCESSES} forwarders ({name}) on one core, traffic on the other");
    let id = match name {
        "sleep" => format!("r2.{ring}"),
        other => format!("r2.{other}.{ring}"),
    };
    Side::new([name.to_owned(), ring.to_string()], id, fleet)
        .under(&conditions)
        .on(name, ring)
}

/// As in the literature.
const POLLING: Manner = Manner {
    cycles: 0,
    waits: Waits::Yielding,
    yields: true,
};
