//! H11: chains of 1 to 50 firewalls in every I/O model (HyperNF, SoCC '17, fig. 13): throughput, and the round trip of
//! one frame; all NFs sleep while no frame waits.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::peer::run_together;
use crate::report::Report;
use crate::setups::chain::{BATCH, Chain, Links, Placement, RING};
use crate::sweep::{Quantity, Row, Shown, Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::highest;
use nfluid_testbed::scratch::Scratch;

/// Frame length in bytes, as in the paper.
const LEN: usize = 256;

/// The quantities of a repetition, in the order of [`Chains::measure`].
const QUANTITIES: [Quantity; 4] = [
    Quantity::MPPS,
    // Of the CPU time of the firewalls and their I/O threads.
    Quantity::new(
        ".mpps_per_cpu",
        "Mpps",
        &[("Mpps per CPU-second", Shown::Median)],
    ),
    Quantity::new(".rtt_us", "us", &[("rtt us", Shown::Median)]),
    Quantity::shown(&[("late or lost", Shown::Sum)]),
];

/// Two chains of the same length, one for round trips and one for throughput.
struct Chains {
    count: usize,
    ping: Chain,
    load: Chain,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(vec![1, 2, 5, 10, 20, 50], vec![1, 10, 50]);
    let models = report.choose(
        Model::ALL.to_vec(),
        vec![Model::Inline, Model::Merge, Model::Split { polls: false }],
    );
    // Starting hundreds of processes is most of a quick run.
    let in_long = report.choose(models.len(), 2);
    let (rounds, seconds) = report.effort((7, 0.5), (2, 0.1));
    let mut sweep = Sweep::new(&["firewalls", "model"], QUANTITIES);
    sweep.settles = false;
    for count in counts {
        let mut scratch = Scratch::new("h11")?;
        let measured = if count > 10 { in_long } else { models.len() };
        let sides = models[..measured]
            .iter()
            .map(|model| side(&mut scratch, count, *model));
        let mut sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
        let rows = sweep.run(report, rounds, &mut sides, |chains, _| {
            chains.measure(seconds)
        })?;
        sweep.report(report, rows.clone());
        inline_vs_best(report, count, &sweep.rows()[rows]);
    }
    sweep.print("Firewalls of 10 rules in a row, by I/O model");
    report.plot(Plot {
        id: "h11.throughput".to_owned(),
        title: "Chain of firewalls, 256 B".to_owned(),
        x: Axis::linear("firewalls"),
        y: Axis::log("Mpps"),
        series: lines(sweep.rows(), 0),
    });
    report.plot(Plot {
        id: "h11.rtt".to_owned(),
        title: "One frame through the chain and back".to_owned(),
        x: Axis::linear("firewalls"),
        y: Axis::log("us"),
        series: lines(sweep.rows(), 2),
    });
    Ok(())
}

fn inline_vs_best(report: &mut Report, count: usize, rows: &[Row<4>]) {
    let [inline, others @ ..] = rows else { return };
    let id = format!("h11.{count}.rtt_us");
    report.figure(id, &inline.samples[2], "us", &inline.conditions);
    for (quantity, what) in ["inline_vs_best", "inline_vs_best_per_cpu"]
        .into_iter()
        .enumerate()
    {
        if let Some(best) = highest(others, |row| &row.samples[quantity]) {
            report.figure(
                format!("h11.{count}.{what}"),
                &inline.samples[quantity].ratios(&best.samples[quantity]),
                "ratio",
                &format!("best other: {}", best.line),
            );
        }
    }
}

fn side(scratch: &mut Scratch, count: usize, model: Model) -> anyhow::Result<Side<Chains>> {
    let firewalls = Links::firewalls();
    // A single frame is fastest on one core; in the split model the thread is on the other core.
    let ping = Chain::pinged(scratch, count, Placement::OneCore, &firewalls)?;
    let load = Chain::loaded(scratch, count, Placement::TrafficApart, &firewalls, LEN)?;
    let chains = Chains {
        count,
        ping: ping.served(scratch, model, 0)?,
        load: load.served(scratch, model, Model::io_core())?,
    };
    let conditions = format!(
        "{}; throughput: {LEN} B, batch {BATCH}, at most {RING} frames under way, {}; \
         round trip: 64 B, {}; every process sleeps while nothing waits",
        model.conditions(),
        Placement::TrafficApart.name(),
        Placement::OneCore.name(),
    );
    let key = [count.to_string(), model.name().to_owned()];
    let id = format!("h11.{count}.{}", model.name());
    Ok(Side::new(key, id, chains)
        .under(&conditions)
        .on(model.name(), count as f64))
}

impl Chains {
    fn measure(&mut self, seconds: f64) -> anyhow::Result<[f64; 4]> {
        let ping = run_together(&mut self.ping.peers, seconds)?[self.count];
        let outcomes = run_together(&mut self.load.peers, seconds)?;
        let (load, firewalls_and_io) = (outcomes[self.count], outcomes.iter().enumerate());
        let cpu: f64 = firewalls_and_io
            .filter(|(index, _)| *index != self.count)
            .map(|(_, outcome)| outcome.cpu_seconds)
            .sum();
        Ok([
            load.frames as f64 / load.seconds / 1e6,
            load.frames as f64 / cpu / 1e6,
            ping.median_us,
            (ping.lost + load.lost) as f64,
        ])
    }
}
