//! Firewalls that are idle and have states: each is a clone of one through which a pump has sent, and what a clone waits for
//! is that its states end.

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
/// So many bytes of an image, at least, are a state.
const STATE_BYTES_MIN: f64 = 20.0;
/// How long it may take until all flows have one.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
/// After the daemon has asked something of an instance, the thread that answered it ends.
const SILENCE: Duration = Duration::from_secs(2);

/// The source, as soon as it has a state for each flow.
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

/// Makes `count` of them beside the others, and says what percentage of a core they and the daemon use, over and over.
pub fn percent(count: usize, rounds: usize, length: Duration) -> anyhow::Result<Samples> {
    let mut idle = Idle::new()?;
    let own = std::env::current_exe().context("finding this program")?;
    // As long as a connection's, so that none ends while it is looked at.
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
