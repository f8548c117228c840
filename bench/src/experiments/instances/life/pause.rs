//! Time to pause and to resume an instance through which frames pass.

use super::setup::{SUBJECT, Setup, number};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Frames a second that pass.
const RATE: u64 = 100_000;
/// Duration of each pause, and of the time between two pauses.
const STEP: Duration = Duration::from_millis(20);
const POLICIES: [&str; 3] = ["hold", "drop", "bypass"];

const QUANTITIES: [Quantity; 4] = [
    Quantity::new(".pause_ms", "ms", &[("pause", Shown::Median)])
        .meaning("in the daemon, until every thread stands still"),
    Quantity::new(".pause_request_ms", "ms", &[("request", Shown::Median)])
        .meaning("from the request to its answer"),
    Quantity::new(".unpause_ms", "ms", &[("unpause", Shown::Median)])
        .meaning("in the daemon, until its threads may run"),
    Quantity::new(".unpause_request_ms", "ms", &[("request", Shown::Median)])
        .meaning("from the request to its answer"),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let cycles = report.effort(200, 20);
    let mut setup = Setup::new()?;
    setup.pump(RATE)?;
    let mut sweep = Sweep::plain(&["traffic"], QUANTITIES);
    for traffic in POLICIES {
        let id = match traffic {
            "hold" => "l8".to_owned(),
            other => format!("l8.{other}"),
        };
        let conditions = format!("firewall at {RATE} frames/s, traffic: {traffic}");
        let side = Side::new([traffic.to_owned()], id, traffic).under(&conditions);
        sweep.run(report, cycles, &mut [side], |traffic, _| {
            let pause = timed(&mut setup, "pause", &json!({ "traffic": traffic }))?;
            let unpause = timed(&mut setup, "unpause", &Value::Null)?;
            Ok([pause[0], pause[1], unpause[0], unpause[1]])
        })?;
    }
    sweep.report_all(report);
    sweep.print("Pause and unpause, ms");
    Ok(())
}

/// Returns the milliseconds of a request to the instance: in the daemon, and until the response.
fn timed(setup: &mut Setup, what: &str, body: &Value) -> anyhow::Result<[f64; 2]> {
    std::thread::sleep(STEP);
    let begun = Instant::now();
    let path = format!("/v1/instances/{SUBJECT}/{what}");
    let answer = setup.requests().request("POST", &path, body)?;
    let took_ms = number(&answer, "took_us")? / 1000.0;
    Ok([took_ms, begun.elapsed().as_secs_f64() * 1000.0])
}
