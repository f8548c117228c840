//! Effect of a restart on the traffic of the NF: datagrams at a fixed rate from one namespace to another, through two
//! uplinks and a firewall of ten rules that is killed with SIGKILL, restarted on request, or replaced by a firewall of
//! another flavor. Compared with the same traffic without such an event.

use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::Report;
use crate::setups::ends::Ends;
use crate::setups::stream::Stream;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::Duration;

/// The former default of the first delay before a restart, ten times the present one.
const FORMER_BACKOFF: &str = "100ms..10s";

/// The event in the middle of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    /// SIGKILL, with the daemon's default delays.
    Killed,
    /// The same with [`FORMER_BACKOFF`].
    KilledFormer,
    /// `nfluid restart`.
    Restarted,
    /// The same deployment with another flavor, which replaces the instance.
    Replaced,
}

/// An event at a rate.
#[derive(Clone, Copy)]
struct Variant {
    id: &'static str,
    what: &'static str,
    event: Event,
    pps: u32,
}

const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        ".gap_ms",
        "ms",
        &[("gap ms", Shown::Median), ("longest", Shown::Largest)],
    ),
    Quantity::new(".lost_packets", "packets", &[("lost", Shown::Median)]),
    Quantity::shown(&[("of", Shown::Median)]),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let road = Road::new()?;
    let mut stream = road.ends.stream()?;
    let (rounds, seconds) = report.effort((11, 1.0), (1, 0.6));
    let time = Duration::from_secs_f64(seconds);
    let variants = variants();
    let side = |variant: &Variant| {
        let key = [variant.id.to_owned(), (variant.pps / 1000).to_string()];
        let conditions = format!("{} pps for {seconds} s; {}", variant.pps, variant.what);
        Side::new(key, variant.id, *variant).under(&conditions)
    };
    let mut sides: Vec<_> = variants.iter().map(side).collect();
    let mut sweep = Sweep::plain(&["figure", "kpps"], QUANTITIES);
    sweep.notes = &["what happens"];
    sweep.run(report, rounds, &mut sides, |variant, _| {
        road.make_ready(variant.event, &mut stream)?;
        let passage = stream.run(variant.pps, time, || road.cause(variant.event))?;
        let gap_ms = passage.gap.as_secs_f64() * 1e3;
        Ok([gap_ms, passage.lost as f64, passage.sent as f64])
    })?;
    for (row, variant) in sweep.rows_mut().iter_mut().zip(&variants) {
        row.notes.push(variant.what.to_owned());
    }
    sweep.print("A firewall between two uplinks ends while datagrams cross it");
    sweep.report_all(report);
    Ok(())
}

fn variants() -> Vec<Variant> {
    let nothing = "nothing: the longest gap there is anyway";
    let killed = "killed by SIGKILL, the default wait";
    let former = "killed by SIGKILL, backoff 100ms..10s";
    let list = [
        ("restart", killed, Event::Killed, 100_000),
        ("restart.10k", killed, Event::Killed, 10_000),
        ("restart.100ms", former, Event::KilledFormer, 100_000),
        ("restart.100ms.10k", former, Event::KilledFormer, 10_000),
        (
            "restart.request",
            "nfluid restart",
            Event::Restarted,
            100_000,
        ),
        (
            "restart.replace",
            "another flavor is applied",
            Event::Replaced,
            100_000,
        ),
        ("restart.none", nothing, Event::Nothing, 100_000),
        ("restart.none.10k", nothing, Event::Nothing, 10_000),
    ];
    let variant = |(id, what, event, pps)| Variant {
        id,
        what,
        event,
        pps,
    };
    list.into_iter().map(variant).collect()
}

/// Two ends and the platform between them. The platform ends before its interfaces do.
struct Road {
    platform: Platform,
    ends: Ends,
    edge: Namespace,
}

impl Road {
    fn new() -> anyhow::Result<Self> {
        let edge = Namespace::new()?;
        Ok(Road {
            ends: Ends::at([&edge, &edge])?,
            platform: platform::start()?,
            edge,
        })
    }

    /// Returns the deployment. Rings hold 10 ms of the higher rate, which limits losses to a process that does not get
    /// its core.
    fn deployment(&self, restart: Option<&str>, flavor: &str) -> String {
        let uplink = |interface: &str| json!({ "interface": interface, "netns": self.edge.name(), "ring": 1024 });
        let workload = Workload::Firewall {
            rules: 10,
            flows: 1,
        };
        let mut firewall =
            json!({ "nf": workload.nf(), "config": workload.config(), "flavor": flavor });
        if let Some(backoff) = restart {
            firewall["restart"] = json!({ "policy": "always", "backoff": backoff });
        }
        let document = json!({
            "version": 1,
            "flavors": { "one": { "ring": 1024, "memory": "64MiB" }, "other": { "ring": 1024, "memory": "65MiB" } },
            "uplinks": { "lan": uplink("lan"), "wan": uplink("wan") },
            "instances": { "fw": firewall },
            "chains": { "road": { "from": "lan", "to": "wan", "via": ["fw"] } },
        });
        document.to_string()
    }

    /// Applies the deployment of the event, clears the failure counts, and waits until datagrams pass.
    fn make_ready(&self, event: Event, stream: &mut Stream) -> anyhow::Result<()> {
        let backoff = (event == Event::KilledFormer).then_some(FORMER_BACKOFF);
        self.platform.apply(&self.deployment(backoff, "one"))?;
        self.platform.restart("fw")?;
        stream.until_it_crosses()
    }

    fn cause(&self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Nothing => Ok(()),
            Event::Killed | Event::KilledFormer => {
                let pid = self.pid()?;
                kill_process(pid, Signal::KILL).context("killing the firewall")
            }
            Event::Restarted => self.platform.restart("fw"),
            Event::Replaced => self.platform.apply(&self.deployment(None, "other")),
        }
    }

    /// Returns the firewall's process.
    fn pid(&self) -> anyhow::Result<Pid> {
        let instances: Value = self.platform.api()?.get("/v1/instances")?;
        let pid = instances[0]["pid"].as_i64();
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.context("the firewall does not run")
    }
}
