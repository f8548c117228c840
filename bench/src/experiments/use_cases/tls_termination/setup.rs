//! The terminators of both sides, and wrk, in one network namespace.
//!
//! Both sides are in cgroups: each terminator in its own cgroup, with the same weight, memory limit and time slice, in
//! one cgroup per side with the same weight. The remaining difference is that of instances: namespaces, filters, the
//! daemon.

use super::Kind;
use crate::host::platform;
use anyhow::{Context, bail};
use nfluid_sandbox::cgroup::Share;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::command::output;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use nfluid_testbed::process::Service;
use nfluid_testbed::program::built;
use serde_json::json;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Port of the first end point of each side; the others follow.
const FIRST_PORTS: [u16; 2] = [10_000, 20_000];
/// The cores of the terminators and of wrk.
const CORES: [u32; 2] = [0, 1];
/// Limits of each terminator: percent of a core as a weight, MiB of memory, connections at once. All connections of a
/// thread of wrk begin at its first end point, 125 of a thousand.
const SHARE_PERCENT: u32 = 100;
const MEMORY_MIB: u64 = 16;
const CONNECTIONS_MAX: u32 = 256;
/// Smallest number of connections that wrk keeps open.
const CONNECTIONS_MIN: usize = 32;
/// Largest number of keys: an RSA key takes a tenth of a second and more. Further end points reuse the keys.
const PAIRS_MAX: usize = 16;
/// Largest number of wrk's threads. wrk counts requests while it starts further threads, in a time that it does not
/// count: with a thread for each of a thousand end points that would be most of the run.
const THREADS_MAX: usize = 8;
const PATIENCE: Duration = Duration::from_secs(300);
/// Prefix of wrk's report (`SCRIPT`).
const REPORT: &str = "measured ";

/// Returns the number of open connections for `count` end points.
pub fn connections(count: usize) -> usize {
    count.max(CONNECTIONS_MIN)
}

/// Returns the number of different keys of `count` end points.
pub fn pairs(count: usize) -> usize {
    count.min(PAIRS_MAX)
}

/// A side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Instances of nfluid.
    Instances,
    /// The same program without nfluid.
    Bare,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Requests answered per second.
    pub rate: f64,
    /// The 99th percentile of the time until an answer, in milliseconds.
    pub p99_ms: f64,
}

/// Both sides. A process is declared before its namespace, so that it ends first.
pub struct Setup {
    bare: Vec<Service>,
    /// Declared after the processes in these cgroups.
    _shares: Cgroups,
    _platform: Platform,
    directory: ScratchDirectory,
    namespace: Namespace,
    count: usize,
}

impl Setup {
    /// Starts `count` terminators of each side, and waits until all accept.
    pub fn new(kind: Kind, count: usize) -> anyhow::Result<Self> {
        let program = built("nfluid-tls", "nfluid-tls-host")?;
        let (directory, namespace) = (ScratchDirectory::new()?, Namespace::new()?);
        let keys: Vec<[PathBuf; 2]> = (0..pairs(count))
            .map(|number| make_pair(&directory, kind, number))
            .collect::<Result<_, _>>()?;
        let pair_of = |at: usize| &keys[at % keys.len()];
        let (platform, mut shares) = (platform::start()?, Cgroups::new()?);
        platform::outweigh_others(&platform)?;
        platform.apply(&deployment(namespace.name(), count, pair_of)?)?;
        let mut bare = Vec::with_capacity(count);
        for at in 0..count {
            interrupt::check()?;
            let file = directory.path(&format!("bare{}.json", at % keys.len()));
            std::fs::write(&file, config(pair_of(at)).to_string()).context("a configuration")?;
            let mut command = namespace.command("taskset");
            command.args(["-c", &CORES[0].to_string()]).arg(&program);
            command
                .arg("alone")
                .arg(address(Side::Bare, at).to_string())
                .arg(&file);
            let log = directory.path("bare.log");
            bare.push(Service::start("nfluid-tls", &mut command, log)?);
            if let Some(started) = bare.last() {
                // At once, so that the cgroup accounts for all that the process uses.
                let weight = Share::from_percent(SHARE_PERCENT)?;
                shares.add(&[started.pid()], None, Some(weight))?;
                shares.limit_memory(MEMORY_MIB << 20)?;
            }
        }
        let mut setup = Setup {
            bare,
            _shares: shares,
            _platform: platform,
            directory,
            namespace,
            count,
        };
        setup.await_all()?;
        Ok(setup)
    }

