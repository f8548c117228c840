//! iperf3 between the ends of a path.

use anyhow::{Context, bail};
use nfluid_testbed::command::Outcome;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Background;
use serde_json::Value;
use std::time::Duration;

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Throughput at the server.
    pub gbits: f64,
    pub seconds: f64,
    /// Retransmitted segments of all streams.
    pub retransmits: f64,
    /// Bytes that the client sent.
    pub sent_bytes: f64,
    /// CPU time of client and server, what the kernel does on their account included.
    pub cpu_seconds: f64,
}

impl Run {
    pub fn gbps(&self) -> f64 {
        self.gbits / self.seconds
    }

    pub fn retransmits_per_gb(&self) -> f64 {
        self.retransmits / (self.sent_bytes / 1e9)
    }
}

/// Starts a server.
pub fn serve(namespace: &Namespace) -> anyhow::Result<Background> {
    let mut command = namespace.command("iperf3");
    let server = Background::start(command.arg("-s"))?;
    // The server prints nothing when it is ready; a client that starts earlier fails.
    std::thread::sleep(Duration::from_millis(500));
    Ok(server)
}

/// Sends for `seconds` by this many streams to a server.
///
/// # Errors
/// The output of iperf3, as far as it is used.
pub fn send(client: &Namespace, server: &str, streams: u32, seconds: u32) -> anyhow::Result<Run> {
    let mut command = client.command("iperf3");
    let (streams, seconds) = (streams.to_string(), seconds.to_string());
    command.args(["-J", "-P", &streams, "-t", &seconds, "-c", server]);
    let outcome = Outcome::of(&mut command)?;
    let report = serde_json::from_str(&outcome.stdout);
    read(&report.with_context(|| format!("iperf3 says {}", outcome.stderr))?)
}

fn read(report: &Value) -> anyhow::Result<Run> {
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let end = &report["end"];
    let number = |of: &str, key: &str| {
        let value = end[of][key].as_f64();
        value.with_context(|| format!("iperf3 tells no {of}.{key}"))
    };
    let [sent, received, cpu] = ["sum_sent", "sum_received", "cpu_utilization_percent"];
    let seconds = number(received, "seconds")?;
    let percent = number(cpu, "host_total")? + number(cpu, "remote_total")?;
    Ok(Run {
        gbits: number(received, "bytes")? * 8.0 / 1e9,
        seconds,
        retransmits: number(sent, "retransmits")?,
        sent_bytes: number(sent, "bytes")?,
        cpu_seconds: percent / 100.0 * seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::read;
    use serde_json::json;

    #[test]
    fn a_run_is_what_arrived_and_what_both_ends_spent() {
        let report = json!({ "end": {
            "sum_sent": { "bytes": 2e9, "retransmits": 6, "seconds": 2.0 },
            "sum_received": { "bytes": 1e9, "seconds": 2.0 },
            "cpu_utilization_percent": { "host_total": 50.0, "remote_total": 25.0 },
        } });
        let run = read(&report).expect("a run");
        assert_eq!(run.gbps(), 4.0);
        assert_eq!(run.retransmits_per_gb(), 3.0);
        assert_eq!(run.cpu_seconds, 1.5);
        let error = read(&json!({ "error": "no route" })).expect_err("an error");
        assert_eq!(error.to_string(), "iperf3: no route");
        let error = read(&json!({ "end": {} })).expect_err("no numbers");
        assert_eq!(error.to_string(), "iperf3 tells no sum_received.seconds");
    }
}
