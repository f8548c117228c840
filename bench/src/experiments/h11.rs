//! H11: chains of 1 to 50 firewalls in every I/O model (HyperNF, SoCC '17, fig. 13): throughput, and the
//! time of one frame there and back, all NFs asleep while nothing waits.

use super::chain::{BATCH, Chain, Links, Placement, RING};
use super::models::Model;
use super::two_cores;
use crate::peer::run_together;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::roles::Outcome;
use crate::statistics::{Samples, highest};
use nfluid_testbed::scratch::Scratch;

/// As in the paper, in bytes.
const LEN: usize = 256;

/// A length and a model.
struct Lane {
    count: usize,
    model: Model,
    ping: Chain,
    load: Chain,
    rtt: Samples,
    mpps: Samples,
    /// Per second of CPU time of the firewalls and their I/O threads.
    per_cpu: Samples,
    lost: u64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let counts = report.choose(vec![1, 2, 5, 10, 20, 50], vec![1, 10, 50]);
    let models = report.choose(
        Model::ALL.to_vec(),
        vec![Model::Inline, Model::Merge, Model::Split { polls: false }],
    );
    // Starting hundreds of processes is most of a quick run.
    let in_long = report.choose(models.len(), 2);
    let (rounds, seconds) = report.effort((7, 0.5), (2, 0.1));
    let series = |model: &Model| Series::new(model.name());
    let mut throughput: Vec<Series> = models.iter().map(series).collect();
    let mut latency = throughput.clone();
    let mut rows = Vec::new();
    for count in counts {
        let mut scratch = Scratch::new("h11")?;
        let measured = if count > 10 { in_long } else { models.len() };
        let mut lanes = models[..measured]
            .iter()
            .map(|model| Lane::new(&mut scratch, count, *model))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for round in 0..=rounds {
            for lane in &mut lanes {
                // The first round warms up.
                lane.measure(seconds, round > 0)?;
            }
        }
        for ((lane, throughput), latency) in lanes.iter().zip(&mut throughput).zip(&mut latency) {
            throughput.push(count as f64, &lane.mpps);
            latency.push(count as f64, &lane.rtt);
        }
        figures(report, count, &lanes);
        rows.extend(lanes.iter().map(Lane::row));
    }
    let header = [
        "firewalls",
        "model",
        "Mpps",
        "spread",
        "Mpps per CPU-second",
        "rtt us",
        "late or lost",
    ];
    table(
        "Firewalls of 10 rules in a row, by I/O model",
        &header,
        &rows,
    );
    report.plot(Plot {
        id: "h11.throughput".to_owned(),
        title: "Chain of firewalls, 256 B".to_owned(),
        x: Axis::linear("firewalls"),
        y: Axis::log("Mpps"),
        series: throughput,
    });
    report.plot(Plot {
        id: "h11.rtt".to_owned(),
        title: "One frame through the chain and back".to_owned(),
        x: Axis::linear("firewalls"),
        y: Axis::log("us"),
        series: latency,
    });
    Ok(())
}

fn figures(report: &mut Report, count: usize, lanes: &[Lane]) {
    for lane in lanes {
        let (id, conditions) = (
            format!("h11.{count}.{}", lane.model.name()),
            lane.conditions(),
        );
        report.figure(format!("{id}.mpps"), &lane.mpps, "Mpps", &conditions);
        report.figure(
            format!("{id}.mpps_per_cpu"),
            &lane.per_cpu,
            "Mpps",
            &conditions,
        );
        report.figure(format!("{id}.rtt_us"), &lane.rtt, "us", &conditions);
    }
    let [inline, others @ ..] = lanes else { return };
    report.figure(
        format!("h11.{count}.rtt_us"),
        &inline.rtt,
        "us",
        &inline.conditions(),
    );
    for (what, of) in [
        (
            "inline_vs_best",
            (|lane| &lane.mpps) as fn(&Lane) -> &Samples,
        ),
        ("inline_vs_best_per_cpu", |lane| &lane.per_cpu),
    ] {
        if let Some(best) = highest(others, of) {
            report.figure(
                format!("h11.{count}.{what}"),
                &of(inline).ratios(of(best)),
                "ratio",
                &format!("best other: {}", best.model.name()),
            );
        }
    }
}

impl Lane {
    fn new(scratch: &mut Scratch, count: usize, model: Model) -> anyhow::Result<Self> {
        let firewalls = Links::firewalls();
        // One frame is nowhere faster than on one core; a split's thread is on the other.
        let ping = Chain::pinged(scratch, count, Placement::OneCore, &firewalls)?;
        let load = Chain::loaded(scratch, count, Placement::TrafficApart, &firewalls, LEN)?;
        Ok(Lane {
            count,
            model,
            ping: ping.served(scratch, model, 0)?,
            load: load.served(scratch, model, Model::io_core())?,
            rtt: Samples::default(),
            mpps: Samples::default(),
            per_cpu: Samples::default(),
            lost: 0,
        })
    }

    fn measure(&mut self, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let ping = run_together(&mut self.ping.peers, seconds)?[self.count];
        let outcomes = run_together(&mut self.load.peers, seconds)?;
        if !counts {
            return Ok(());
        }
        let (firewalls, rest) = outcomes.split_at(self.count);
        let [load, io @ ..] = rest else { return Ok(()) };
        let cpu = |outcomes: &[Outcome]| -> f64 {
            outcomes.iter().map(|outcome| outcome.cpu_seconds).sum()
        };
        self.rtt.push(ping.median_us);
        self.mpps.push(load.frames as f64 / load.seconds / 1e6);
        self.per_cpu
            .push(load.frames as f64 / (cpu(firewalls) + cpu(io)) / 1e6);
        self.lost += ping.lost + load.lost;
        Ok(())
    }

    fn conditions(&self) -> String {
        format!(
            "{}; throughput: {LEN} B, batch {BATCH}, at most {RING} frames under way, {}; \
             round trip: 64 B, {}; every process sleeps while nothing waits",
            self.model.conditions(),
            Placement::TrafficApart.name(),
            Placement::OneCore.name(),
        )
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.count.to_string(),
            self.model.name().to_owned(),
            significant(self.mpps.median()),
            format!("{:.0} %", self.mpps.spread_percent()),
            significant(self.per_cpu.median()),
            significant(self.rtt.median()),
            self.lost.to_string(),
        ]
    }
}
