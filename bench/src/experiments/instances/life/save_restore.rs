//! Time to save a firewall with 1000 states, and to restore it as a clone.

use super::setup::{SUBJECT, Setup, number};
use crate::host::cpu::require_two_cores;
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
        let requests = setup.requests();
        let mut timed = |at: usize, method, path: &str, body: &Value| -> anyhow::Result<Value> {
            let begun = Instant::now();
            let answer = requests.request(method, path, body)?;
            samples[at].push(begun.elapsed().as_secs_f64() * 1000.0);
            samples[at + 1].push(number(&answer, "took_us")? / 1000.0);
            Ok(answer)
        };
        let saved = timed(
            0,
            "GET",
            &format!("/v1/instances/{SUBJECT}/image"),
            &Value::Null,
        )?;
        bytes.push(number(&saved, "state_bytes")?);
        let restore = json!({ "image": saved["image"], "name": CLONE });
        let restored = timed(2, "POST", "/v1/restore", &restore)?;
        let took: Timeline =
            serde_json::from_value(restored["took"].clone()).context("where the time went")?;
        let ms = |ns: u64| ns as f64 / 1e6;
        phases.push(took.phases.into_iter().map(|it| (it.what, ms(it.took_ns))));
        let taken = number(&restored, "state_taken")?;
        anyhow::ensure!(
            taken >= f64::from(pump::FLOWS),
            "the clone has {taken} states of {}",
            pump::FLOWS
        );
        let object = json!({ "objects": [{ "kind": "instance", "name": CLONE }] });
        setup.requests().request("POST", "/v1/delete", &object)?;
        setup.requests().await_shells(SHELLS)?;
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
