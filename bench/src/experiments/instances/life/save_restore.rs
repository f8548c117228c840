//! Time to save a firewall with 1000 states, and to restore it as a clone.

use super::setup::{SUBJECT, Setup, number};
use crate::host::cpu::require_two_cores;
use crate::host::tier::Tier;
use crate::phases::{PARTS, Phases};
use crate::report::Report;
use crate::roles::pump;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_api::types::Timeline;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use serde_json::{Value, json};
use std::time::Instant;

/// Frames a second that pass.
const RATE: u64 = 10_000;
const CLONE: &str = "clone";
/// Number of prepared shells: a clone is made from a shell.
const SHELLS: u64 = 4;

const QUANTITIES: [Quantity; 2] = [
    Quantity::new(
        "_ms",
        "ms",
        &[("request", Shown::Median), ("p99", Shown::P99)],
    )
    .meaning("from the request to its answer"),
    Quantity::new("_daemon_ms", "ms", &[("in the daemon", Shown::Median)]).meaning("in the daemon"),
];

/// Times of saves and restores, in milliseconds.
#[derive(Default)]
pub struct Times {
    /// Until the answer with the image.
    pub save_ms: Samples,
    /// Until the answer that a clone with all states runs.
    pub restore_ms: Samples,
}

/// Saves and clones a firewall of a tier, beside idle instances of that tier.
///
/// # Errors
/// The daemon refuses, or a clone lacks states.
pub fn measure(tier: Tier, beside: usize, cycles: usize) -> anyhow::Result<Times> {
    let mut setup = Setup::of(tier)?;
    setup.crowd(beside)?;
    setup.pump(RATE)?;
    setup.pool(SHELLS)?;
    let mut times = Times::default();
    for _ in 0..cycles {
        interrupt::check()?;
        let saved = timed(
            &mut setup,
            &mut times.save_ms,
            "GET",
            &image_path(),
            &Value::Null,
        )?;
        restore(&mut setup, &mut times.restore_ms, &saved)?;
    }
    Ok(times)
}

fn image_path() -> String {
    format!("/v1/instances/{SUBJECT}/image")
}

/// Makes a request, and notes how long it takes in milliseconds.
fn timed(
    setup: &mut Setup,
    ms: &mut Samples,
    method: &str,
    path: &str,
    body: &Value,
) -> anyhow::Result<Value> {
    let begun = Instant::now();
    let answer = setup.requests().request(method, path, body)?;
    ms.push(begun.elapsed().as_secs_f64() * 1000.0);
    Ok(answer)
}

/// Restores a saved firewall as a clone, checks its states, and ends it. Returns the daemon's answer.
fn restore(setup: &mut Setup, ms: &mut Samples, saved: &Value) -> anyhow::Result<Value> {
    let body = json!({ "image": saved["image"], "name": CLONE });
    let restored = timed(setup, ms, "POST", "/v1/restore", &body)?;
    let taken = number(&restored, "state_taken")?;
    anyhow::ensure!(
        taken >= f64::from(pump::FLOWS),
        "the clone has {taken} states of {}",
        pump::FLOWS
    );
    let object = json!({ "objects": [{ "kind": "instance", "name": CLONE }] });
    setup.requests().request("POST", "/v1/delete", &object)?;
    setup.requests().await_shells(SHELLS)?;
    Ok(restored)
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let cycles = report.effort(100, 10);
    let mut setup = Setup::new()?;
    setup.pump(RATE)?;
    setup.pool(SHELLS)?;
    let mut samples: [Samples; 4] = Default::default();
    let mut bytes = Samples::default();
    let mut phases = Phases::default();
    for _ in 0..cycles {
        interrupt::check()?;
        let [save, save_daemon, restored_ms, restore_daemon] = &mut samples;
        let saved = timed(&mut setup, save, "GET", &image_path(), &Value::Null)?;
        save_daemon.push(number(&saved, "took_us")? / 1000.0);
        bytes.push(number(&saved, "state_bytes")?);
        let restored = restore(&mut setup, restored_ms, &saved)?;
        restore_daemon.push(number(&restored, "took_us")? / 1000.0);
        let took: Timeline =
            serde_json::from_value(restored["took"].clone()).context("where the time went")?;
        let ms = |ns: u64| ns as f64 / 1e6;
        phases.push(took.phases.into_iter().map(|it| (it.what, ms(it.took_ns))));
    }
    let conditions = format!(
        "firewall with {} states at {RATE} frames/s; {SHELLS} shells are ready",
        pump::FLOWS
    );
    let mut sweep = Sweep::plain(&[""], QUANTITIES);
    let [save, save_daemon, restore, restore_daemon] = samples;
    for (what, samples) in [
        ("save", [save, save_daemon]),
        ("restore", [restore, restore_daemon]),
    ] {
        let side = Side::new([what.to_owned()], format!("l7.{what}"), ()).under(&conditions);
        sweep.add(&side, samples);
    }
    sweep.report_all(report);
    sweep.print("Save and restore a firewall with 1000 states, ms");
    let what = "a part of a restore, in the daemon";
    let mut parts = Sweep::plain(&["phase"], PARTS);
    phases.add_to(&mut parts, &[], "l7.restore", what);
    parts.report_all(report);
    parts.print("Restore, where the time goes, ms");
    report.figure(
        "l7.state_bytes".to_owned(),
        &bytes,
        "bytes",
        "the firewall's state",
    );
    Ok(())
}
