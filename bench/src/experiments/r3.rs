//! R3: two NFs of different cost share a core, both always with frames waiting: which share of the CPU
//! and of the packets does each get (Sharing CPUs by congestion control, KBNets '17)?
//!
//! CPU time is the kernel's account, frames are the switch's counters. Each NF has a cgroup of its own with
//! the same weight, as the platform gives it, so that half of the core is each one's. Time in which the
//! cheap one has emptied its ring and waits for the traffic is no claim: that it needs no more than half
//! of the core is looked at by running it alone for a moment before each run (`kept_percent`).

use super::fleet::{Fleet, Measured, Plan};
use super::forwarders::{LEN, RING, forwarders};
use super::two_cores;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::roles::Waits;
use crate::roles::function::Manner;
use crate::statistics::Samples;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::Scratch;

/// Extra cycles per frame of the cheap NF.
const CHEAP: u32 = 100;
/// Those of the dear one.
const DEAR: [u32; 7] = [100, 300, 1000, 3000, 10_000, 30_000, 100_000];

/// Where the literature's cheap NF starves: the dear one's batch is longer than the cheap one's ring lasts.
const MIXED: [u32; 3] = [1000, 3000, 10_000];

/// What the NFs do while nothing waits, and after a batch.
const MANNERS: [(&str, Waits, bool); 4] = [
    ("sleep", Waits::Sleeping, false),
    ("sleep-yield", Waits::Sleeping, true),
    ("spin", Waits::Spinning, false),
    ("spin-yield", Waits::Yielding, true),
];

/// A cheap NF and a dear one.
struct Lane {
    name: &'static str,
    cycles: u32,
    fleet: Fleet,
    _groups: Cgroups,
    /// The cheap NF's part of the CPU time of both, in percent.
    cheap: Samples,
    /// What it forwards of what it forwards alone, in percent.
    kept: Samples,
    /// The dear NF's part of the CPU time of both, in percent.
    cpu: Samples,
    /// Its part of the frames.
    frames: Samples,
    /// Frames of both per second, in millions.
    mpps: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let dear = report.choose(DEAR.to_vec(), vec![1000, 10_000]);
    let manners = report.choose(MANNERS.to_vec(), vec![MANNERS[0], MANNERS[2]]);
    let (rounds, seconds) = report.effort((7, 1.0), (2, 0.4));
    let (mut rows, mut mixed) = (Vec::new(), Vec::new());
    let (mut cpu, mut frames) = (Vec::new(), Vec::new());
    for (name, waits, yields) in manners {
        let manner = |cycles| Manner {
            cycles,
            waits,
            yields,
        };
        let mut scratch = Scratch::new("r3")?;
        let mut lanes = dear
            .iter()
            .map(|&cycles| Lane::new(&mut scratch, name, [manner(CHEAP), manner(cycles)]))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for round in 0..=rounds {
            for lane in &mut lanes {
                // The first round warms up.
                lane.measure(&scratch, seconds, round > 0)?;
            }
        }
        let mut series = [Series::new(name), Series::new(name)];
        for lane in lanes {
            let ratio = f64::from(lane.cycles) / f64::from(CHEAP);
            series[0].push(ratio, &lane.cpu);
            series[1].push(ratio, &lane.frames);
            lane.figures(report);
            rows.push(lane.row());
            if MIXED.contains(&lane.cycles) {
                mixed.push((format!("{name}, {} cycles", lane.cycles), lane.cheap));
            }
        }
        let [cpu_series, frame_series] = series;
        cpu.push(cpu_series);
        frames.push(frame_series);
    }
    let distance = |cheap: &Samples| (cheap.median() - 50.0).abs();
    let worst = mixed
        .iter()
        .max_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
    if let Some((lane, cheap)) = worst {
        let conditions = format!(
            "CPU time of the cheap NF, of that of both, in the mixed case: the one that is furthest \
             from half of all manners and costs, {lane}"
        );
        report.figure("r3.cheap_share_percent", cheap, "%", &conditions);
    }
    plot(report, "cpu", "% of the CPU time", cpu);
    plot(report, "packets", "% of the packets", frames);
    let header = [
        "manner",
        "cheap: cycles",
        "dear: cycles",
        "cheap: CPU %",
        "spread",
        "cheap: % of alone",
        "dear: packets %",
        "Mpps of both",
    ];
    table("A cheap and a dear NF on one core", &header, &rows);
    Ok(())
}

fn plot(report: &mut Report, what: &str, axis: &str, series: Vec<Series>) {
    report.plot(Plot {
        id: format!("r3.{what}"),
        title: format!("Two NFs on one core, {LEN} B: what the dear one gets"),
        x: Axis::log(format!("extra cycles per packet of the dear NF / {CHEAP}")),
        y: Axis::linear(axis),
        series,
    });
}

impl Lane {
    fn new(
        scratch: &mut Scratch,
        name: &'static str,
        [cheap, dear]: [Manner; 2],
    ) -> anyhow::Result<Self> {
        let mut plan: Plan = forwarders(2, cheap, RING);
        plan.members[1].manner = dear;
        let fleet = Fleet::start(scratch, plan)?;
        Ok(Lane {
            name,
            cycles: dear.cycles,
            _groups: fleet.share()?,
            fleet,
            cheap: Samples::default(),
            kept: Samples::default(),
            cpu: Samples::default(),
            frames: Samples::default(),
            mpps: Samples::default(),
        })
    }

    /// The cheap NF alone, then both.
    fn measure(&mut self, scratch: &Scratch, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let alone = self
            .fleet
            .measure_some(scratch, seconds / 4.0, |at| at == 0)?;
        let both = self.fleet.measure(scratch, seconds)?;
        if counts {
            self.note(&alone, &both);
        }
        Ok(())
    }

    fn note(&mut self, alone: &Measured, both: &Measured) {
        let part = |values: &[f64], of: usize| values[of] / values.iter().sum::<f64>() * 100.0;
        let frames: Vec<f64> = both.frames.iter().map(|n| *n as f64).collect();
        self.cheap.push(part(&both.cpu, 0));
        self.kept.push(both.rates()[0] / alone.rates()[0] * 100.0);
        self.cpu.push(part(&both.cpu, 1));
        self.frames.push(part(&frames, 1));
        self.mpps.push(both.mpps());
    }

    fn figures(&self, report: &mut Report) {
        let conditions = format!(
            "{LEN} B, rings of {RING} slots; NF of {CHEAP} extra cycles per packet beside one of {} \
             ({}), both always with frames, each in a cgroup of the same weight",
            self.cycles, self.name
        );
        let id = |what: &str| match self.name {
            "sleep" => format!("r3.{}.{what}", self.cycles),
            other => format!("r3.{other}.{}.{what}", self.cycles),
        };
        report.figure(id("cheap_percent"), &self.cheap, "%", &conditions);
        report.figure(id("kept_percent"), &self.kept, "%", &conditions);
        report.figure(id("cpu_percent"), &self.cpu, "%", &conditions);
        report.figure(id("packets_percent"), &self.frames, "%", &conditions);
        report.figure(id("mpps"), &self.mpps, "Mpps", &conditions);
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            CHEAP.to_string(),
            self.cycles.to_string(),
            format!("{:.1}", self.cheap.median()),
            format!(
                "{:.1}",
                self.cheap.high_quartile() - self.cheap.low_quartile()
            ),
            format!("{:.1}", self.kept.median()),
            significant(self.frames.median()),
            significant(self.mpps.median()),
        ]
    }
}
