//! redis and memcached, and the load that their own clients make (target M4).

use anyhow::Context;
use nfluid_testbed::command::output;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::program::find;
use serde_json::{Value, json};
use std::process::Command;

/// A server that keeps values by keys.
pub struct Store {
    /// Its name, also in ids of figures.
    pub name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    pub port: u16,
    /// The program that makes the load.
    client: &'static str,
    /// The instance's address; the host beside it is `.1`.
    pub address: &'static str,
    pub what: &'static str,
}

/// Their order is that of the interfaces.
const STORES: [Store; 2] = [
    Store {
        name: "redis",
        program: "redis-server",
        arguments: &["--save", "", "--protected-mode", "no", "--dir", "/tmp"],
        port: 6379,
        client: "redis-benchmark",
        address: "10.7.0.2",
        what: "GET of 3 B from redis, 50 connections of redis-benchmark",
    },
    Store {
        name: "memcached",
        program: "memcached",
        arguments: &["-u", "root", "-m", "64", "-t", "1"],
        port: 11211,
        client: "memcslap",
        address: "10.8.0.2",
        what: "get of 400 B from memcached, 16 connections of memcslap",
    },
];

/// Returns those that this host has, with their clients.
pub fn found() -> Vec<Store> {
    let is_here = |store: &Store| find(store.program).is_some() && find(store.client).is_some();
    STORES.into_iter().filter(is_here).collect()
}

impl Store {
    /// Returns the server as an instance.
    pub fn instance(&self) -> Value {
        json!({
            "program": find(self.program),
            "args": self.arguments,
            "memory": "192MiB",
            "ports": { "eth0": { "kind": "interface", "addresses": [format!("{}/24", self.address)] } },
        })
    }

    /// Returns the command of a bare server.
    pub fn command(&self, namespace: &Namespace) -> Command {
        let mut command = namespace.command(self.program);
        command.args(self.arguments);
        command
    }

    /// Returns the answered requests per second of some `thousands`.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn rate(&self, client: &Namespace, address: &str, thousands: u64) -> anyhow::Result<f64> {
        let mut command = client.command(self.client);
        if self.name == "redis" {
            let count = (thousands * 1000).to_string();
            command.args(["-h", address, "-t", "get", "--csv", "-n", &count]);
            return redis_rate(&output(&mut command)?);
        }
        let each = (thousands * 1000 / 16).to_string();
        command.arg(format!("--servers={address}:{}", self.port));
        command.args(["--test=get", "--concurrency=16", "--execute-number", &each]);
        memcached_rate(&output(&mut command)?)
    }
}

/// Reads a line such as `"GET","145772.59","0.187"`.
fn redis_rate(said: &str) -> anyhow::Result<f64> {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("\"GET\",\""));
    let rate = line.and_then(|line| line.split('"').next());
    rate.with_context(|| format!("redis-benchmark said: {said}"))?
        .parse()
        .context("no rate")
}

/// Reads a line such as `Time to get 32000 keys by 16 threads: 0.258 seconds.`
fn memcached_rate(said: &str) -> anyhow::Result<f64> {
    let line = said.lines().find(|line| line.starts_with("Time to get "));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let (Some(keys), Some(seconds)) = (words.get(3), words.iter().rev().nth(1)) else {
        anyhow::bail!("memcslap said: {said}");
    };
    Ok(keys.parse::<f64>()? / seconds.parse::<f64>()?)
}

#[cfg(test)]
mod tests {
    use super::{memcached_rate, redis_rate};

    // promise: 13.17
    #[test]
    fn rates_are_those_that_clients_say() {
        let said = "\"test\",\"rps\"\n\"GET\",\"145772.59\",\"0.187\"\n";
        assert_eq!(redis_rate(said).unwrap(), 145_772.59);
        let said = "Time to set    2000 keys:   0.026 seconds.\nTime to get   32000 keys by   16 threads:     0.250 seconds.\n";
        assert_eq!(memcached_rate(said).unwrap(), 128_000.0);
        assert!(redis_rate("Could not connect").is_err() && memcached_rate("").is_err());
    }
}
