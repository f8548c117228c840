//! Nomad's tasks: from the job until the first frame, and where the time goes; beside Nomad's own driver `raw_exec`, which starts a process and
//! isolates nothing, and beside `mock_driver`, which starts nothing (V1, V2).
//!
//! Phases are by Nomad's own clocks, all on this host: the allocation's creation and the events of its task. The first frame is one of those that a
//! client sends twice a millisecond. The agent is a server and a client in one process.

use super::orchestrated::{Hosts, PATIENCE, SHELLS, now_ms, row};
use crate::report::{Report, table};
use anyhow::{Context, ensure};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::nomad::{Nomad, find};
use nfluid_testbed::program::built;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Interval of questions about allocations.
const LOOK: Duration = Duration::from_millis(20);
/// The drivers that are compared, with the configuration of their tasks.
const RAW_EXEC: &str = "raw_exec";
const MOCK: &str = "mock_driver";

struct Setup {
    hosts: Hosts,
    nomad: Nomad,
    _folder: ScratchDirectory,
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        let program = find()?;
        let driver = built("nfluid-nomad", "nfluid-nomad")?;
        let hosts = Hosts::new()?;
        let folder = ScratchDirectory::new()?;
        let at = folder.path("nomad");
        let mut nomad = Nomad::new(
            program,
            at,
            &driver,
            &hosts.platform.socket(),
            &[RAW_EXEC, MOCK],
        )?;
        nomad.start()?;
        Ok(Setup {
            hosts,
            nomad,
            _folder: folder,
        })
    }

    /// Submits a job, and returns the times of its tasks once they all run.
    fn run(&self, name: &str, driver: &str, count: usize, config: &Value) -> anyhow::Result<Times> {
        let task = json!({
            "Name": "task", "Driver": driver, "Config": config, "KillTimeout": 1_000_000_000,
            "Resources": { "CPU": 100, "MemoryMB": 16 },
            "LogConfig": { "MaxFiles": 1, "MaxFileSizeMB": 1 },
        });
        let job = json!({ "Job": {
            "ID": name, "Name": name, "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{ "Name": "group", "Count": count, "Tasks": [task], "EphemeralDisk": { "SizeMB": 10 } }],
        } });
        let submitted = now_ms();
        self.nomad.request("PUT", "/v1/jobs", &job)?;
        let accepted = now_ms();
        let begun = Instant::now();
        loop {
            interrupt::check()?;
            let all = self.nomad.get(&format!("/v1/job/{name}/allocations"))?;
            let runs = |it: &&Value| it["ClientStatus"] == "running";
            let running: Vec<_> = all.as_array().into_iter().flatten().filter(runs).collect();
            if running.len() == count {
                return Times::of(submitted, accepted, now_ms(), &running);
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "{} of {count} tasks of {driver} run: {all}",
                running.len()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Removes a job, and waits until nothing of it runs.
    fn remove(&self, name: &str) -> anyhow::Result<()> {
        self.nomad
            .request("DELETE", &format!("/v1/job/{name}"), &Value::Null)?;
        let begun = Instant::now();
        loop {
            let all = self.nomad.get(&format!("/v1/job/{name}/allocations"))?;
            let is_over =
                |it: &Value| it["ClientStatus"] != "running" && it["ClientStatus"] != "pending";
            if all.as_array().into_iter().flatten().all(is_over) {
                self.nomad.request(
                    "DELETE",
                    &format!("/v1/job/{name}?purge=true"),
                    &Value::Null,
                )?;
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the job {name} does not end");
            std::thread::sleep(LOOK);
        }
    }
}

/// The times of a job's events, in milliseconds since 1970.
struct Times {
    submitted: f64,
    accepted: f64,
    created: f64,
    received: f64,
    set_up: f64,
    /// The start of the last task.
    started: f64,
    told: f64,
}

impl Times {
    fn of(
        submitted: f64,
        accepted: f64,
        told: f64,
        allocations: &[&Value],
    ) -> anyhow::Result<Self> {
        let ms = |ns: &Value| ns.as_u64().map_or(f64::NAN, |ns| ns as f64 / 1e6);
        let event = |it: &Value, kind: &str| {
            let events = it["TaskStates"]["task"]["Events"].as_array();
            let mut events = events.into_iter().flatten();
            events
                .find(|event| event["Type"] == kind)
                .map(|event| ms(&event["Time"]))
        };
        let first = allocations.first().context("no allocation")?;
        let of_first =
            |kind: &str| event(first, kind).with_context(|| format!("no event '{kind}'"));
        let starts: Option<Vec<f64>> = allocations.iter().map(|it| event(it, "Started")).collect();
        let last = starts
            .context("a task has not started")?
            .into_iter()
            .fold(0.0, f64::max);
        Ok(Times {
            submitted,
            accepted,
            created: ms(&first["CreateTime"]),
            received: of_first("Received")?,
            set_up: of_first("Task Setup")?,
            started: last,
            told,
        })
    }

    fn started_ms(&self) -> f64 {
        self.started - self.submitted
    }
}

/// The phases of a start: name of the figure, and what it is.
const PHASES: [(&str, &str); 6] = [
    ("api", "request accepted"),
    (
        "scheduling",
        "evaluation and plan: request until the allocation",
    ),
    ("client", "allocation until the client has it"),
    ("folders", "until the task's folders are there"),
    (
        "driver",
        "hooks, driver and nfluid, until the task has started",
    ),
    ("told", "until Nomad's API tells that it runs"),
];

fn phases(times: &Times) -> [f64; 6] {
    [
        times.accepted - times.submitted,
        times.created - times.submitted,
        times.received - times.created,
        times.set_up - times.received,
        times.started - times.set_up,
        times.told - times.started,
    ]
}

/// Runs the experiment.
pub fn run_nomad(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, many, turns) = report.choose((100, 50, 5), (2, 3, 1));
    let setup = Setup::new()?;
    let bridge =
        json!({ "nf": "bridge", "flavor": "small", "links": [["lan", ".in"], [".out", "wan"]] });
    let alone = json!({ "nf": "bridge", "flavor": "small" });
    let sleep = json!({ "command": "/bin/sleep", "args": ["1000"] });
    let mock = json!({ "run_for": "1000s" });
    report.settle();
    let [mut first_frame, mut direct, mut started, mut raw] = [const { Vec::new() }; 4];
    let mut parts = vec![Vec::new(); PHASES.len()];
    for round in 0..rounds {
        interrupt::check()?;
        direct.push(setup.hosts.directly()?);
        let name = format!("ours-{round}");
        setup.hosts.await_shells()?;
        let (ms, times) = setup
            .hosts
            .until_first_frame(|| setup.run(&name, "nfluid", 1, &bridge))?;
        setup.remove(&name)?;
        first_frame.push(ms);
        started.push(times.started_ms());
        for (part, ms) in parts.iter_mut().zip(phases(&times)) {
            part.push(ms);
        }
        let name = format!("raw-{round}");
        raw.push(setup.run(&name, RAW_EXEC, 1, &sleep)?.started_ms());
        setup.remove(&name)?;
    }
    let [first_frame, direct, started, raw] =
        [first_frame, direct, started, raw].map(Samples::from_iter);
    let conditions = format!(
        "one task, a bridge between two uplinks, from a pool of {SHELLS}; {rounds} jobs in turn, one after the other"
    );
    report.figure(
        "v1.nomad.running_ms",
        &first_frame,
        "ms",
        &format!("{conditions}; request until the first frame"),
    );
    report.figure(
        "v1.nomad.started_ms",
        &started,
        "ms",
        &format!("{conditions}; request until Nomad's event 'Started'"),
    );
    report.figure(
        "v1.nomad.nfluid_ms",
        &direct,
        "ms",
        "the same instance and links by nfluid's API, until the first frame",
    );
    report.figure(
        "v1.nomad.raw_exec_ms",
        &raw,
        "ms",
        "a process without isolation (sleep), until 'Started'",
    );
    report.figure(
        "v1.nomad.raw_exec_ratio",
        &started.ratios(&raw),
        "x",
        "nfluid's 'Started' over raw_exec's",
    );
    let mut rows = vec![
        row("first frame", &first_frame),
        row("started", &started),
        row("raw_exec started", &raw),
        row("nfluid alone, first frame", &direct),
    ];
    for ((name, what), part) in PHASES.iter().zip(parts) {
        let part = Samples::from_iter(part);
        report.figure(format!("v1.nomad.{name}_ms"), &part, "ms", what);
        rows.push(row(what, &part));
    }
    table("Nomad, one task", &["until", "median ms", "mean ms"], &rows);

    let [mut ours, mut raws, mut mocks] = [const { Vec::new() }; 3];
    for turn in 0..turns {
        for (driver, config, rates) in [
            ("nfluid", &alone, &mut ours),
            (RAW_EXEC, &sleep, &mut raws),
            (MOCK, &mock, &mut mocks),
        ] {
            interrupt::check()?;
            let name = format!("many-{driver}-{turn}");
            let times = setup.run(&name, driver, many, config)?;
            rates.push(many as f64 / times.started_ms() * 1e3);
            setup.remove(&name)?;
        }
    }
    let [ours, raws, mocks] = [ours, raws, mocks].map(Samples::from_iter);
    let conditions = format!("a job of {many} tasks, until the last has started, {turns} in turn");
    report.figure(
        "v1.nomad.rate_per_s",
        &ours,
        "1/s",
        &format!("{conditions}; instances"),
    );
    report.figure(
        "v1.nomad.rate_raw_exec_per_s",
        &raws,
        "1/s",
        &format!("{conditions}; raw_exec"),
    );
    report.figure(
        "v1.nomad.rate_mock_per_s",
        &mocks,
        "1/s",
        &format!("{conditions}; mock_driver, which starts nothing"),
    );
    report.figure(
        "v1.nomad.rate_raw_exec_ratio",
        &ours.ratios(&raws),
        "x",
        "instances over raw_exec",
    );
    report.figure(
        "v1.nomad.rate_mock_ratio",
        &ours.ratios(&mocks),
        "x",
        "instances over mock_driver",
    );
    table(
        "Nomad, tasks per second",
        &["driver", "1/s"],
        &[("nfluid", &ours), (RAW_EXEC, &raws), (MOCK, &mocks)]
            .map(|(name, rate)| vec![name.to_owned(), format!("{:.0}", rate.median())]),
    );
    Ok(())
}
