//! Blocking client of a daemon's API on one connection that stays open, for programs that send many requests.

use crate::interrupt;
use anyhow::{Context, bail};
use nfluid_api::client::{Answer, Client, Connection};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Longest wait until shells are ready.
const SHELLS_PATIENCE: Duration = Duration::from_secs(120);

/// A blocking connection to a daemon.
#[derive(Debug)]
pub struct Api {
    connection: Connection,
    /// Drives the connection while a request waits for its response.
    runtime: Runtime,
}

impl Api {
    /// Connects to the daemon that listens at `socket`.
    ///
    /// # Errors
    /// When no daemon listens.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build();
        let runtime = runtime.context("making a run-time for requests")?;
        let connection = runtime.block_on(Client::new(socket).connection())?;
        Ok(Api {
            connection,
            runtime,
        })
    }

    /// Sends a request, with `body` unless it is `Null`, and waits for the response of any status.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn answer(&mut self, method: &str, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let body = match body {
            Value::Null => Vec::new(),
            body => serde_json::to_vec(body).context("the request")?,
        };
        let answer = self.connection.request(method, path, body);
        let answer = self.runtime.block_on(answer);
        answer.with_context(|| format!("{method} {path}"))
    }

    /// Sends a request that must succeed; returns the JSON of the response, `Null` for an empty response.
    ///
    /// # Errors
    /// When the daemon refuses, with the daemon's error text.
    pub fn request(&mut self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer = self.answer(method, path, body)?;
        if !(200..300).contains(&answer.status) {
            let text = String::from_utf8_lossy(&answer.body);
            bail!("{method} {path}: {}: {}", answer.status, text.trim());
        }
        if answer.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer.body).context("what the daemon answers")
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// As [`Api::request`].
    pub fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.request("GET", path, &Value::Null)
    }

    /// Waits until the first pool has `count` shells ready.
    ///
    /// # Errors
    /// When the shells do not become ready, with the daemon's error text.
    pub fn await_shells(&mut self, count: u64) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let pools = self.get("/v1/pools")?;
            if pools[0]["ready"].as_u64() >= Some(count) {
                return Ok(());
            }
            interrupt::check()?;
            let problem = &pools[0]["problem"];
            anyhow::ensure!(start.elapsed() < SHELLS_PATIENCE, "no shells: {problem}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
