//! R2: ten forwarding processes on one core, with rings of different sizes (Sharing CPUs by congestion
//! control, KBNets '17).

use super::forwarders::{COLUMNS, LEN, Lane};
use super::two_cores;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, table};
use crate::roles::Waits;
use crate::roles::function::Manner;
use nfluid_testbed::scratch::Scratch;

const PROCESSES: usize = 10;
const SIZES: [u32; 5] = [64, 128, 256, 512, 1024];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let sizes = report.choose(SIZES.to_vec(), vec![128, 1024]);
    let (rounds, seconds) = report.effort((9, 0.4), (3, 0.15));
    let manners = [("sleep", Manner::HOSTED), ("poll-yield", POLLING)];
    let (mut rows, mut plotted) = (Vec::new(), Vec::new());
    for (name, manner) in manners {
        let mut scratch = Scratch::new("r2")?;
        let mut lanes = sizes
            .iter()
            .map(|&ring| Lane::new(&mut scratch, PROCESSES, manner, ring))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for round in 0..=rounds {
            for lane in &mut lanes {
                report.settle();
                // The first round warms up.
                lane.measure(&scratch, seconds, round > 0)?;
            }
        }
        let mut series = Series::new(name);
        for (lane, ring) in lanes.iter().zip(&sizes) {
            series.push(f64::from(*ring), &lane.mpps);
            let conditions = format!(
                "{LEN} B, {PROCESSES} forwarders ({name}) on one core, traffic on the other"
            );
            let id = |what: &str| match name {
                "sleep" => format!("r2.{ring}.{what}"),
                other => format!("r2.{other}.{ring}.{what}"),
            };
            report.figure(id("mpps"), &lane.mpps, "Mpps", &conditions);
            report.figure(id("per_cpu_mpps"), &lane.per_cpu, "Mpps", &conditions);
            let key = [name.to_owned(), ring.to_string()];
            rows.push([key.to_vec(), lane.cells()].concat());
        }
        plotted.push(series);
    }
    report.plot(Plot {
        id: "r2".to_owned(),
        title: format!("{PROCESSES} forwarders on one core, {LEN} B"),
        x: Axis::log("slots per ring"),
        y: Axis::linear("Mpps"),
        series: plotted,
    });
    let header = [&["manner", "slots"], &COLUMNS[..]].concat();
    table("Forwarders on one core, by ring size", &header, &rows);
    Ok(())
}

/// As the literature's.
const POLLING: Manner = Manner {
    cycles: 0,
    waits: Waits::Yielding,
    yields: true,
};
