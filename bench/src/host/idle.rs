//! Instances that do nothing, on a platform of their own.

use super::platform;
use anyhow::Context;
use nfluid_testbed::api::Api;
use nfluid_testbed::interrupt;
use nfluid_testbed::platform::Platform;
use serde_json::{Map, Value, json};

/// Instances that are asked for in one document.
const PER_DOCUMENT: usize = 500;

/// The platform and its idle instances.
pub struct Idle {
    platform: Platform,
    requests: Api,
    count: usize,
}

impl Idle {
    /// Starts a platform without any.
    ///
    /// # Errors
    /// As [`platform::start`].
    pub fn new() -> anyhow::Result<Self> {
        Self::on(platform::start()?)
    }

    /// Uses a platform that has none.
    ///
    /// # Errors
    /// When the daemon takes no connection.
    pub fn on(platform: Platform) -> anyhow::Result<Self> {
        Ok(Idle {
            requests: Api::connect(&platform.socket())?,
            platform,
            count: 0,
        })
    }

    /// Makes more of them until there are so many. On an error there are as many as [`Idle::count`] says.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn populate(&mut self, count: usize) -> anyhow::Result<()> {
        while self.count < count {
            interrupt::check()?;
            let next = count.min(self.count + PER_DOCUMENT);
            let instances: Map<String, Value> = (self.count..next)
                .map(|number| (format!("idle{number}"), bridge()))
                .collect();
            let document = json!({ "version": 1, "overcommit": true, "instances": instances });
            self.merge(&document)?;
            self.count = next;
        }
        Ok(())
    }

    /// Merges a document into the deployment; the daemon's answer.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn merge(&mut self, document: &Value) -> anyhow::Result<Value> {
        let request = json!({ "text": document.to_string(), "merge": true });
        self.requests.request("POST", "/v1/apply", &request)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Their processes.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn pids(&mut self) -> anyhow::Result<Vec<u32>> {
        let all = self.requests.get("/v1/instances")?;
        let all = all.as_array().context("a list of instances")?;
        let pid = |instance: &Value| instance["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        Ok(all.iter().filter_map(pid).collect())
    }

    /// The daemon's process.
    pub fn daemon(&self) -> anyhow::Result<u32> {
        self.platform.daemon_pid()
    }

    /// Api to the daemon.
    pub fn requests(&mut self) -> &mut Api {
        &mut self.requests
    }

    /// The platform.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }
}

/// An NF that does nothing but forward.
pub fn bridge() -> Value {
    json!({ "nf": "bridge", "flavor": "small" })
}
