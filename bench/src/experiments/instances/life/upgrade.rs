//! Frames lost while a firewall is upgraded in place repeatedly, at the highest of a few rates at which no frame is
//! lost without upgrades.

use super::setup::{Round, SUBJECT, Setup, number};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;
use serde_json::Value;
use std::collections::BTreeMap;

/// Frames a second, the highest first.
const RATES: [u64; 7] = [
    1_000_000, 700_000, 500_000, 300_000, 200_000, 100_000, 50_000,
];

/// Figures in milliseconds; from the fifth on they are those of [`parts_ms`].
const FIGURES: [(&str, &str); 10] = [
    (
        "silence_ms",
        "longest time without a frame at the receiver in a round with upgrades",
    ),
    ("silence_without_ms", "the same in a round without upgrades"),
    (
        "absence_ms",
        "longest time without a core for the pump, which sends and receives, in a round with upgrades",
    ),
    ("absence_without_ms", "the same in a round without upgrades"),
    ("took_ms", "all of an upgrade, in the daemon"),
    ("silent_ms", "nobody serves the ports; consists of:"),
    ("silent.settle_ms", "until what was sent is on its way"),
    ("silent.export_ms", "the predecessor writes its state"),
    ("silent.import_ms", "the successor takes it in"),
    (
        "silent.way_ms",
        "what remains: from one to the other and back",
    ),
];

const QUANTITIES: [Quantity; 1] = [Quantity::new(
    "",
    "ms",
    &[("median", Shown::Median), ("p99", Shown::P99)],
)];

/// Returns the times of an upgrade from the daemon's answer: total, time without a process on the ports, and its parts.
fn parts_ms(answer: &Value) -> anyhow::Result<[f64; 6]> {
    let ms = |name: &str| number(answer, name).map(|us| us / 1000.0);
    let silent = ms("silent_us")?;
    let (settle, export, import) = (ms("settle_us")?, ms("export_us")?, ms("import_us")?);
    let way = silent - settle - export - import;
    Ok([ms("took_us")?, silent, settle, export, import, way])
}

/// Sums of the rounds of one kind.
#[derive(Default)]
struct Sums {
    sent: u64,
    lost: u64,
    /// Dropped frames by reason.
    drops: BTreeMap<String, u64>,
}

impl Sums {
    /// Adds a round, with the counters of drops before and after the round.
    fn add(
        &mut self,
        round: Round,
        before: &mut BTreeMap<String, u64>,
        after: BTreeMap<String, u64>,
    ) {
        self.sent += round.sent;
        self.lost += round.lost();
        for (reason, count) in &after {
            let was = before.get(reason).copied().unwrap_or(0);
            *self.drops.entry(reason.clone()).or_default() += count.saturating_sub(was);
        }
        *before = after;
    }
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, rounds_borne) = report.effort((40, 3), (3, 1));
    let rates = report.choose(&RATES[..], &RATES[5..]);
    let mut setup = Setup::new()?;
    let rate = highest_borne(&mut setup, rates, rounds_borne)?;
    let mut upgrades = 0;
    let mut samples: [Samples; 10] = Default::default();
    let (mut with, mut without) = (Sums::default(), Sums::default());
    let path = format!("/v1/instances/{SUBJECT}/upgrade");
    let mut drops = setup.drops()?;
    for _ in 0..rounds {
        let round = setup.round()?;
        samples[1].push(round.silence_ms);
        samples[3].push(round.absence_ms);
        without.add(round, &mut drops, setup.drops()?);
        let (before, round) = setup.round_with(|requests| {
            let answer = requests.request("POST", &path, &Value::Null)?;
            upgrades += 1;
            parts_ms(&answer)?
                .into_iter()
                .zip(&mut samples[4..])
                .for_each(|(ms, samples)| samples.push(ms));
            Ok(())
        })?;
        for round in before {
            without.add(round, &mut drops, setup.drops()?);
        }
        samples[0].push(round.silence_ms);
        samples[2].push(round.absence_ms);
        with.add(round, &mut drops, setup.drops()?);
        // The last upgrade extends into this round.
        let round = setup.round()?;
        with.add(round, &mut drops, setup.drops()?);
    }
    let (lost, sent, lost_without) = (with.lost, with.sent, without.lost);
    let conditions = format!(
        "firewall with 1000 states, rings of 1024, {rate} frames/s, {upgrades} upgrades, {sent} frames in rounds with upgrades \
         and those after them; {} frames in rounds without lost {lost_without}",
        without.sent
    );
    report.derived(
        "upgrade.lost".to_owned(),
        lost as f64,
        "frames",
        &conditions,
    );
    report.derived(
        "upgrade.lost_without".to_owned(),
        lost_without as f64,
        "frames",
        &format!("rounds without upgrades, {} frames", without.sent),
    );
    report.derived(
        "upgrade.rate_pps".to_owned(),
        rate as f64,
        "1/s",
        "frames a second",
    );
    for (id, sums) in [("drops", &with), ("drops_without", &without)] {
        for (reason, count) in sums.drops.iter().filter(|(_, count)| **count > 0) {
            report.derived(
                format!("upgrade.{id}.{reason}"),
                *count as f64,
                "frames",
                "dropped at any port, and why; 'without': in rounds without upgrades",
            );
        }
    }
    let mut sweep = Sweep::plain(&[""], QUANTITIES);
    for ((id, what), samples) in FIGURES.iter().zip(samples) {
        let side = Side::new([(*what).to_owned()], format!("upgrade.{id}"), ()).under(what);
        sweep.add(&side, [samples]);
    }
    sweep.report_all(report);
    sweep.print("Upgrades in place, ms");
    println!(
        "{lost} of {sent} frames lost in {upgrades} upgrades at {rate} frames/s; {lost_without} of {} without upgrades",
        without.sent
    );
    Ok(())
}

/// Returns the highest of `rates` at which `rounds` rounds without upgrades lose no frame; the lowest rate if there is
/// none.
fn highest_borne(setup: &mut Setup, rates: &[u64], rounds: usize) -> anyhow::Result<u64> {
    let mut lowest = 0;
    for rate in rates {
        lowest = *rate;
        setup.pump(*rate)?;
        let mut lost = 0;
        for _ in 0..rounds {
            lost += setup.round()?.lost();
        }
        if lost == 0 {
            break;
        }
    }
    Ok(lowest)
}
