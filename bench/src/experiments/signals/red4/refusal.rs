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
use crate::report::{Report, significant, table};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
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

/// Refusal off or on, and the results.
struct Variant {
    id: &'static str,
    congestion: &'static str,
    chain_kpps: Samples,
    neighbour_kpps: Samples,
    /// CPU time of the first NF on frames that the second did not receive, in percent of the core.
    wasted: Samples,
    cpu: [Samples; 3],
    /// Refused frames of the chain, in percent.
    refused: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let outside = Namespace::new()?;
    let ends = [Ends::new(&outside, 1)?, Ends::new(&outside, 2)?];
    let platform = platform::start()?;
    let (rounds, seconds) = report.effort((7, 4), (2, 1));
    let mut variants = [
        Variant::new("off", ""),
        Variant::new("on", "congestion: { law: off }\n"),
    ];
    for _ in 0..rounds {
        for variant in &mut variants {
            interrupt::check()?;
            variant.measure(&platform, &outside, &ends, Duration::from_secs(seconds))?;
        }
    }
    let rows: Vec<_> = variants.iter().map(Variant::row).collect();
    let header = [
        "refusal",
        "chain kpps",
        "neighbour kpps",
        "wasted CPU %",
        "CPU % of first, second, neighbour",
        "refused %",
    ];
    let title = "A cheap NF before a dear one, flooded, beside a neighbour on the same core";
    table(title, &header, &rows);
    variants.iter().for_each(|variant| variant.figures(report));
    let [off, on] = &variants;
    for (id, gain) in [
        ("refusal.chain_gain", on.chain_kpps.ratios(&off.chain_kpps)),
        (
            "refusal.neighbour_gain",
            on.neighbour_kpps.ratios(&off.neighbour_kpps),
        ),
    ] {
        report.figure(
            id,
            &gain,
            "x",
            "throughput with refusal over without, round by round",
        );
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

impl Variant {
    fn new(id: &'static str, congestion: &'static str) -> Self {
        Variant {
            id,
            congestion,
            chain_kpps: Samples::default(),
            neighbour_kpps: Samples::default(),
            wasted: Samples::default(),
            cpu: Default::default(),
            refused: Samples::default(),
        }
    }

    fn measure(
        &mut self,
        platform: &Platform,
        outside: &Namespace,
        ends: &[Ends],
        time: Duration,
    ) -> anyhow::Result<()> {
        platform.apply(&deployment(self.congestion, outside.name()))?;
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
        self.push(&found);
        Ok(())
    }

    fn push(&mut self, found: &Moment) {
        let [first, second] = [found.of[FIRST], found.of[SECOND]];
        let died = 1.0 - second.frames as f64 / first.frames.max(1) as f64;
        self.wasted
            .push(found.cpu_percent(FIRST) * died.clamp(0.0, 1.0));
        self.chain_kpps.push(found.kpps(SECOND));
        self.neighbour_kpps.push(found.kpps(NEIGHBOUR));
        for (at, cpu) in self.cpu.iter_mut().enumerate() {
            cpu.push(found.cpu_percent(at));
        }
        let offered = first.offered().max(1) as f64;
        self.refused.push(first.refused as f64 / offered * 100.0);
    }

    fn row(&self) -> Vec<String> {
        let cpu: Vec<_> = self
            .cpu
            .iter()
            .map(|cpu| significant(cpu.median()))
            .collect();
        vec![
            self.id.to_owned(),
            significant(self.chain_kpps.median()),
            significant(self.neighbour_kpps.median()),
            significant(self.wasted.median()),
            cpu.join(" "),
            significant(self.refused.median()),
        ]
    }

    fn figures(&self, report: &mut Report) {
        let conditions = format!(
            "refusal {}; signature NFs of 300 and 9000 rounds in a chain, of 900 beside it, all flooded by UDP, on core \
             {OF_NFS}; senders on core {OF_ENDS}",
            self.id
        );
        let mut figure = |id: &str, samples: &Samples, unit, what: &str| {
            let id = format!("refusal.{}.{id}", self.id);
            report.figure(id, samples, unit, &format!("{what}; {conditions}"));
        };
        figure(
            "chain_kpps",
            &self.chain_kpps,
            "kpps",
            "frames into the dear NF",
        );
        figure(
            "neighbour_kpps",
            &self.neighbour_kpps,
            "kpps",
            "frames into the neighbour",
        );
        figure(
            "wasted_cpu_percent",
            &self.wasted,
            "%",
            "of the core, by the cheap NF on frames that died at the dear one's ring",
        );
        figure(
            "refused_percent",
            &self.refused,
            "%",
            "of the frames for the chain",
        );
        for (name, cpu) in NAMES.iter().zip(&self.cpu) {
            figure(&format!("{name}.cpu_percent"), cpu, "%", "of the core");
        }
    }
}

/// Returns the counters when no frame moves any more, and the number of frames that the chain has refused.
fn at_rest(platform: &Platform) -> anyhow::Result<(Moment, u64)> {
    let mut before = Moment::now(platform, &NAMES)?;
    for _ in 0..QUIET_TRIES {
        interrupt::check()?;
        std::thread::sleep(QUIET);
        let now = Moment::now(platform, &NAMES)?;
        let since = now.since(&before);
        if since.of.iter().all(|one| one.offered() == 0) {
            let stats = platform.api()?.get("/v1/stats")?;
            let chain = named(&stats, "chains", "chain")?;
            let refused = chain["forward"]["refused_packets"].as_u64();
            return Ok((now, refused.context("what the chain refused")?));
        }
        before = now;
    }
    anyhow::bail!("frames go on although nobody sends")
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
