//! Refusal at a chain's entry: a cheap NF forwards to a dear NF, both flooded, beside an uninvolved neighbour on the
//! same core. Without refusal the cheap NF spends its share on frames that the next ring drops; with refusal, they are
//! refused before any work is done.
//!
//! The daemon's counters are checked against each other when no frame moves: the frames that the first NF forwarded are
//! those that the second received or lost; the frames that the chain refused are those that its entry dropped for that
//! reason.

use super::counters::{Moment, named};
use super::ends::{Ends, OF_ENDS, OF_NFS};
use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use std::time::Duration;

/// The NFs and the signatures of each per frame: about 3, 100 and 10 us.
const NFS: [(&str, u32); 3] = [("first", 300), ("second", 9000), ("neighbour", 900)];
const NAMES: [&str; 3] = [NFS[0].0, NFS[1].0, NFS[2].0];
const FIRST: usize = 0;
const SECOND: usize = 1;
const NEIGHBOUR: usize = 2;
/// Time before a measurement in which the refusing thread learns the cost of packets.
const SETTLE: Duration = Duration::from_secs(1);
/// Number of checks that no frame moves, and the time in between.
const QUIET_TRIES: u32 = 100;
const QUIET: Duration = Duration::from_millis(100);

/// The quantities with refusal off or on.
const QUANTITIES: [Quantity; 7] = [
    Quantity::new(".chain_kpps", "kpps", &[("chain kpps", Shown::Median)])
        .meaning("frames into the dear NF"),
    Quantity::new(
        ".neighbour_kpps",
        "kpps",
        &[("neighbour kpps", Shown::Median)],
    )
    .meaning("frames into the neighbour"),
    Quantity::new(
        ".wasted_cpu_percent",
        "%",
        &[("wasted CPU %", Shown::Median)],
    )
    .meaning("of the core, by the cheap NF on frames that died at the dear one's ring"),
    Quantity::new(
        ".first.cpu_percent",
        "%",
        &[("CPU % of first", Shown::Median)],
    )
    .meaning("of the core"),
    Quantity::new(".second.cpu_percent", "%", &[("second", Shown::Median)]).meaning("of the core"),
    Quantity::new(
        ".neighbour.cpu_percent",
        "%",
        &[("neighbour", Shown::Median)],
    )
    .meaning("of the core"),
    Quantity::new(".refused_percent", "%", &[("refused %", Shown::Median)])
        .meaning("of the frames for the chain"),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let outside = Namespace::new()?;
    let ends = [Ends::new(&outside, 1)?, Ends::new(&outside, 2)?];
    let platform = platform::start()?;
    let (rounds, seconds) = report.effort((7, 4), (2, 1));
    let time = Duration::from_secs(seconds);
    let mut sides = [("off", ""), ("on", "congestion: { law: off }\n")].map(|(refusal, congestion)| {
        let deployment = deployment(congestion, outside.name());
        let conditions = format!(
            "refusal {refusal}; signature NFs of 300 and 9000 rounds in a chain, of 900 beside it, all flooded by UDP, \
             on core {OF_NFS}; senders on core {OF_ENDS}"
        );
        Side::new([refusal.to_owned()], format!("refusal.{refusal}"), deployment).under(&conditions)
    });
    let mut sweep = Sweep::plain(&["refusal"], QUANTITIES);
    sweep.run(report, rounds, &mut sides, |deployment, _| {
        measure(&platform, deployment, &ends, time)
    })?;
    sweep.print("A cheap NF before a dear one, flooded, beside a neighbour on the same core");
    sweep.report_all(report);
    let [off, on] = [0, 1].map(|row| &sweep.rows()[row].samples);
    let what = "throughput with refusal over without, round by round";
    for (quantity, id) in ["refusal.chain_gain", "refusal.neighbour_gain"]
        .into_iter()
        .enumerate()
    {
        report.figure(id, &on[quantity].ratios(&off[quantity]), "x", what);
    }
    Ok(())
}

