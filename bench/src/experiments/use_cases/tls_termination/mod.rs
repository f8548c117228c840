//! TLS termination: n end points, each with its own key, in an instance of its own and as a bare process, alternately.
//! As in LightVM's use case, clients request an empty file over HTTPS, with a connection and a full handshake for each
//! request.
//!
//! All terminators share one core and wrk has the other: the comparison is the server's cost of a handshake.
//! Terminators of both sides are in cgroups of the same weight and memory limit ([`setup`]): the sides have equal
//! shares and accounting.

mod setup;

use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use nfluid_figures::statistics::Samples;
use setup::{Run, Setup, Side};
use std::time::Duration;

/// Keys of end points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RSA, 2048 bits.
    Rsa2048,
    /// ECDSA, P-256.
    EcdsaP256,
}

impl Kind {
    /// Returns the name in figure ids.
    pub fn id(self) -> &'static str {
        match self {
            Kind::Rsa2048 => "rsa2048",
            Kind::EcdsaP256 => "ecdsa_p256",
        }
    }
}

const COUNTS: [usize; 4] = [1, 10, 100, 1000];
const COUNTS_QUICK: [usize; 1] = [4];
const KINDS: [Kind; 2] = [Kind::Rsa2048, Kind::EcdsaP256];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(&COUNTS[..], &COUNTS_QUICK);
    let rounds = report.effort(5, 2);
    let mut rows = Vec::new();
    for kind in KINDS {
        for count in counts {
            let setup = Setup::new(kind, *count)?;
            // With many end points, each gets few requests: counting takes longer.
            let ms = report.effort(if *count < 1000 { 3000 } else { 6000 }, 700);
            let time = Duration::from_millis(ms);
            let runs = in_turn(&setup, rounds, time)?;
            rows.push(show(report, kind, *count, &runs, ms));
        }
    }
    table(
        "requests per second, each with a connection and a full handshake; terminators on one core, wrk on another",
        &[
            "key",
            "end points",
            "instances",
            "bare",
            "ratio",
            "spread",
            "p99 ms",
            "bare p99",
        ],
        &rows,
    );
    Ok(())
}

/// Measures instances and bare processes alternately, round after round; the first round of each warms up.
fn in_turn(setup: &Setup, rounds: u32, time: Duration) -> anyhow::Result<[Vec<Run>; 2]> {
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (side, runs) in [Side::Instances, Side::Bare].into_iter().zip(&mut runs) {
            let run = setup.run(side, time)?;
            if round > 0 {
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

fn show(
    report: &mut Report,
    kind: Kind,
    count: usize,
    [instances, bare]: &[Vec<Run>; 2],
    ms: u64,
) -> Vec<String> {
    let of = |runs: &[Run], what: fn(&Run) -> f64| runs.iter().map(what).collect::<Samples>();
    let rates = [of(instances, |run| run.rate), of(bare, |run| run.rate)];
    let p99s = [of(instances, |run| run.p99_ms), of(bare, |run| run.p99_ms)];
    let ratio = rates[0].ratios(&rates[1]);
    let kind = kind.id();
    let how = format!(
        "{count} end points, {} connections, a full TLS 1.3 handshake and an empty answer each, {ms} ms a round; all \
         terminators on one core, each in a cgroup of the same weight and memory limit on both sides, wrk on another; {} \
         different keys",
        setup::connections(count),
        setup::pairs(count)
    );
    for (side, rates, p99s) in [("", &rates[0], &p99s[0]), ("bare_", &rates[1], &p99s[1])] {
        let id = |what: &str| format!("l12.{kind}.{count}.{side}{what}");
        report.figure(id("requests_per_s"), rates, "1/s", &how);
        report.figure(id("p99_ms"), p99s, "ms", &how);
    }
    report.figure(format!("l12.{kind}.{count}.ratio"), &ratio, "x", &how);
    if count
        == *report
            .choose(&COUNTS[..], &COUNTS_QUICK)
            .last()
            .unwrap_or(&1)
    {
        report.figure(format!("l12.{kind}.ratio"), &ratio, "x", &how);
    }
    vec![
        kind.to_owned(),
        count.to_string(),
        significant(rates[0].median()),
        significant(rates[1].median()),
        format!("{:.3}", ratio.median()),
        format!("{:.0} %", ratio.spread_percent()),
        significant(p99s[0].median()),
        significant(p99s[1].median()),
    ]
}
