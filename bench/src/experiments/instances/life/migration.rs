//! Effect of a move to another host on the traffic of the instance: datagrams at a fixed rate from one namespace to
//! another, through a firewall with a state for each of 1000 flows that moves between two daemons. Both have uplinks on
//! the same two segments, whose bridges learn where addresses are. Compared with the same traffic without a move.

use super::losses::{DropCounters, LossesByPhase};
use super::setup::number;
use crate::host::cpu::require_two_cores;
use crate::host::idle;
use crate::host::platform;
use crate::host::tier::Tier;
use crate::phases::{PARTS, Phases};
use crate::report::{Report, table};
use crate::setups::segments::{Segments, TO};
use crate::setups::stream::{Passage, Stream};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_api::types::Timeline;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::api::Api;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use nfluid_tls::testing::Authority;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

const PPS: u32 = 100_000;
const FLOWS: u16 = 1000;
/// First source port of the flows: below the ports that the kernel chooses.
const FIRST_PORT: u16 = 20_000;
const SUBJECT: &str = "fw";
/// Shells of the firewall's kind that each daemon has prepared.
const SHELLS: u64 = 2;

/// Moves a firewall of a tier between two hosts, while frames come and `beside` idle instances of the tier are on each
/// host. Returns for how long nobody served its ports, in milliseconds.
///
/// # Errors
/// A move fails, or states are missing after it.
pub fn blocked_ms(
    tier: Tier,
    beside: usize,
    rounds: usize,
    time: Duration,
) -> anyhow::Result<Samples> {
    let mut road = Road::new(tier)?;
    for host in &mut road.hosts {
        idle::crowd(&mut host.requests, tier, beside)?;
    }
    let mut stream = Stream::new(&road.segments.client, &road.segments.server, TO)?;
    road.make_ready(&mut stream)?;
    let mut blocked = Samples::default();
    for _ in 0..rounds {
        interrupt::check()?;
        stream.answer()?;
        let mut answer = Value::Null;
        stream.run(PPS, time, || {
            answer = road.migrate()?;
            Ok(())
        })?;
        check_states(&answer)?;
        blocked.push(number(&answer, "blocked_us")? / 1e3);
        road.refill()?;
    }
    Ok(blocked)
}

