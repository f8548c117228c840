//! wrk: persistent connections, each with one outstanding request.

use super::answers::{self, Counts};
use super::topology::{SERVICE, Topology};
use crate::host::cpu;
use crate::host::forwards::Forwards;
use anyhow::{Context, bail};
use nfluid_testbed::interrupt;
use nfluid_testbed::process::Service;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The client's threads, as many as the experiment's machine has cores.
const THREADS: u32 = 2;
/// Time at the beginning and at the end of a run that does not represent the steady state.
const EDGE: Duration = Duration::from_millis(250);
/// Prefix of wrk's report (`SCRIPT`).
const REPORT: &str = "measured ";
/// Prefix of the report's lines with the number of answers per response time.
const ANSWERS: &str = "took ";

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Requests answered per second.
    pub rate: f64,
    /// Mean response time in microseconds, of the real answers.
    pub mean_us: f64,
    /// 99th percentile of the response time.
    pub p99_us: f64,
    /// wrk's own mean, corrected for requests that were not sent meanwhile.
    pub corrected_us: f64,
    /// Cores that wrk used, including the soft interrupts that it caused and did not pass on.
    pub wrk_cores: f64,
    /// Cores that the servers used, counted the same way.
    pub server_cores: f64,
    /// Cores that the program in between used, if there is one.
    pub proxy_cores: f64,
    /// Cores that the kernel's threads for soft interrupts used.
    pub softirq_cores: f64,
}

impl Run {
    /// Returns the cores that all of them used.
    pub fn cores(&self) -> f64 {
        self.wrk_cores + self.server_cores + self.proxy_cores + self.softirq_cores
    }

    /// Returns the fraction of connections that wait for an answer: requests per second times the mean response time
    /// (Little's law). The difference to 1 is wrk's own time between an answer and the next request; above 1, a mean
    /// would be wrong.
    pub fn waiting(&self, connections: u32) -> f64 {
        self.rate * self.mean_us / 1e6 / f64::from(connections)
    }

    /// Returns the CPU time of all of them per request, in microseconds.
    pub fn us_per_request(&self) -> f64 {
        self.cores() / self.rate * 1e6
    }
}

/// Lets wrk keep this many connections busy for a time.
///
/// # Errors
/// When wrk or a request fails.
pub fn run(
    topology: &Topology,
    proxy: Option<&Service>,
    connections: u32,
    time: Duration,
) -> anyhow::Result<Run> {
    interrupt::check()?;
    let file = topology.directory.path("wrk.lua");
    std::fs::write(&file, SCRIPT).context("writing wrk's script")?;
    // wrk accepts whole seconds only, and is ended earlier.
    let limit = time.as_secs() + 2;
    let mut command = topology.client.command("wrk");
    command
        .args(["-t", &THREADS.to_string(), "-c", &connections.to_string()])
        .args(["-d", &format!("{limit}s"), "-s"])
        .arg(&file)
        .arg(format!("http://{SERVICE}/"));
    let mut wrk = Running::start(&mut command)?;
    let pid = wrk.0.id();
    std::thread::sleep(EDGE);
    let (start, before) = (Instant::now(), Used::now(topology, pid, proxy)?);
    std::thread::sleep(time.saturating_sub(2 * EDGE));
    let used = Used::now(topology, pid, proxy)?;
    let cores = |of: fn(&Used) -> f64| (of(&used) - of(&before)) / start.elapsed().as_secs_f64();
    let (wrk_cores, server_cores) = (cores(|used| used.wrk), cores(|used| used.servers));
    let (proxy_cores, softirq_cores) = (cores(|used| used.proxy), cores(|used| used.softirq));
    std::thread::sleep(EDGE);
    let [rate, mean_us, p99_us, corrected_us] = read(&wrk.end()?, connections)?;
    Ok(Run {
        rate,
        mean_us,
        p99_us,
        corrected_us,
        wrk_cores,
        server_cores,
        proxy_cores,
        softirq_cores,
    })
}

/// CPU times in seconds.
struct Used {
    wrk: f64,
    servers: f64,
    proxy: f64,
    softirq: f64,
}

