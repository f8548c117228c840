//! A platform with idle instances, and a probe whose ports lead through the instance under test.

use crate::host::idle::{Idle, bridge};
use crate::host::platform;
use crate::host::tier::Tier;
use crate::roles::probe;
use anyhow::Context;
use nfluid_api::types::Timeline;
use nfluid_ring::clock::monotonic_ns;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_testbed::api::Api;
use nfluid_testbed::interrupt;
use nfluid_testbed::log::LogReader;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The instance that is created and ended repeatedly.
const SUBJECT: &str = "x";
/// Frames leave on the first port and return on the second. The third port is not connected: a closed loop of instances
/// is refused.
const PROBE_PORTS: [&str; 3] = ["a", "b", "open"];
/// Clients that create instances in parallel.
const CONNECTIONS: usize = 8;
/// Longest time until a frame passes a new instance.
const PATIENCE: Duration = Duration::from_secs(120);

/// The request that creates an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A change of the whole deployment.
    Whole,
    /// A request for this instance.
    One,
    /// A request for this instance, while shells are ready.
    Pool,
}

/// Times of a creation.
#[derive(Clone, Debug)]
pub struct Created {
    /// Until the first frame has passed, in milliseconds.
    pub first_packet_ms: f64,
    /// Until the daemon's response, in milliseconds.
    pub answer_ms: f64,
    /// Until the daemon's response to the removal, in milliseconds.
    pub end_ms: f64,
    /// Phases of the time until the first frame, in milliseconds, as far as the daemon reports them.
    pub phases: Vec<(String, f64)>,
}

/// The platform. Its probe sends only while a frame is awaited: sending every 20 us takes a third of a core, and the
/// probes of several platforms would leave no core for the measurement.
pub struct Setup {
    idle: Idle,
    log: LogReader,
    probe: Cgroup,
    /// Number of shells of its pool.
    shells: usize,
    tier: Tier,
    /// The instance that is made and ended.
    subject: Value,
}

impl Setup {
    /// Starts the platform with only the probe.
    ///
    /// # Errors
    /// As [`Idle::on`].
    pub fn new() -> anyhow::Result<Self> {
        Self::lacking("", "")
    }

    /// As [`Setup::new`]; the platform's name ends in `name`, and the daemon's option disables the mechanisms of
    /// `without`.
    ///
    /// # Errors
    /// As [`Idle::on`].
    pub fn lacking(name: &str, without: &str) -> anyhow::Result<Self> {
        Self::of(Tier::Process, bridge(), name, without)
    }

    /// As [`Setup::lacking`], for instances of a tier, where `subject` is made and ended.
    ///
    /// # Errors
    /// As [`Idle::on`].
    pub fn of(tier: Tier, subject: Value, name: &str, without: &str) -> anyhow::Result<Self> {
        let arguments: Vec<String> = match without {
            "" => Vec::new(),
            without => vec!["--without".to_owned(), without.to_owned()],
        };
        let mut idle = Idle::of(tier, platform::start_with(name, &arguments)?)?;
        let own = std::env::current_exe().context("finding this program")?;
        let probe = json!({
            "version": 1,
            "overcommit": true,
            "instances": { "probe": { "program": own, "args": [probe::ARGUMENT], "ports": PROBE_PORTS } },
        });
        idle.merge(&probe)?;
        let log = LogReader::open(&idle.platform().instance_log("probe"))?;
        let probe = platform::cgroup(idle.platform(), "probe")?;
        probe.freeze()?;
        Ok(Setup {
            idle,
            log,
            probe,
            shells: 0,
            tier,
            subject: tier.instance(subject),
        })
    }

    /// Returns the number of instances, including the probe.
    pub fn instances(&self) -> usize {
        self.idle.count() + 1
    }

    /// Creates idle instances until there are `count` with the probe.
    ///
    /// # Errors
    /// As [`Idle::populate`].
    pub fn populate(&mut self, count: usize) -> anyhow::Result<()> {
        self.idle.populate(count.saturating_sub(1))
    }

