//! TLS termination: n end points, each with its own key, in an instance of its own and as a bare process, alternately.
//! As in LightVM's use case, clients request an empty file over HTTPS, with a connection and a full handshake for each
//! request.
//!
//! All terminators share one core and wrk has the other: the comparison is the server's cost of a handshake.
//! Terminators of both sides are in cgroups of the same weight and memory limit ([`setup`]): the sides have equal
//! shares and accounting.

mod setup;

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{self, Quantity, Shown, Sweep};
use setup::{Setup, Side};
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

/// The quantities of both sides.
const QUANTITIES: [Quantity; 5] = [
    Quantity::new(".requests_per_s", "1/s", &[("instances", Shown::Median)]),
    Quantity::new(".bare_requests_per_s", "1/s", &[("bare", Shown::Median)]),
    Quantity::new(
        ".ratio",
        "x",
        &[("ratio", Shown::Median), ("spread", Shown::Spread)],
    ),
    Quantity::new(".p99_ms", "ms", &[("p99 ms", Shown::Median)]),
    Quantity::new(".bare_p99_ms", "ms", &[("bare p99", Shown::Median)]),
];
const RATIO: usize = 2;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(&COUNTS[..], &COUNTS_QUICK);
    let rounds = report.effort(5, 2);
    let mut sweep = Sweep::new(&["key", "end points"], QUANTITIES);
    sweep.settles = false;
    for kind in KINDS {
        let id = format!("l12.{}", kind.id());
        for count in counts {
            let setup = Setup::new(kind, *count)?;
            // With many end points, each gets few requests: counting takes longer.
            let ms = report.effort(if *count < 1000 { 3000 } else { 6000 }, 700);
            let time = Duration::from_millis(ms);
            let conditions = format!(
                "{count} end points, {} connections, a full TLS 1.3 handshake and an empty answer each, {ms} ms a \
                 round; all terminators on one core, each in a cgroup of the same weight and memory limit on both \
                 sides, wrk on another; {} different keys",
                setup::connections(*count),
                setup::pairs(*count)
            );
            let key = [kind.id().to_owned(), count.to_string()];
            let side = sweep::Side::new(key, format!("{id}.{count}"), setup).under(&conditions);
            // Instances and bare processes in turn, round after round.
            sweep.run(report, rounds, &mut [side], |setup, _| {
                let own = setup.run(Side::Instances, time)?;
                let bare = setup.run(Side::Bare, time)?;
                let ratio = own.rate / bare.rate;
                Ok([own.rate, bare.rate, ratio, own.p99_ms, bare.p99_ms])
            })?;
        }
        if let Some(most) = sweep.rows().last() {
            report.figure(
                format!("{id}.ratio"),
                &most.samples[RATIO],
                "x",
                &most.conditions,
            );
        }
    }
    sweep.report_all(report);
    sweep.print(
        "requests per second, each with a connection and a full handshake; terminators on one core, wrk on another",
    );
    Ok(())
}
