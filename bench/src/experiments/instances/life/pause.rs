//! How long it takes to pause an instance through which frames pass, and to let it go on.

use super::setup::{SUBJECT, Setup, number};
use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Frames a second that pass.
const RATE: u64 = 100_000;
/// How long it stands still each time, and runs in between.
const STEP: Duration = Duration::from_millis(20);
const POLICIES: [&str; 3] = ["hold", "drop", "bypass"];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let cycles = report.effort(200, 20);
    let mut setup = Setup::new()?;
    setup.pump(RATE)?;
    let mut rows = Vec::new();
    for traffic in POLICIES {
        let mut samples: [Samples; 4] = Default::default();
        for _ in 0..cycles {
            interrupt::check()?;
            for (at, what, body) in [
                (0, "pause", json!({ "traffic": traffic })),
                (2, "unpause", Value::Null),
            ] {
                std::thread::sleep(STEP);
                let begun = Instant::now();
                let path = format!("/v1/instances/{SUBJECT}/{what}");
                let answer = setup.requests().request("POST", &path, &body)?;
                samples[at].push(number(&answer, "took_us")? / 1000.0);
                samples[at + 1].push(begun.elapsed().as_secs_f64() * 1000.0);
            }
        }
        rows.push(
            [traffic.to_owned()]
                .into_iter()
                .chain(samples.iter().map(|ms| significant(ms.median())))
                .collect(),
        );
        let id = if traffic == "hold" {
            "l8".to_owned()
        } else {
            format!("l8.{traffic}")
        };
        for (name, ms, what) in [
            (
                "pause_ms",
                &samples[0],
                "in the daemon, until every thread stands still",
            ),
            (
                "pause_request_ms",
                &samples[1],
                "from the request to its answer",
            ),
            (
                "unpause_ms",
                &samples[2],
                "in the daemon, until its threads may run",
            ),
            (
                "unpause_request_ms",
                &samples[3],
                "from the request to its answer",
            ),
        ] {
            let conditions = format!("{what}; firewall at {RATE} frames/s, traffic: {traffic}");
            report.figure(format!("{id}.{name}"), ms, "ms", &conditions);
        }
    }
    table(
        "Pause and unpause, ms",
        &["traffic", "pause", "request", "unpause", "request"],
        &rows,
    );
    Ok(())
}
