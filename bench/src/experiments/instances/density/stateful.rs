//! Idle firewalls with states: each is a clone of a firewall through which a pump has sent. A clone only waits for the
//! expiry of its states.

use super::busy_percent;
use crate::experiments::instances::life::number;
use crate::host::idle::Idle;
use crate::roles::pump;
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::api::Api;
use nfluid_testbed::interrupt;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SOURCE: &str = "source";
const PUMP: &str = "pump";
/// Frames a second that make the states.
const RATE: u64 = 10_000;
/// Least size of a state in an image, in bytes.
const STATE_BYTES_MIN: f64 = 20.0;
/// Longest time until all flows have a state.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
/// After a request of the daemon, the thread of the instance that answered it ends within this time.
const SILENCE: Duration = Duration::from_secs(2);

/// Returns the saved source, as soon as it has a state for each flow.
fn saved(requests: &mut Api) -> anyhow::Result<Value> {
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        let path = format!("/v1/instances/{SOURCE}/image");
        let saved = requests.get(&path)?;
        if number(&saved, "state_bytes")? >= STATE_BYTES_MIN * f64::from(pump::FLOWS) {
            return Ok(saved);
        }
        anyhow::ensure!(begun.elapsed() < PATIENCE, "the pump makes no states");
        std::thread::sleep(LOOK);
    }
}

/// Makes `count` clones in addition to the other instances; returns the CPU time of all and the daemon in percent of a
/// core, once per round.
pub fn percent(count: usize, rounds: usize, length: Duration) -> anyhow::Result<Samples> {
    let mut idle = Idle::new()?;
    let own = std::env::current_exe().context("finding this program")?;
    // As long as a connection's timeout, so that no state expires during the measurement.
    let rules = "allow udp from any to any keep-state timeout 7440";
    idle.merge(&json!({
        "version": 1,
        "overcommit": true,
        "instances": {
            PUMP: { "program": own, "args": [pump::ARGUMENT, RATE.to_string()], "ports": ["a", "b", "open"] },
            SOURCE: { "nf": "firewall", "flavor": "small", "config": { "rules": rules } },
        },
        "links": [[format!("{PUMP}.a"), format!("{SOURCE}.in")], [format!("{PUMP}.b"), format!("{SOURCE}.out")]],
    }))?;
    let saved = saved(idle.requests())?;
    idle.requests().request(
        "POST",
        "/v1/delete",
        &json!({
            "objects": [{ "kind": "instance", "name": PUMP }, { "kind": "instance", "name": SOURCE }],
            "with_links": true,
        }),
    )?;
    for clone in 0..count {
        interrupt::check()?;
        let restore = json!({ "image": saved["image"], "name": format!("clone{clone}") });
        let restored = idle.requests().request("POST", "/v1/restore", &restore)?;
        let taken = number(&restored, "state_taken")?;
        anyhow::ensure!(taken > 0.0, "a clone without states");
    }
    let pids = idle.pids()?;
    anyhow::ensure!(pids.len() == count, "{} of {count} run", pids.len());
    std::thread::sleep(SILENCE.max(length));
    let daemon = idle.daemon()?;
    busy_percent(&pids, daemon, rounds, length)
}