impl Used {
    fn now(topology: &Topology, wrk: u32, proxy: Option<&Service>) -> anyhow::Result<Self> {
        let mut servers = 0.0;
        for server in &topology.services {
            servers += server.cpu_seconds()?;
        }
        let mut softirq = 0.0;
        for thread in cpu::kernel_threads("ksoftirqd") {
            softirq += cpu::process_seconds(thread)?;
        }
        Ok(Used {
            wrk: cpu::process_seconds(wrk).context("wrk has ended")?,
            servers,
            proxy: proxy.map_or(Ok(0.0), Forwards::cpu_seconds)?,
            softirq,
        })
    }
}

/// Killed when dropped.
struct Running(std::process::Child);

impl Running {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn();
        Ok(Running(child.context("starting wrk")?))
    }

    /// Ends the program; returns its output.
    fn end(&mut self) -> anyhow::Result<String> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).context("ending wrk")?;
        let mut output = String::new();
        for pipe in [
            self.0
                .stdout
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn Read>),
            self.0
                .stderr
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn Read>),
        ] {
            pipe.context("what wrk says")?.read_to_string(&mut output)?;
        }
        let status = self.0.wait()?;
        anyhow::ensure!(status.success(), "wrk: {status}: {}", output.trim());
        Ok(output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // wrk has ended, or is not wanted any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// wrk calls this at the end. Answers later than 2 s are not errors: the machine may be busy.
const SCRIPT: &str = "\
function done(summary, latency)
local e = summary.errors
io.write(string.format(\"measured %d %d %f %d\\n\", summary.requests, summary.duration,
latency.mean, e.connect + e.read + e.write + e.status))
local i = 1
while true do
local us, count = latency(i)
if us == 0 then break end
io.write(string.format(\"took %d %d\\n\", us, count))
i = i + 1
end
end
";

/// Returns requests per second; mean and 99th percentile of the response time in microseconds; wrk's corrected mean.
fn read(output: &str, connections: u32) -> anyhow::Result<[f64; 4]> {
    let line = output.lines().find_map(|line| line.strip_prefix(REPORT));
    let words = line.into_iter().flat_map(str::split_whitespace);
    let numbers: Result<Vec<f64>, _> = words.map(str::parse).collect();
    let [requests, duration_us, corrected_us, errors] = numbers?[..] else {
        bail!("wrk said: {}", output.trim());
    };
    anyhow::ensure!(
        errors == 0.0,
        "of {requests} requests {errors} have failed: {}",
        output.trim()
    );
    anyhow::ensure!(requests > 0.0, "no request was answered");
    let mut counts = Counts::new();
    for line in output.lines().filter_map(|line| line.strip_prefix(ANSWERS)) {
        let (us, count) = line.split_once(' ').context("two numbers")?;
        counts.insert(us.parse()?, count.parse()?);
    }
    // In whole numbers, as wrk computes.
    let rounds = requests as u64 / u64::from(connections);
    let usual_us = (duration_us as u64).checked_div(rounds);
    let answers = answers::of(counts, usual_us.unwrap_or(u64::MAX / 2));
    let p99_us = answers::percentile_us(&answers, 99);
    let rate = requests / duration_us * 1e6;
    Ok([rate, answers::mean_us(&answers), p99_us, corrected_us])
}

#[cfg(test)]
mod tests {
    use super::{ANSWERS, REPORT, SCRIPT, read};

    // promise: 13.17
    #[test]
    fn a_run_with_errors_is_none() {
        let output = "Running 2s test\nmeasured 300000 2000000 210.5 0\ntook 200 1\ntook 220 3\n";
        let expected = [150_000.0, 215.0, 220.0, 210.5];
        assert_eq!(read(output, 36).unwrap(), expected);
        assert!(read("measured 300000 2000000 210.5 1", 36).is_err());
        assert!(read("measured 0 2000000 0 0", 36).is_err());
        assert!(read("unable to connect", 36).is_err());
        assert!(SCRIPT.contains(REPORT) && SCRIPT.contains(ANSWERS));
    }
}