fn deployment(congestion: &str, namespace: &str) -> String {
    let uplinks: String = ["left1", "right1", "left2", "right2"]
        .iter()
        .map(|end| format!("  {end}: {{ interface: {end}, netns: {namespace} }}\n"))
        .collect();
    let instances: String = NFS
        .iter()
        .map(|(name, rounds)| {
            format!(
                "  {name}: {{ nf: signature, cpus: [{OF_NFS}], config: {{ rounds: {rounds} }} }}\n"
            )
        })
        .collect();
    format!(
        "version: 1\n{congestion}uplinks:\n{uplinks}instances:\n{instances}chains:\n  \
         chain: {{ from: left1, to: right1, via: [first, second] }}\n  \
         beside: {{ from: left2, to: right2, via: [neighbour] }}\n"
    )
}

fn measure(
    platform: &Platform,
    deployment: &str,
    ends: &[Ends],
    time: Duration,
) -> anyhow::Result<[f64; 7]> {
    platform.apply(deployment)?;
    ends.iter().try_for_each(Ends::reach)?;
    let rest = at_rest(platform)?;
    let floods = ends
        .iter()
        .map(Ends::flood)
        .collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::sleep(SETTLE);
    let before = Moment::now(platform, &NAMES)?;
    std::thread::sleep(time);
    let found = Moment::now(platform, &NAMES)?.since(&before);
    drop(floods);
    check_counters(&rest, &at_rest(platform)?)?;
    let [first, second] = [found.of[FIRST], found.of[SECOND]];
    let died = 1.0 - second.frames as f64 / first.frames.max(1) as f64;
    let offered = first.offered().max(1) as f64;
    Ok([
        found.kpps(SECOND),
        found.kpps(NEIGHBOUR),
        found.cpu_percent(FIRST) * died.clamp(0.0, 1.0),
        found.cpu_percent(FIRST),
        found.cpu_percent(SECOND),
        found.cpu_percent(NEIGHBOUR),
        first.refused as f64 / offered * 100.0,
    ])
}

/// Returns the counters when no frame moves any more, and the number of frames that the chain has refused. A frame that a kernel
/// sends by itself can come between two questions: the chain is asked before and after the counters.
fn at_rest(platform: &Platform) -> anyhow::Result<(Moment, u64)> {
    let mut before = Moment::now(platform, &NAMES)?;
    for _ in 0..QUIET_TRIES {
        interrupt::check()?;
        std::thread::sleep(QUIET);
        let refused = refused(platform)?;
        let now = Moment::now(platform, &NAMES)?;
        let since = now.since(&before);
        let is_quiet = since.of.iter().all(|one| one.offered() == 0);
        if is_quiet && self::refused(platform)? == refused {
            return Ok((now, refused));
        }
        before = now;
    }
    anyhow::bail!("frames go on although nobody sends")
}

/// Returns the number of frames that the chain has refused.
fn refused(platform: &Platform) -> anyhow::Result<u64> {
    let stats = platform.api()?.get("/v1/stats")?;
    let chain = named(&stats, "chains", "chain")?;
    let refused = chain["forward"]["refused_packets"].as_u64();
    refused.context("what the chain refused")
}

/// Checks that the counters of the NFs and the chain agree on the frames between two moments at rest.
fn check_counters(before: &(Moment, u64), after: &(Moment, u64)) -> anyhow::Result<()> {
    let found = after.0.since(&before.0);
    let [first, second] = [found.of[FIRST], found.of[SECOND]];
    anyhow::ensure!(
        first.frames == second.offered(),
        "the first NF received {} frames, the second received or lost {}",
        first.frames,
        second.offered()
    );
    let refused = after.1.saturating_sub(before.1);
    anyhow::ensure!(
        refused == first.refused,
        "the chain says that it refused {refused} frames, its entry {}",
        first.refused
    );
    Ok(())
}
