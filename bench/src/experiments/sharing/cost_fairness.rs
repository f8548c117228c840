//! R3: two NFs of different cost share a core, both always with waiting frames: the share of CPU time and of packets
//! that each gets (Sharing CPUs by congestion control, KBNets '17).
//!
//! CPU time is the kernel's accounting, frames are the switch's counters. Each NF has its own cgroup with the same
//! weight, as on the platform, so that each has a right to half of the core. Time in which the cheap NF has emptied its
//! ring and waits for the traffic is no such right: running it alone for a moment before each run shows that it needs
//! no more than half of the core (`kept_percent`).

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::roles::function::Manner;
use crate::roles::work::Waits;
use crate::setups::fleet::{Fleet, Plan};
use crate::setups::forwarders::{LEN, RING, forwarders};
use crate::sweep::{Quantity, Row, Shown, Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::Scratch;

/// Extra cycles per frame of the cheap NF.
const CHEAP: u32 = 100;
/// Signatures of the dear NF.
const DEAR: [u32; 7] = [100, 300, 1000, 3000, 10_000, 30_000, 100_000];

/// Costs at which the literature's cheap NF starves: the dear NF's batch takes longer than the cheap NF's ring takes to
/// fill.
const MIXED: [u32; 3] = [1000, 3000, 10_000];

/// Behaviour of the NFs while no frame waits, and after a batch.
const MANNERS: [(&str, Waits, bool); 4] = [
    ("sleep", Waits::Sleeping, false),
    ("sleep-yield", Waits::Sleeping, true),
    ("spin", Waits::Spinning, false),
    ("spin-yield", Waits::Yielding, true),
];

/// The quantities of a repetition, in the order of [`Pair::measure`].
const QUANTITIES: [Quantity; 5] = [
    // The cheap NF's part of the CPU time of both.
    Quantity::new(
        ".cheap_percent",
        "%",
        &[
            ("cheap: CPU %", Shown::Tenths),
            ("spread", Shown::Quartiles),
        ],
    ),
    // Throughput in percent of the throughput alone.
    Quantity::new(
        ".kept_percent",
        "%",
        &[("cheap: % of alone", Shown::Tenths)],
    ),
    // The dear NF's part of the CPU time of both.
    Quantity::new(".cpu_percent", "%", &[]),
    // The dear NF's part of the frames.
    Quantity::new(
        ".packets_percent",
        "%",
        &[("dear: packets %", Shown::Median)],
    ),
    Quantity::new(".mpps", "Mpps", &[("Mpps of both", Shown::Median)]),
];

/// A cheap NF and a dear one.
struct Pair {
    fleet: Fleet,
    _groups: Cgroups,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let dear = report.choose(DEAR.to_vec(), vec![1000, 10_000]);
    let manners = report.choose(MANNERS.to_vec(), vec![MANNERS[0], MANNERS[2]]);
    let (rounds, seconds) = report.effort((7, 1.0), (2, 0.4));
    let mut sweep = Sweep::new(&["manner", "cheap: cycles", "dear: cycles"], QUANTITIES);
    sweep.settles = false;
    for (name, waits, yields) in manners {
        let manner = |cycles| Manner {
            cycles,
            waits,
            yields,
        };
        let mut scratch = Scratch::new("r3")?;
        let mut sides = Vec::new();
        for &cycles in &dear {
            let pair = Pair::new(&mut scratch, [manner(CHEAP), manner(cycles)])?;
            sides.push(side(name, cycles, pair));
        }
        let rows = sweep.run(report, rounds, &mut sides, |pair, _| {
            pair.measure(&scratch, seconds)
        })?;
        sweep.report(report, rows);
    }
    mixed_case(report, sweep.rows());
    plot(report, "cpu", "% of the CPU time", lines(sweep.rows(), 2));
    plot(
        report,
        "packets",
        "% of the packets",
        lines(sweep.rows(), 3),
    );
    sweep.print("A cheap and a dear NF on one core");
    Ok(())
}

/// Reports the cheap NF's CPU time where it is furthest from half.
fn mixed_case(report: &mut Report, rows: &[Row<5>]) {
    let is_mixed = |row: &&Row<5>| MIXED.iter().any(|cycles| row.key[2] == cycles.to_string());
    let distance = |row: &&Row<5>| (row.samples[0].median() - 50.0).abs();
    let mixed = rows.iter().filter(is_mixed);
    let worst = mixed.max_by(|a, b| distance(a).total_cmp(&distance(b)));
    if let Some(row) = worst {
        let conditions = format!(
            "CPU time of the cheap NF, of that of both, in the mixed case: the one that is furthest \
             from half of all manners and costs, {}, {} cycles",
            row.key[0], row.key[2]
        );
        report.figure("r3.cheap_share_percent", &row.samples[0], "%", &conditions);
    }
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

fn side(name: &str, cycles: u32, pair: Pair) -> Side<Pair> {
    let conditions = format!(
        "{LEN} B, rings of {RING} slots; NF of {CHEAP} extra cycles per packet beside one of {cycles} \
         ({name}), both always with frames, each in a cgroup of the same weight"
    );
    let id = match name {
        "sleep" => format!("r3.{cycles}"),
        other => format!("r3.{other}.{cycles}"),
    };
    let key = [name.to_owned(), CHEAP.to_string(), cycles.to_string()];
    Side::new(key, id, pair)
        .under(&conditions)
        .on(name, f64::from(cycles) / f64::from(CHEAP))
}

impl Pair {
    fn new(scratch: &mut Scratch, [cheap, dear]: [Manner; 2]) -> anyhow::Result<Self> {
        let mut plan: Plan = forwarders(2, cheap, RING);
        plan.members[1].manner = dear;
        let fleet = Fleet::start(scratch, plan)?;
        Ok(Pair {
            _groups: fleet.share()?,
            fleet,
        })
    }

    /// Runs the cheap NF alone, then both.
    fn measure(&mut self, scratch: &Scratch, seconds: f64) -> anyhow::Result<[f64; 5]> {
        let alone = self
            .fleet
            .measure_some(scratch, seconds / 4.0, |at| at == 0)?;
        let both = self.fleet.measure(scratch, seconds)?;
        let part = |values: &[f64], of: usize| values[of] / values.iter().sum::<f64>() * 100.0;
        let frames: Vec<f64> = both.frames.iter().map(|n| *n as f64).collect();
        Ok([
            part(&both.cpu, 0),
            both.rates()[0] / alone.rates()[0] * 100.0,
            part(&both.cpu, 1),
            part(&frames, 1),
            both.mpps(),
        ])
    }
}