fn check_states(answer: &Value) -> anyhow::Result<()> {
    let taken = number(answer, "state_taken")?;
    anyhow::ensure!(
        taken >= f64::from(FLOWS),
        "{taken} states of {FLOWS} were taken over"
    );
    Ok(())
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, seconds) = report.effort((20, 1.0), (3, 0.6));
    let time = Duration::from_secs_f64(seconds);
    let mut road = Road::new(Tier::Process)?;
    let mut stream = Stream::new(&road.segments.client, &road.segments.server, TO)?;
    road.make_ready(&mut stream)?;
    let [mut none, mut moved] = <[[Samples; 3]; 2]>::default();
    let [mut blocked, mut ready, mut took, mut frames, mut uncounted] = <[Samples; 5]>::default();
    let mut all_lost = DropCounters::default();
    let mut phases = Phases::default();
    let mut by_phase = LossesByPhase::default();
    for _ in 0..rounds {
        interrupt::check()?;
        stream.answer()?;
        push(&mut none, &stream.run(PPS, time, || Ok(()))?);
        let before = road.counters()?;
        let mut answer = Value::Null;
        let mut asked = Instant::now();
        let passage = stream.run(PPS, time, || {
            asked = Instant::now();
            answer = road.migrate()?;
            Ok(())
        })?;
        push(&mut moved, &passage);
        let parts: Timeline =
            serde_json::from_value(answer["took"].clone()).context("where the time went")?;
        by_phase.note(asked, &parts, &passage.lost_at);
        let ms = |ns: u64| ns as f64 / 1e6;
        phases.push(parts.phases.into_iter().map(|it| (it.what, ms(it.took_ns))));
        let mut lost = road.counters()?.since(&before);
        for (what, key) in [
            ("the rings of the one that left", "frames_dropped"),
            ("handed on, and no room", "frames_left_out"),
        ] {
            lost.add(what.to_owned(), Some(number(&answer, key)? as u64));
        }
        uncounted.push(passage.lost as f64 - lost.sum() as f64);
        all_lost.merge(&lost);
        check_states(&answer)?;
        blocked.push(number(&answer, "blocked_us")? / 1e3);
        ready.push(number(&answer, "ready_us")? / 1e3);
        took.push(number(&answer, "took_us")? / 1e3);
        frames.push(number(&answer, "frames")?);
        road.refill()?;
    }
    let conditions =
        format!("{PPS} pps for {seconds} s, {FLOWS} states, both hosts on this machine");
    let mut sweep = Sweep::plain(&["figure"], PASSAGE);
    sweep.notes = &["what happens"];
    for (at, (id, what, samples)) in [
        ("l7.migrate_none", "no move: what there is anyway", none),
        ("l7.migrate", "the firewall moves in the middle", moved),
    ]
    .into_iter()
    .enumerate()
    {
        let side = Side::new([id.to_owned()], id, ()).under(&format!("{conditions}; {what}"));
        sweep.add(&side, samples);
        sweep.rows_mut()[at].notes.push(what.to_owned());
    }
    sweep.print("A firewall with 1000 states moves to another host while datagrams cross it");
    table(
        "Frames that were dropped in all moves, by who counted them",
        &["place and reason", "frames"],
        &all_lost.rows(),
    );
    table(
        "And by the part of the move in which they were to be sent",
        &["part", "frames"],
        &by_phase.rows(),
    );
    let mut parts = Sweep::plain(&["phase"], PARTS);
    let part = format!("a part of a move; {conditions}");
    phases.add_to(&mut parts, &[], "l7.migrate", &part);
    parts.report_all(report);
    parts.print("A move, where the time goes, ms");
    sweep.report_all(report);
    for (id, samples, unit, what) in [
        (
            "l7.migrate_blocked_ms",
            &blocked,
            "ms",
            "nobody serves the ports, until the frames that waited are on their way",
        ),
        (
            "l7.migrate_ready_ms",
            &ready,
            "ms",
            "of it, until the other host has the state",
        ),
        (
            "l7.migrate_took_ms",
            &took,
            "ms",
            "from the request until the source knows that all is there",
        ),
        (
            "l7.migrate_frames",
            &frames,
            "frames",
            "that waited or came still, and were handed on",
        ),
        (
            "l7.migrate_lost_uncounted",
            &uncounted,
            "frames",
            "of those lost, what neither host nor the kernel between them has counted",
        ),
    ] {
        report.figure(
            id.to_owned(),
            samples,
            unit,
            &format!("{what}; {conditions}"),
        );
    }
    Ok(())
}

/// The quantities of runs of one kind.
const PASSAGE: [Quantity; 3] = [
    Quantity::new("_gap_ms", "ms", &[("longest gap ms", Shown::Median)]),
    Quantity::new("_lost", "packets", &[("lost", Shown::Median)]),
    Quantity::shown(&[("of", Shown::Median)]),
];

/// Adds a run, in the order of [`PASSAGE`].
fn push(samples: &mut [Samples; 3], passage: &Passage) {
    let gap_ms = passage.gap.as_secs_f64() * 1e3;
    let values = [gap_ms, passage.lost as f64, passage.sent as f64];
    for (samples, value) in samples.iter_mut().zip(values) {
        samples.push(value);
    }
}

/// A host of the move.
struct Host {
    _platform: Platform,
    requests: Api,
    /// The address of its daemon for other daemons.
    address: String,
}

/// Two ends on two segments, and two hosts between them. The hosts end before their interfaces do.
struct Road {
    hosts: [Host; 2],
    /// Index of the host that has the instance.
    at: usize,
    segments: Segments,
}

