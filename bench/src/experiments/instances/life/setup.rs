//! A firewall that keeps a state for each of 1000 flows, and a pump that sends them through it.

use crate::host::idle;
use crate::host::platform;
use crate::host::tier::Tier;
use crate::roles::pump;
use anyhow::Context;
use nfluid_testbed::api::Api;
use nfluid_testbed::interrupt;
use nfluid_testbed::log::LogReader;
use nfluid_testbed::platform::Platform;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The firewall.
pub const SUBJECT: &str = "fw";
/// Longest time for a round.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pump's counters of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Frames that the pump sent.
    pub sent: u64,
    /// Frames that returned.
    pub received: u64,
    /// The longest time without a frame, in milliseconds.
    pub silence_ms: f64,
    /// The longest time in which the pump had no core, in milliseconds.
    pub absence_ms: f64,
    /// Frames that arrived after a later frame of their flow, if frames are numbered.
    pub overtaken: u64,
}

impl Round {
    /// Returns the number of lost frames.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the frames that returned, per second of the pump's sending time.
    pub fn received_per_s(&self) -> f64 {
        self.received as f64 * 1e9 / pump::SENDING_NS as f64
    }
}

/// The platform.
pub struct Setup {
    platform: Platform,
    requests: Api,
    log: LogReader,
    tier: Tier,
}

impl Setup {
    /// Starts the platform.
    ///
    /// # Errors
    /// As [`platform::start`].
    pub fn new() -> anyhow::Result<Self> {
        Self::of(Tier::Process)
    }

    /// As [`Setup::new`], with a firewall of a tier.
    ///
    /// # Errors
    /// As for [`Setup::new`].
    pub fn of(tier: Tier) -> anyhow::Result<Self> {
        let platform = platform::start()?;
        Ok(Setup {
            tier,
            requests: Api::connect(&platform.socket())?,
            log: LogReader::open(&platform.instance_log("pump"))?,
            platform,
        })
    }

    /// Makes the pump send `rate` frames a second, on the first core, through the firewall on the second core, and
    /// waits for its first complete round.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn pump(&mut self, rate: u64) -> anyhow::Result<()> {
        self.pump_with(&[rate.to_string()])
    }

    /// As [`Setup::pump`], and the pump checks the order of frames by their numbers.
    ///
    /// # Errors
    /// As for [`Setup::pump`].
    pub fn pump_numbered(&mut self, rate: u64) -> anyhow::Result<()> {
        self.pump_with(&[rate.to_string(), pump::NUMBERED.to_owned()])
    }

    fn pump_with(&mut self, arguments: &[String]) -> anyhow::Result<()> {
        let program_arguments = [&[pump::ARGUMENT.to_owned()], arguments].concat();
        let own = std::env::current_exe().context("finding this program")?;
        let rules = "allow udp from any to any keep-state";
        let firewall = self.tier.instance(
            json!({ "nf": "firewall", "flavor": "wide", "cpus": [1], "config": { "rules": rules } }),
        );
        // The third port is not connected: a closed loop of instances is refused.
        let document = json!({
            "version": 1,
            "overcommit": true,
            "flavors": { "wide": { "ring": 1024, "memory": "64MiB" } },
            "instances": {
                "pump": {
                    "program": own, "args": program_arguments, "ports": ["a", "b", "open"],
                    "flavor": "wide", "cpus": [0]
                },
                SUBJECT: firewall,
            },
            "links": [["pump.a", "fw.in"], ["pump.b", "fw.out"]],
        });
        self.platform.apply(&document.to_string())?;
        // Skips the round during the change, and the first round of the new rate.
        for _ in 0..2 {
            self.round()?;
        }
        Ok(())
    }

    /// Sets the size of the daemon's pool of shells for the firewall, and waits until it is full.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn pool(&mut self, size: u64) -> anyhow::Result<()> {
        let pool = self.tier.pool(json!({ "flavor": "wide", "size": size }));
        let pools = json!({ "wide": pool });
        let document = json!({ "version": 1, "pool": pools });
        let request = json!({ "text": document.to_string(), "merge": true });
        self.requests.request("POST", "/v1/apply", &request)?;
        self.requests.await_shells(size)
    }

    /// Makes `count` idle instances of the firewall's tier on the same platform.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn crowd(&mut self, count: usize) -> anyhow::Result<()> {
        idle::crowd(&mut self.requests, self.tier, count)
    }

    /// Waits for the end of the running round.
    ///
    /// # Errors
    /// The pump no longer reports.
    pub fn round(&mut self) -> anyhow::Result<Round> {
        Ok(self.end_of_round(|_| Ok(()))?.0)
    }

    /// Calls `act` repeatedly while a round runs, at least once, and returns that round. Also returns the rounds that
    /// ended earlier, before this process got a core to call `act`.
    ///
    /// # Errors
    /// `act` fails, or the pump has ended.
    pub fn round_with(
        &mut self,
        mut act: impl FnMut(&mut Api) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Vec<Round>, Round)> {
        let mut before = Vec::new();
        loop {
            let (round, has_acted) = self.end_of_round(&mut act)?;
            if has_acted {
                return Ok((before, round));
            }
            before.push(round);
        }
    }

    /// Waits for the next end of a round. Returns the round, and true if `act` was called before it ended.
    fn end_of_round(
        &mut self,
        mut act: impl FnMut(&mut Api) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Round, bool)> {
        let start = Instant::now();
        let mut has_acted = false;
        while start.elapsed() < PATIENCE {
            interrupt::check()?;
            let Some(line) = self.log.line()? else {
                act(&mut self.requests)?;
                has_acted = true;
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let mut words = line.split_whitespace().skip(1).map(str::parse::<u64>);
            let mut number = || words.next().and_then(Result::ok);
            if let (Some(sent), Some(received), Some(silence_us), Some(absence_us)) =
                (number(), number(), number(), number())
            {
                let round = Round {
                    sent,
                    received,
                    silence_ms: silence_us as f64 / 1000.0,
                    absence_ms: absence_us as f64 / 1000.0,
                    overtaken: number().unwrap_or(0),
                };
                return Ok((round, has_acted));
            }
        }
        anyhow::bail!("the pump says nothing any more")
    }

    /// Returns the frames dropped so far at any port, by reason.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn drops(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let stats = self.requests.get("/v1/stats")?;
        let ports = stats["ports"].as_array().context("no ports in the stats")?;
        let mut all = BTreeMap::new();
        for (reason, count) in ports
            .iter()
            .filter_map(|port| port["counters"]["drops"].as_object())
            .flatten()
        {
            *all.entry(reason.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
        Ok(all)
    }

    /// Returns the client of the daemon's API.
    pub fn requests(&mut self) -> &mut Api {
        &mut self.requests
    }
}

/// Returns a number of an answer.
///
/// # Errors
/// The answer has no such number.
pub fn number(answer: &Value, name: &str) -> anyhow::Result<f64> {
    let value = answer.get(name).and_then(Value::as_f64);
    value.with_context(|| format!("no {name} in {answer}"))
}