    /// Sets the size of the daemon's pool of shells, and waits until it is full; 0: no pool.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn pool(&mut self, size: usize) -> anyhow::Result<()> {
        self.shells = size;
        let pool = self
            .tier
            .pool(json!({ "flavor": "small", "size": size.max(1) }));
        let document = json!({ "version": 1, "pool": { "small": pool } });
        if size == 0 {
            let request = json!({ "text": document.to_string() });
            return self
                .idle
                .requests()
                .request("POST", "/v1/delete", &request)
                .map(drop);
        }
        self.idle.merge(&document)?;
        self.idle.requests().await_shells(size as u64)
    }

    /// Creates `count` unconnected instances over several connections in parallel, and ends them; returns the numbers
    /// created and ended per second.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer.
    pub fn storm(&self, count: usize) -> anyhow::Result<(f64, f64)> {
        let made = self.all_at_once(count, |requests, path| {
            let request = json!({ "instance": self.subject });
            requests.request("PUT", path, &request).map(drop)
        })?;
        let ended = self.all_at_once(count, |requests, path| {
            requests.request("DELETE", path, &Value::Null).map(drop)
        })?;
        Ok((made, ended))
    }

    fn all_at_once(
        &self,
        count: usize,
        request: impl Fn(&mut Api, &str) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<f64> {
        let socket = self.idle.platform().socket();
        let next = AtomicUsize::new(0);
        let start = Instant::now();
        let work = || -> anyhow::Result<()> {
            let mut requests = Api::connect(&socket)?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                interrupt::check()?;
                request(&mut requests, &format!("/v1/instances/storm{number}"))?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("a client failed")))
            };
            workers.into_iter().try_for_each(join)
        })?;
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// Creates an instance, waits until it forwards, and ends it. With a pool, starts when the pool is full, as it is
    /// without load. [`Setup::storm`] measures the cost of refilling the pool.
    ///
    /// # Errors
    /// The daemon refuses the request, or no frame comes through.
    pub fn cycle(&mut self, way: Way) -> anyhow::Result<Created> {
        interrupt::check()?;
        if way == Way::Pool {
            self.idle.requests().await_shells(self.shells as u64)?;
        }
        self.probe.thaw()?;
        // Frames that passed the previous instance do not count for this instance.
        std::thread::sleep(2 * probe::SILENCE);
        let asked_ns = monotonic_ns();
        let answer = self.make(way)?;
        let answered_ns = monotonic_ns();
        let first_ns = self.await_first(asked_ns)?;
        self.probe.freeze()?;
        let ending_ns = monotonic_ns();
        self.end(way)?;
        Ok(Created {
            phases: phases(&answer, asked_ns, first_ns)?,
            first_packet_ms: ms(asked_ns, first_ns),
            answer_ms: ms(asked_ns, answered_ns),
            end_ms: ms(ending_ns, monotonic_ns()),
        })
    }

    /// The daemon refuses the request, or does not answer.
    fn make(&mut self, way: Way) -> anyhow::Result<Value> {
        let links = links();
        if way != Way::Whole {
            let request = json!({ "instance": self.subject, "links": links });
            let path = format!("/v1/instances/{SUBJECT}");
            return self.idle.requests().request("PUT", &path, &request);
        }
        // The flavor is added for the check of the whole deployment.
        self.idle.merge(&json!({
            "version": 1,
            "flavors": { "unused": { "ring": 64, "memory": "16MiB" } },
            "instances": { SUBJECT: self.subject },
            "links": links,
        }))
    }

    fn end(&mut self, way: Way) -> anyhow::Result<()> {
        if way != Way::Whole {
            let path = format!("/v1/instances/{SUBJECT}?with_links=true");
            return self
                .idle
                .requests()
                .request("DELETE", &path, &Value::Null)
                .map(drop);
        }
        let named = |kind: &str, name: &str| json!({ "kind": kind, "name": name });
        let request = json!({
            "objects": [named("flavor", "unused"), named("instance", SUBJECT)],
            "with_links": true,
        });
        self.idle
            .requests()
            .request("POST", "/v1/delete", &request)
            .map(drop)
    }

    /// Returns the time at which the first frame after `asked_ns` passed.
    fn await_first(&mut self, asked_ns: u64) -> anyhow::Result<u64> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let Some(line) = self.log.line()? else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let first = line.trim().strip_prefix("first ");
            if let Some(first_ns) = first.and_then(|ns| ns.parse().ok())
                && first_ns > asked_ns
            {
                return Ok(first_ns);
            }
        }
        anyhow::bail!("no frame came through a new instance")
    }
}

fn ms(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

/// Returns the phases between `asked_ns` and `first_ns`: until the daemon began, the daemon's work until the program
/// got its role, and from there to the first frame. The daemon's work in parallel to the start comes last.
fn phases(answer: &Value, asked_ns: u64, first_ns: u64) -> anyhow::Result<Vec<(String, f64)>> {
    let Some(took) = answer.get("took") else {
        return Ok(Vec::new());
    };
    let took: Timeline = serde_json::from_value(took.clone()).context("where the time went")?;
    let mut phases = vec![("request".to_owned(), ms(asked_ns, took.begun_ns))];
    let mut until_ns = took.begun_ns;
    let mut told_ns = None;
    let mut beside = Vec::new();
    for phase in took.phases {
        until_ns += phase.took_ns;
        let is_beside = told_ns.is_some();
        if phase.what == TELL || phase.what == LAUNCH {
            told_ns = Some(until_ns);
        }
        let list = if is_beside { &mut beside } else { &mut phases };
        list.push((phase.what, phase.took_ns as f64 / 1e6));
    }
    if let Some(told_ns) = told_ns {
        phases.push(("start".to_owned(), ms(told_ns, first_ns)));
    }
    phases.append(&mut beside);
    Ok(phases)
}

/// The daemon's names of the last phase: a shell's program has its role, or another program runs.
const TELL: &str = "tell";
const LAUNCH: &str = "launch";

fn links() -> [[String; 2]; 2] {
    [("a", "in"), ("b", "out")].map(|(a, b)| [format!("probe.{a}"), format!("{SUBJECT}.{b}")])
}
