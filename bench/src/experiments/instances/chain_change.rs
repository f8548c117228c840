//! Effect of a change of a chain on its traffic: datagrams at a fixed rate from one namespace to another, while a network
//! function is inserted, removed, replaced, or moved to a second host, to which a tunnel leads. Compared with the same traffic
//! without a change.

use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::Report;
use crate::setups::ends::Ends;
use crate::setups::stream::Stream;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use crate::workload::Workload;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Datagrams per second, and the ending of the figures' names. At the higher rate, two hosts and their ends have about as much
/// work as two cores can do.
const RATES: [(u32, &str); 2] = [(100_000, ""), (10_000, ".10k")];
/// Addresses of the two hosts on the wire between them.
const HOSTS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        ".lost",
        "packets",
        &[("lost", Shown::Median), ("most", Shown::Largest)],
    ),
    Quantity::new(".gap_ms", "ms", &[("gap ms", Shown::Median)]),
    Quantity::shown(&[("of", Shown::Median)]),
];

/// A change: the functions of the chain on each host, in the order in which the hosts get them.
struct Change {
    id: &'static str,
    what: &'static str,
    before: [&'static [&'static str]; 2],
    /// The host, and its functions afterwards.
    steps: &'static [(usize, &'static [&'static str])],
}

/// All functions are on the first host, and the second one leads to the server: without one, in the kernel.
const CHANGES: [Change; 5] = [
    Change {
        id: "chain.none",
        what: "nothing: what is lost anyway",
        before: [&["fw"], &[]],
        steps: &[],
    },
    Change {
        id: "chain.insert",
        what: "a bridge behind the firewall",
        before: [&["fw"], &[]],
        steps: &[(0, &["fw", "more"])],
    },
    Change {
        id: "chain.remove",
        what: "the bridge behind the firewall",
        before: [&["fw", "more"], &[]],
        steps: &[(0, &["fw"])],
    },
    Change {
        id: "chain.replace",
        what: "the firewall, by one of another name",
        before: [&["fw"], &[]],
        steps: &[(0, &["fw2"])],
    },
    Change {
        id: "chain.move",
        what: "the firewall, to the other host",
        before: [&["fw"], &[]],
        steps: &[(1, &["fw"]), (0, &[])],
    },
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let road = Road::new()?;
    let mut stream = road.ends.stream()?;
    let (rounds, seconds) = report.effort((11, 1.0), (1, 0.3));
    let time = Duration::from_secs_f64(seconds);
    let side = |(pps, ending): (u32, &str), change: &'static Change| {
        let conditions = format!("{pps} pps for {seconds} s, two hosts; {}", change.what);
        let id = format!("{}{ending}", change.id);
        let key = [change.id.to_owned(), (pps / 1000).to_string()];
        Side::new(key, id, (pps, change)).under(&conditions)
    };
    let all = RATES.into_iter();
    let all = all.flat_map(|rate| CHANGES.iter().map(move |change| side(rate, change)));
    let mut sides: Vec<_> = all.collect();
    let mut sweep = Sweep::plain(&["figure", "kpps"], QUANTITIES);
    sweep.notes = &["what changes"];
    sweep.run(report, rounds, &mut sides, |(pps, change), _| {
        road.make_ready(change, &mut stream)?;
        let passage = stream.run(*pps, time, || road.make(change))?;
        let gap_ms = passage.gap.as_secs_f64() * 1e3;
        Ok([passage.lost as f64, gap_ms, passage.sent as f64])
    })?;
    for (row, change) in sweep.rows_mut().iter_mut().zip(CHANGES.iter().cycle()) {
        row.notes.push(change.what.to_owned());
    }
    sweep.print("A chain over two hosts is changed while datagrams cross it");
    sweep.report_all(report);
    Ok(())
}

/// Two ends and the two platforms between them. The platforms end before their interfaces do.
struct Road {
    platforms: [Platform; 2],
    ends: Ends,
    _edges: [Namespace; 2],
}

impl Road {
    fn new() -> anyhow::Result<Self> {
        let edges = [Namespace::new()?, Namespace::new()?];
        Namespace::join((&edges[0], "wire"), (&edges[1], "wire"))?;
        for (edge, address) in edges.iter().zip(HOSTS) {
            edge.ip("link set wire mtu 1600")?;
            edge.ip(&format!("address add {address}/24 dev wire"))?;
        }
        Ok(Road {
            ends: Ends::at([&edges[0], &edges[1]])?,
            platforms: [
                platform::start_within("-a", &edges[0], &[])?,
                platform::start_within("-b", &edges[1], &[])?,
            ],
            _edges: edges,
        })
    }

    /// Gives a host its functions.
    fn apply(&self, host: usize, functions: &[&str]) -> anyhow::Result<()> {
        self.platforms[host].apply(&document(host, functions))
    }

    fn make_ready(&self, change: &Change, stream: &mut Stream) -> anyhow::Result<()> {
        for (host, functions) in change.before.iter().enumerate() {
            self.apply(host, functions)?;
        }
        stream.until_it_crosses()
    }

    fn make(&self, change: &Change) -> anyhow::Result<()> {
        let mut steps = change.steps.iter();
        steps.try_for_each(|(host, functions)| self.apply(*host, functions))
    }
}

/// The deployment of a host. Rings hold 10 ms, which limits losses to a process that does not get its core.
fn document(host: usize, functions: &[&str]) -> String {
    let own = ["lan", "wan"][host];
    let ends = [[own, "far"], ["far", own]][host];
    let instances: Map<String, Value> = functions
        .iter()
        .map(|name| ((*name).to_owned(), instance(name)))
        .collect();
    let tunnel = json!({ "remote": HOSTS[1 - host], "vni": 7 });
    let document = json!({
        "version": 1,
        "flavors": { "one": { "ring": 1024, "memory": "64MiB" } },
        "uplinks": {
            own: { "interface": own, "ring": 1024, "super": "off" },
            "far": { "interface": "far0", "ring": 1024, "tunnel": tunnel },
        },
        "instances": instances,
        "chains": { "road": { "from": ends[0], "to": ends[1], "via": functions } },
    });
    document.to_string()
}

fn instance(name: &str) -> Value {
    if !name.starts_with("fw") {
        return json!({ "nf": "bridge", "flavor": "one" });
    }
    let workload = Workload::Firewall {
        rules: 10,
        flows: 1,
    };
    json!({ "nf": workload.nf(), "config": workload.config(), "flavor": "one" })
}
