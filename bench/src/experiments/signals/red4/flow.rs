//! A TCP flow of iperf3, and its sender's statistics from the kernel.

use anyhow::Context;
use nfluid_testbed::interrupt;
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Interval of the kernel's statistics, in seconds.
const INTERVAL: &str = "0.25";
/// A flow that has not ended this long after its time has lost its return path.
const GRACE: Duration = Duration::from_secs(60);

/// A flow; ended when dropped.
pub struct Client {
    child: Child,
    time: Duration,
}

/// Result of the flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Mean of the sender kernel's round trip times, in microseconds.
    pub rtt_us: f64,
    /// Retransmitted segments per second.
    pub retransmits: f64,
}

impl Client {
    /// Starts iperf3 by a command, which may have preceding arguments.
    ///
    /// # Errors
    /// When iperf3 cannot be started.
    pub fn start(
        mut command: Command,
        server: &str,
        control: &str,
        time: Duration,
    ) -> anyhow::Result<Self> {
        let seconds = time.as_secs().to_string();
        command
            .args(["-J", "-i", INTERVAL, "-C", control, "-t", &seconds])
            .args(["-c", server])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let child = command.spawn().context("starting iperf3")?;
        Ok(Client { child, time })
    }

    /// Waits for the end of the flow; returns its results from `since` on, counted from its start.
    ///
    /// # Errors
    /// iperf3 does not end, or its output cannot be read; the error has the output.
    pub fn finish(mut self, since: Duration) -> anyhow::Result<Flow> {
        let mut report = String::new();
        let output = self.child.stdout.take().context("iperf3's output")?;
        let reader = std::thread::spawn(move || {
            let mut output = output;
            output.read_to_string(&mut report).map(|_| report)
        });
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            interrupt::check()?;
            anyhow::ensure!(start.elapsed() < self.time + GRACE, "iperf3 does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let report = reader.join().ok().context("reading what iperf3 says")??;
        let report: Value = serde_json::from_str(&report).context("what iperf3 says")?;
        read(&report, since.as_secs_f64())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the intervals of iperf3's report that begin after `since` seconds.
fn read(report: &Value, since: f64) -> anyhow::Result<Flow> {
    if let Some(error) = report["error"].as_str() {
        anyhow::bail!("iperf3: {error}");
    }
    let all = report["intervals"].as_array();
    let streams = all
        .context("iperf3 tells no intervals")?
        .iter()
        .map(|interval| &interval["streams"][0])
        .filter(|stream| stream["start"].as_f64().is_some_and(|start| start >= since));
    let (mut seconds, mut rtt, mut sent_again) = (0.0, 0.0, 0.0);
    for stream in streams {
        let number = |key: &str| {
            let value = stream[key].as_f64();
            value.with_context(|| format!("iperf3 tells no {key}"))
        };
        let elapsed = number("seconds")?;
        seconds += elapsed;
        rtt += number("rtt")? * elapsed;
        sent_again += number("retransmits")?;
    }
    anyhow::ensure!(seconds > 0.0, "iperf3 has ended before it was measured");
    Ok(Flow {
        rtt_us: rtt / seconds,
        retransmits: sent_again / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::{Flow, read};
    use serde_json::json;

    #[test]
    fn slow_start_is_left_out_and_errors_are_told() {
        let interval = |start: f64, rtt: u32, retransmits: u32| json!({ "streams": [{ "start": start, "seconds": 0.5, "rtt": rtt, "retransmits": retransmits }] });
        let report = json!({ "intervals": [
            interval(0.0, 9000, 70), interval(1.0, 200, 1), interval(1.5, 400, 3),
        ] });
        let found = read(&report, 1.0).expect("two intervals");
        let wanted = Flow {
            rtt_us: 300.0,
            retransmits: 4.0,
        };
        assert_eq!(found, wanted);
        assert!(read(&report, 2.0).is_err(), "nothing was measured");
        let error = read(&json!({ "error": "no route" }), 0.0).expect_err("an error");
        assert!(error.to_string().contains("no route"));
    }
}
