//! Frames that are lost while a firewall is upgraded in place again and again, at the highest rate of a few at which none is
//! lost without upgrades.

use super::bed::{Bed, SUBJECT, number};
use crate::experiments::two_cores;
use crate::report::{Report, significant, table};
use crate::statistics::Samples;
use serde_json::Value;
use std::collections::BTreeMap;

/// Frames a second, the highest first.
const RATES: [u64; 7] = [
    1_000_000, 700_000, 500_000, 300_000, 200_000, 100_000, 50_000,
];

/// Figures in milliseconds; from the third on they are those of [`parts_ms`].
const FIGURES: [(&str, &str); 8] = [
    (
        "silence_ms",
        "longest time without a frame at the receiver in a round with upgrades",
    ),
    ("silence_without_ms", "the same in a round without upgrades"),
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

/// What the daemon says of an upgrade: all of it, how long nobody served the ports, and of what that consists.
fn parts_ms(answer: &Value) -> anyhow::Result<[f64; 6]> {
    let ms = |name: &str| number(answer, name).map(|us| us / 1000.0);
    let silent = ms("silent_us")?;
    let (settle, export, import) = (ms("settle_us")?, ms("export_us")?, ms("import_us")?);
    let way = silent - settle - export - import;
    Ok([ms("took_us")?, silent, settle, export, import, way])
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let (rounds, rounds_borne) = report.choose((40, 3), (3, 1));
    let rates = report.choose(&RATES[..], &RATES[5..]);
    let mut bed = Bed::new()?;
    let rate = highest_borne(&mut bed, rates, rounds_borne)?;
    let (mut lost, mut lost_without) = (0, 0);
    let (mut sent, mut upgrades) = (0, 0);
    let mut samples: [Samples; 8] = Default::default();
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..rounds {
        let quiet = bed.round()?;
        lost_without += quiet.lost();
        samples[1].push(quiet.silence_ms);
        let path = format!("/v1/instances/{SUBJECT}/upgrade");
        let before = bed.drops()?;
        let round = bed.round_with(|requests| {
            let answer = requests.ask("POST", &path, &Value::Null)?;
            upgrades += 1;
            parts_ms(&answer)?
                .into_iter()
                .zip(&mut samples[2..])
                .for_each(|(ms, samples)| samples.push(ms));
            Ok(())
        })?;
        for (reason, count) in bed.drops()? {
            let was = before.get(&reason).copied().unwrap_or(0);
            *reasons.entry(reason).or_default() += count.saturating_sub(was);
        }
        samples[0].push(round.silence_ms);
        lost += round.lost();
        sent += round.sent;
    }
    let conditions = format!(
        "firewall with 1000 states, rings of 1024, {rate} frames/s, {upgrades} upgrades, {sent} frames; as many rounds without \
         upgrades between them lost {lost_without}"
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
        "the same rounds, without upgrades",
    );
    report.derived(
        "upgrade.rate_pps".to_owned(),
        rate as f64,
        "1/s",
        "frames a second",
    );
    for (reason, count) in reasons.iter().filter(|(_, count)| **count > 0) {
        report.derived(
            format!("upgrade.drops.{reason}"),
            *count as f64,
            "frames",
            "dropped at any port in the rounds with upgrades, and why",
        );
    }
    let mut rows = Vec::new();
    for (at, (id, what)) in FIGURES.iter().enumerate() {
        report.figure(format!("upgrade.{id}"), &samples[at], "ms", what);
        rows.push(vec![
            (*what).to_owned(),
            significant(samples[at].median()),
            significant(samples[at].p99()),
        ]);
    }
    table("Upgrades in place, ms", &["", "median", "p99"], &rows);
    println!(
        "{lost} of {sent} frames lost in {upgrades} upgrades at {rate} frames/s; {lost_without} without upgrades"
    );
    Ok(())
}

/// The highest of `rates` at which so many rounds without upgrades lose nothing; the lowest if there is none.
fn highest_borne(bed: &mut Bed, rates: &[u64], rounds: usize) -> anyhow::Result<u64> {
    let mut lowest = 0;
    for rate in rates {
        lowest = *rate;
        bed.pump(*rate)?;
        let mut lost = 0;
        for _ in 0..rounds {
            lost += bed.round()?.lost();
        }
        if lost == 0 {
            break;
        }
    }
    Ok(lowest)
}