impl Road {
    fn new(tier: Tier) -> anyhow::Result<Self> {
        let segments = Segments::new()?;
        let (authority, folder) = (Authority::new()?, ScratchDirectory::new()?);
        let start = |host| start_host(&authority, &folder, tier, host);
        let [one, other] = [("-a", &segments.hosts[0]), ("-b", &segments.hosts[1])].map(start);
        let mut hosts = [one?, other?];
        let request = json!({ "text": subject(tier).to_string(), "merge": true });
        hosts[0].requests.request("POST", "/v1/apply", &request)?;
        for host in &mut hosts {
            host.requests.await_shells(SHELLS)?;
        }
        Ok(Road {
            hosts,
            at: 0,
            segments,
        })
    }

    /// Waits until datagrams pass in both directions, and enters a state for each flow.
    fn make_ready(&self, stream: &mut Stream) -> anyhow::Result<()> {
        stream.until_it_crosses()?;
        self.segments.client.within(|| {
            for port in FIRST_PORT..FIRST_PORT + FLOWS {
                let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
                socket.send_to(&[0], TO)?;
            }
            Ok(())
        })?;
        stream.answer()
    }

    /// Moves the instance to the other host.
    fn migrate(&mut self) -> anyhow::Result<Value> {
        let to = self.hosts[1 - self.at].address.clone();
        let path = format!("/v1/instances/{SUBJECT}/migrate");
        let report = self.hosts[self.at]
            .requests
            .request("POST", &path, &json!({ "to": to }))?;
        self.at = 1 - self.at;
        Ok(report)
    }

    /// Returns all counters of dropped frames.
    fn counters(&mut self) -> anyhow::Result<DropCounters> {
        let mut counters = DropCounters::default();
        for (name, host) in ["host-a", "host-b"].into_iter().zip(&mut self.hosts) {
            counters.add_platform(name, &mut host.requests)?;
        }
        for (name, namespace) in self.segments.all() {
            counters.add_interfaces(name, namespace)?;
        }
        counters.add_backlog()?;
        Ok(counters)
    }

    /// Waits until both hosts are ready for the next move.
    fn refill(&mut self) -> anyhow::Result<()> {
        self.hosts
            .iter_mut()
            .try_for_each(|host| host.requests.await_shells(SHELLS))
    }
}

/// The common part of both hosts' deployments: uplinks, whose rings hold 10 ms of the rate, and shells.
fn common(edge: &Namespace, tier: Tier) -> Value {
    let uplink =
        |interface: &str| json!({ "interface": interface, "netns": edge.name(), "ring": 1024 });
    json!({
        "version": 1,
        "flavors": { "wide": { "ring": 1024, "memory": "64MiB" } },
        "uplinks": { "lan": uplink("lan"), "wan": uplink("wan") },
        "pool": { "wide": tier.pool(json!({ "flavor": "wide", "size": SHELLS })) },
    })
}

/// The part that only one host has.
fn subject(tier: Tier) -> Value {
    let rules = "allow udp from any to any keep-state";
    let timeouts = json!({ "udp_opening": 3600, "udp": 3600 });
    let firewall = json!({
        "nf": "firewall", "flavor": "wide",
        "config": { "rules": rules, "states": { "timeouts": timeouts } },
    });
    json!({
        "version": 1,
        "instances": { SUBJECT: tier.instance(firewall) },
        "chains": { "road": { "from": "lan", "to": "wan", "via": [SUBJECT] } },
    })
}

/// Starts a host whose uplinks are in `edge`; its certificate is in `folder`.
fn start_host(
    authority: &Authority,
    folder: &ScratchDirectory,
    tier: Tier,
    (name, edge): (&str, &Namespace),
) -> anyhow::Result<Host> {
    // The port was free a moment ago, and no other process is about to listen on it.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let host = address.ip().to_string();
    let files = authority.write(authority, folder.as_ref(), (name, &host));
    let files = files.context("writing the files of a host")?;
    let platform = platform::start_with(name, &files.arguments("migrate", &address.to_string()))?;
    platform.apply(&common(edge, tier).to_string())?;
    Ok(Host {
        requests: Api::connect(&platform.socket())?,
        _platform: platform,
        address: address.to_string(),
    })
}
