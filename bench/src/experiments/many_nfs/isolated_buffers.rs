//! D5: isolated buffers against shared ones: NFs with their own memory, so that the switch copies each frame at each
//! hop, and the same NFs in a trust group, in which the switch exchanges slots. The traffic is outside of the group: in
//! both cases a frame is copied on entry and on exit.
//!
//! First the measurements of all architectures: very many NFs, two per frame, on all cores. The NFs of a switch, 64 at
//! most, are a group: one of three hops differs.
//!
//! Then NFs in a row, of whose n + 1 hops n - 1 differ. CPU time is that of all processes, including the traffic's. All
//! run on one core, so that each process finds the frames that the previous one handled in its turn: on two cores the
//! batches, and so the figures, depend on which core happens to be faster.

use super::massive::{Architecture, Buffers, Entry, Sizes, Waiting, measure};
use crate::host::cpu::require_two_cores;
use crate::peer::run_together;
use crate::report::Report;
use crate::setups::chain::{BATCH, Chain, Links, Placement, RING};
use crate::sweep::{Quantity, Shown, Side, Sweep, lines};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot};
use nfluid_testbed::scratch::Scratch;

/// The quantities of NFs in a row under load.
const LOADED: [Quantity; 3] = [
    Quantity::new(".mpps", "Mpps", &[("Mpps", Shown::Median)]),
    // Per second of CPU time of the NFs and the traffic.
    Quantity::MPPS_PER_CPU,
    Quantity::shown(&[("late or lost", Shown::Sum)]),
];
/// The quantities of single frames through a row.
const PINGED: [Quantity; 2] = [
    Quantity::new(".rtt_us", "us", &[]),
    Quantity::new(".rtt_p99_us", "us", &[]),
];

/// Both kinds of buffers.
const BOTH: [Buffers; 2] = [Buffers::Isolated, Buffers::Shared];

impl Buffers {
    fn name(self) -> &'static str {
        match self {
            Buffers::Isolated => "isolated",
            Buffers::Shared => "shared",
        }
    }

    fn conditions(self) -> &'static str {
        match self {
            Buffers::Isolated => "each NF has memory of its own: a copy per hop",
            Buffers::Shared => "NFs of one trust group: slots are exchanged between them",
        }
    }

    /// Makes bridges, the NFs with the least own work.
    fn links(self, scratch: &mut Scratch, count: usize) -> anyhow::Result<Links> {
        let group = match self {
            Buffers::Isolated => None,
            Buffers::Shared => Some(scratch.group(Links::slots(count))?),
        };
        Ok(Links {
            workload: Workload::Bridge,
            group,
        })
    }
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    massive(report)?;
    in_a_row(report)
}

/// Measures two NFs per frame.
fn massive(report: &mut Report) -> anyhow::Result<()> {
    let isolated = Architecture {
        id: "d5",
        title: "memory of their own",
        waiting: Waiting::SLEEPING,
        buffers: Buffers::Isolated,
        entry: Entry::Port,
    };
    let shared = Architecture {
        id: "d5.shared",
        title: "trust groups of the 64 NFs of a switch",
        buffers: Buffers::Shared,
        ..isolated
    };
    measure(report, &[isolated, shared], &Sizes::common(report))
}

fn in_a_row(report: &mut Report) -> anyhow::Result<()> {
    let counts = report.choose(vec![2, 10, 50], vec![2]);
    let lens = report.choose(vec![64, 128, 256, 512, 1024, 1514], vec![64, 512, 1514]);
    let (rounds, seconds) = report.effort((5, 0.5), (5, 0.1));
    let mut sweep = Sweep::new(&["NFs", "bytes", "buffers"], LOADED);
    sweep.settles = false;
    for count in counts {
        let mut scratch = Scratch::new("d5")?;
        let first = sweep.rows().len();
        for &len in &lens {
            let sides = BOTH.map(|buffers| loaded(&mut scratch, count, len, buffers));
            let mut sides = sides.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
            let rows = sweep.run(report, rounds, &mut sides, |chain, _| {
                measure_load(chain, seconds)
            })?;
            sweep.report(report, rows.clone());
            if let [isolated, shared] = &sweep.rows()[rows] {
                let conditions = format!(
                    "frames per CPU-second; {} of {} hops differ",
                    count - 1,
                    count + 1
                );
                report.figure(
                    format!("d5.{count}.{len}.shared_vs_isolated"),
                    &shared.samples[1].ratios(&isolated.samples[1]),
                    "ratio",
                    &conditions,
                );
            }
        }
        report.plot(Plot {
            id: format!("d5.row.{count}"),
            title: format!("{count} NFs in a row: memory of their own, and a trust group"),
            x: Axis::log("frame size in bytes"),
            y: Axis::linear("Mpps per CPU-second"),
            series: lines(&sweep.rows()[first..], 1),
        });
        latency(report, &mut scratch, count, (rounds, seconds))?;
    }
    sweep.print("NFs in a row, by whose memory frames lie in");
    Ok(())
}

fn loaded(
    scratch: &mut Scratch,
    count: usize,
    len: usize,
    buffers: Buffers,
) -> anyhow::Result<Side<Chain>> {
    let links = buffers.links(scratch, count)?;
    let chain = Chain::loaded(scratch, count, Placement::OneCore, &links, len)?;
    let conditions = format!(
        "{}; batch {BATCH}, at most {RING} frames under way, {}; every process sleeps while nothing waits; \
         CPU time of all processes",
        buffers.conditions(),
        Placement::OneCore.name(),
    );
    let name = buffers.name();
    let key = [count.to_string(), len.to_string(), name.to_owned()];
    Ok(Side::new(key, format!("d5.{count}.{len}.{name}"), chain)
        .under(&conditions)
        .on(name, len as f64))
}

fn measure_load(chain: &mut Chain, seconds: f64) -> anyhow::Result<[f64; 3]> {
    let outcomes = run_together(&mut chain.peers, seconds)?;
    let cpu: f64 = outcomes.iter().map(|outcome| outcome.cpu_seconds).sum();
    let traffic = outcomes.last().context("no traffic")?;
    let frames = traffic.frames as f64;
    Ok([
        frames / traffic.seconds / 1e6,
        frames / cpu / 1e6,
        traffic.lost as f64,
    ])
}

/// Measures round trips of single frames of 64 B, all processes on one core.
fn latency(
    report: &mut Report,
    scratch: &mut Scratch,
    count: usize,
    (rounds, seconds): (usize, f64),
) -> anyhow::Result<()> {
    let mut sides = Vec::new();
    for buffers in BOTH {
        let links = buffers.links(scratch, count)?;
        let chain = Chain::pinged(scratch, count, Placement::OneCore, &links)?;
        let conditions = format!(
            "one frame of 64 B at a time, {}; {}",
            Placement::OneCore.name(),
            buffers.conditions()
        );
        let id = format!("d5.{count}.{}", buffers.name());
        sides.push(Side::new([], id, chain).under(&conditions));
    }
    let mut sweep = Sweep::new(&[], PINGED);
    sweep.settles = false;
    let rows = sweep.run(report, rounds, &mut sides, |chain, _| {
        let outcome = run_together(&mut chain.peers, seconds)?[count];
        Ok([outcome.median_us, outcome.p99_us])
    })?;
    sweep.report(report, rows);
    if let [isolated, shared] = sweep.rows() {
        report.figure(
            format!("d5.{count}.rtt_shared_vs_isolated"),
            &shared.samples[0].ratios(&isolated.samples[0]),
            "ratio",
            "round trips of one frame of 64 B",
        );
    }
    Ok(())
}
