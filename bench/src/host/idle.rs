//! Idle instances on their own platform.

use super::platform;
use super::tier::Tier;
use anyhow::Context;
use nfluid_testbed::api::Api;
use nfluid_testbed::interrupt;
use nfluid_testbed::platform::Platform;
use serde_json::{Map, Value, json};
use std::ops::Range;

/// Instances per deployment document.
const PER_DOCUMENT: usize = 500;

/// The platform and its idle instances.
pub struct Idle {
    platform: Platform,
    requests: Api,
    count: usize,
    tier: Tier,
}

impl Idle {
    /// Starts a platform without instances.
    ///
    /// # Errors
    /// As [`platform::start`].
    pub fn new() -> anyhow::Result<Self> {
        Self::on(platform::start()?)
    }

    /// Uses a platform without instances.
    ///
    /// # Errors
    /// When the daemon accepts no connection.
    pub fn on(platform: Platform) -> anyhow::Result<Self> {
        Self::of(Tier::Process, platform)
    }

    /// As [`Idle::on`], for instances of a tier.
    ///
    /// # Errors
    /// As for [`Idle::on`].
    pub fn of(tier: Tier, platform: Platform) -> anyhow::Result<Self> {
        Ok(Idle {
            requests: Api::connect(&platform.socket())?,
            platform,
            count: 0,
            tier,
        })
    }

    /// Makes instances until there are `count`. After an error, [`Idle::count`] returns the actual number.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn populate(&mut self, count: usize) -> anyhow::Result<()> {
        while self.count < count {
            interrupt::check()?;
            let next = count.min(self.count + PER_DOCUMENT);
            self.merge(&document(self.tier, self.count..next))?;
            self.count = next;
        }
        Ok(())
    }

    /// Merges a document into the deployment; returns the daemon's answer.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn merge(&mut self, document: &Value) -> anyhow::Result<Value> {
        let request = json!({ "text": document.to_string(), "merge": true });
        self.requests.request("POST", "/v1/apply", &request)
    }

    /// Returns the number of instances.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the instances' processes.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn pids(&mut self) -> anyhow::Result<Vec<u32>> {
        let all = self.requests.get("/v1/instances")?;
        let all = all.as_array().context("a list of instances")?;
        let pid = |instance: &Value| instance["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        Ok(all.iter().filter_map(pid).collect())
    }

    /// Returns the daemon's process.
    pub fn daemon(&self) -> anyhow::Result<u32> {
        self.platform.daemon_pid()
    }

    /// Returns the client of the daemon's API.
    pub fn requests(&mut self) -> &mut Api {
        &mut self.requests
    }

    /// The platform.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }
}

/// Adds idle instances to a platform.
///
/// # Errors
/// The platform refuses them.
pub fn crowd(requests: &mut Api, tier: Tier, count: usize) -> anyhow::Result<()> {
    let text = document(tier, 0..count).to_string();
    requests.request("POST", "/v1/apply", &json!({ "text": text, "merge": true }))?;
    Ok(())
}

/// Returns a deployment of idle instances with these numbers.
pub fn document(tier: Tier, numbers: Range<usize>) -> Value {
    let instance = |number| (format!("idle{number}"), tier.instance(bridge()));
    let instances: Map<String, Value> = numbers.map(instance).collect();
    json!({ "version": 1, "overcommit": true, "instances": instances })
}

/// Returns the specification of an NF that only forwards.
pub fn bridge() -> Value {
    json!({ "nf": "bridge", "flavor": "small" })
}