    fn await_all(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        for side in [Side::Instances, Side::Bare] {
            for at in 0..self.count {
                let address = address(side, at);
                let accepts = || self.namespace.within(|| Ok(TcpStream::connect(address)?));
                while let Err(error) = accepts() {
                    interrupt::check()?;
                    if Instant::now() > end {
                        return Err(error).with_context(|| format!("nobody serves {address}"));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        Ok(())
    }

    /// Lets wrk send requests to all end points of a side.
    ///
    /// # Errors
    /// When wrk or a request fails.
    pub fn run(&self, side: Side, time: Duration) -> anyhow::Result<Run> {
        interrupt::check()?;
        let file = self.directory.path("wrk.lua");
        std::fs::write(&file, SCRIPT).context("writing wrk's script")?;
        // wrk accepts only whole seconds.
        let (threads, seconds) = (self.count.min(THREADS_MAX), time.as_secs().max(1));
        let mut command = self.namespace.command("taskset");
        command.args(["-c", &CORES[1].to_string(), "wrk", "--timeout", "30s"]);
        command.args(["-H", "Connection: close"]);
        command.args(["-t", &threads.to_string()]);
        command.args(["-c", &connections(self.count).to_string()]);
        command
            .args(["-d", &format!("{seconds}s"), "-s"])
            .arg(&file);
        command.arg(format!("https://{}/", address(side, 0)));
        command.env("NFLUID_FIRST_PORT", address(side, 0).port().to_string());
        command.env("NFLUID_PORTS", self.count.to_string());
        command.env("NFLUID_THREADS", threads.to_string());
        read(&output(&mut command)?)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // The terminators end in parallel; dropping one waits for its end.
        self.bare.iter_mut().for_each(Service::terminate);
    }
}

/// Returns the address of an end point.
fn address(side: Side, at: usize) -> SocketAddr {
    let first = FIRST_PORTS[usize::from(side == Side::Bare)];
    let port = first + u16::try_from(at).unwrap_or(u16::MAX);
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Makes a key and its certificate.
fn make_pair(
    directory: &ScratchDirectory,
    kind: Kind,
    number: usize,
) -> anyhow::Result<[PathBuf; 2]> {
    let pair = [".crt", ".key"].map(|ending| directory.path(&format!("tenant{number}{ending}")));
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=tenant",
    ]);
    match kind {
        Kind::Rsa2048 => command.args(["-newkey", "rsa:2048"]),
        Kind::EcdsaP256 => {
            command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        }
    };
    command
        .arg("-out")
        .arg(&pair[0])
        .arg("-keyout")
        .arg(&pair[1]);
    output(&mut command)?;
    only_owner(&pair[1])?;
    Ok(pair)
}

fn only_owner(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).context("the mode of a key")
}

fn config([certificate, key]: &[PathBuf; 2]) -> serde_json::Value {
    json!({
        "certificate": certificate, "key": key, "answer": "", "connections": CONNECTIONS_MAX,
    })
}

fn deployment<'a>(
    netns: &str,
    count: usize,
    pair_of: impl Fn(usize) -> &'a [PathBuf; 2],
) -> anyhow::Result<String> {
    let mut text = "version: 1\novercommit: true\ninstances:\n".to_owned();
    for at in 0..count {
        let (address, config) = (address(Side::Instances, at), config(pair_of(at)));
        let core = CORES[0];
        writeln!(
            text,
            "  t{at}: {{ nf: tls, flavor: small, cpus: [{core}], share: {SHARE_PERCENT}%, memory: {MEMORY_MIB}MiB, \
             netns: {netns}, listen: \"{address}\", config: {config} }}"
        )?;
    }
    Ok(text)
}

/// Gives each thread its part of the end points, which the thread requests in turn: each connection goes to the next
/// end point. Answers later than wrk's timeout are no errors: the machine may be busy.
const SCRIPT: &str = "\
local first = tonumber(os.getenv(\"NFLUID_FIRST_PORT\"))
local ports = tonumber(os.getenv(\"NFLUID_PORTS\"))
local threads = tonumber(os.getenv(\"NFLUID_THREADS\"))
local started = 0
local function address(at)
return wrk.lookup(\"127.0.0.1\", tostring(first + at))[1]
end
function setup(thread)
thread.addr = address(started)
thread:set(\"own\", started)
started = started + 1
end
local addresses, turn, text = {}, 0, nil
function init()
for at = own, ports - 1, threads do
addresses[#addresses + 1] = address(at)
end
text = wrk.format()
end
function request()
turn = turn % #addresses + 1
wrk.thread.addr = addresses[turn]
return text
end
function done(summary, latency)
local e = summary.errors
io.write(string.format(\"measured %d %d %f %d\\n\", summary.requests, summary.duration,
latency:percentile(99), e.connect + e.read + e.write + e.status))
end
";

fn read(output: &str) -> anyhow::Result<Run> {
    let line = output.lines().find_map(|line| line.strip_prefix(REPORT));
    let words = line.into_iter().flat_map(str::split_whitespace);
    let numbers: Result<Vec<f64>, _> = words.map(str::parse).collect();
    let [requests, duration_us, p99_us, errors] = numbers?[..] else {
        bail!("wrk said: {}", output.trim());
    };
    anyhow::ensure!(
        errors == 0.0 && requests > 0.0,
        "of {requests} requests {errors} have failed: {}",
        output.trim()
    );
    Ok(Run {
        rate: requests / duration_us * 1e6,
        p99_ms: p99_us / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::{REPORT, SCRIPT, read};

    #[test]
    fn a_run_with_errors_is_none() {
        let run = read("Running 2s test\nmeasured 3000 2000000 90000.5 0\n").unwrap();
        assert_eq!((run.rate, run.p99_ms), (1500.0, 90.0005));
        assert!(read("measured 3000 2000000 90000 1").is_err());
        assert!(read("measured 0 2000000 0 0").is_err());
        assert!(read("unable to connect").is_err());
        assert!(SCRIPT.contains(REPORT));
    }
}
