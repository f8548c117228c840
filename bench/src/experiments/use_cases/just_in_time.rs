//! Latency of the first answer to a new client: unknown clients arrive at fixed times, whether or not earlier clients
//! have been answered (open loop); the first datagram of each makes a firewall for this client, between two uplinks. A
//! second exchange of each client, with its instance running, measures the path itself.

use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::host::tier::Tier;
use crate::report::{Report, significant};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Milliseconds between two clients.
const GAPS_MS: [u64; 4] = [25, 10, 5, 1];
/// Size of the pool of shells.
const SHELLS: usize = 64;
/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time without datagrams after which a client's instance is ended.
const IDLE: Duration = Duration::from_secs(1);
const SERVER: &str = "192.0.2.1:53";
/// Percentiles of the plotted curve.
const CURVE: [u32; 14] = [1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 100];

/// The quantities of a pace.
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        ".median_ms",
        "ms",
        &[("median", Shown::Median), ("p99", Shown::P99)],
    )
    .with_p99(".p99_ms"),
    Quantity::new(".known_ms", "ms", &[("the second", Shown::Median)])
        .meaning("the same client's next exchange, when its instance is there"),
    Quantity::new(".lost", "datagrams", &[("lost", Shown::Sum)]),
];

/// Result of the clients that arrived at one pace.
struct Variant {
    gap_ms: u64,
    clients: usize,
    first_ms: Samples,
    second_ms: Samples,
    lost: usize,
}

impl Variant {
    fn every(gap_ms: u64) -> Self {
        Variant {
            gap_ms,
            clients: 0,
            first_ms: Samples::default(),
            second_ms: Samples::default(),
            lost: 0,
        }
    }
}

/// Lets new clients arrive every 10 ms, each of which gets an instance of this tier; returns the times until their first
/// answers, in milliseconds, and the number of clients without an answer.
///
/// # Errors
/// As for the experiment.
pub fn first_answers(
    tier: Tier,
    clients: usize,
    rounds: usize,
) -> anyhow::Result<(Samples, usize)> {
    let road = Road::new(tier)?;
    let mut variant = Variant::every(10);
    for number in 0..rounds {
        road.measure(&mut variant, clients, number)?;
    }
    Ok((variant.first_ms, variant.lost))
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let clients = report.effort(400, 60);
    let rounds = report.effort(5, 1);
    let road = Road::new(Tier::Process)?;
    let mut variants: Vec<Variant> = GAPS_MS.map(Variant::every).into();
    let mut number = 0;
    for _ in 0..rounds {
        for variant in &mut variants {
            road.measure(variant, clients, number)?;
            number += 1;
        }
    }
    show(report, variants);
    Ok(())
}

fn show(report: &mut Report, variants: Vec<Variant>) {
    let mut sweep = Sweep::plain(&["a client every", "clients"], QUANTITIES);
    sweep.notes = &["90 %"];
    let mut series = Vec::new();
    for variant in variants {
        let (gap_ms, clients) = (variant.gap_ms, variant.clients);
        let conditions = format!(
            "a new client every {gap_ms} ms, {clients} in all; veth, XDP, firewall of 3 rules, pool of up to {SHELLS} \
             shells; daemon, clients and server on the same two cores"
        );
        let mut curve = Series::new(format!("every {gap_ms} ms"));
        for percent in CURVE {
            let ms = variant.first_ms.quantile(f64::from(percent) / 100.0);
            curve.push(ms, &Samples::from(f64::from(percent)));
        }
        series.push(curve);
        let key = [gap_ms.to_string(), clients.to_string()];
        let side = Side::new(key, format!("l11.{gap_ms}"), ()).under(&conditions);
        let lost = Samples::from(variant.lost as f64);
        sweep.add(&side, [variant.first_ms, variant.second_ms, lost]);
    }
    for row in sweep.rows_mut() {
        row.notes.push(significant(row.samples[0].quantile(0.9)));
    }
    sweep.print("A new client's first datagram and its answer, by way of a firewall that is made for it, ms");
    sweep.report_all(report);
    report.plot(Plot {
        id: "l11.first_answer".to_owned(),
        title: "First answer of a new client".to_owned(),
        x: Axis::linear("ms"),
        y: Axis::linear("percent of clients answered"),
        series,
    });
}

/// Clients on one side of a platform, a server on the other. A process is declared before its namespace, so that it
/// ends first.
struct Road {
    tier: Tier,
    platform: Platform,
    clients: Namespace,
    server: Namespace,
    edge: Namespace,
}

impl Road {
    fn new(tier: Tier) -> anyhow::Result<Self> {
        let (clients, server, edge) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        Namespace::join((&clients, "eth0"), (&edge, "access"))?;
        Namespace::join((&server, "eth0"), (&edge, "core"))?;
        // This host has all client addresses; their rules do not pass ARP.
        clients.ip("route add local 10.2.0.0/16 dev lo")?;
        clients.ip("address add 10.2.255.254/32 dev eth0")?;
        clients.ip("route add 192.0.2.1/32 dev eth0")?;
        clients.enter_neighbour("192.0.2.1", &server)?;
        server.ip("address add 192.0.2.1/32 dev eth0")?;
        server.ip("route add 10.2.255.254/32 dev eth0")?;
        server.ip("route add 10.2.0.0/16 via 10.2.255.254")?;
        server.enter_neighbour("10.2.255.254", &clients)?;
        let road = Road {
            tier,
            platform: platform::start()?,
            clients,
            server,
            edge,
        };
        road.platform.apply(&road.deployment())?;
        road.await_shells()?;
        Ok(road)
    }

    fn deployment(&self) -> String {
        let uplink = |interface: &str| json!({ "interface": interface, "netns": self.edge.name() });
        let rules = "allow icmp from ${client} to any keep-state\nallow tcp from ${client} to any 80,443 keep-state\nallow udp from ${client} to any 53 keep-state\n";
        json!({
            "version": 1,
            "pool": { "small": self.tier.pool(json!({ "flavor": "small", "size": SHELLS })) },
            "uplinks": { "access": uplink("access"), "core": uplink("core") },
            "templates": { "subscriber": {
                "activate": "on-demand",
                "from": "access",
                "to": "core",
                "match": [{ "src": "10.2.0.0/16" }],
                "most": 2000,
                "per_second": 2000,
                "idle": format!("{}ms", IDLE.as_millis()),
                "instance": self.tier.instance(json!({
                    "nf": "firewall",
                    "flavor": "small",
                    "config": { "rules": rules, "default": "deny" },
                })),
            } },
        })
        .to_string()
    }

    /// Waits until all shells are ready and no instance exists.
    fn await_shells(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            interrupt::check()?;
            let pools = self.platform.api()?.get("/v1/pools")?;
            let templates = self.platform.api()?.get("/v1/templates")?;
            let is_ready = pools[0]["ready"].as_u64() >= Some(SHELLS as u64);
            if is_ready && templates[0]["clients"] == 0 {
                return Ok(());
            }
            let problem = &pools[0]["problem"];
            anyhow::ensure!(start.elapsed() < 60 * PATIENCE, "not ready: {problem}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets `count` new clients arrive.
    fn measure(&self, variant: &mut Variant, count: usize, number: usize) -> anyhow::Result<()> {
        self.await_shells()?;
        let server = self.server.udp_socket(SERVER)?;
        let sockets: Vec<UdpSocket> = (0..count)
            .map(|client| {
                let address = number * count + client;
                let (high, low) = (address / 250, address % 250 + 1);
                let socket = self
                    .clients
                    .udp_socket(&format!("10.2.{high}.{low}:5000"))?;
                socket.connect(SERVER)?;
                socket.set_nonblocking(true)?;
                anyhow::Ok(socket)
            })
            .collect::<anyhow::Result<_>>()?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&server, &is_over));
            let measured = exchange(variant, &sockets);
            is_over.store(true, Ordering::Relaxed);
            let answered = answering.join();
            measured?;
            answered.map_err(|_| anyhow::anyhow!("the server failed"))?
        })
    }
}

/// Sends every datagram back to its sender.
fn answer(server: &UdpSocket, is_over: &AtomicBool) -> anyhow::Result<()> {
    server.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut buffer = [0; 64];
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..len], from).context("answering")?;
        }
    }
    Ok(())
}

/// State of a client's exchange.
#[derive(Clone, Copy, Default)]
struct Exchange {
    sent: Option<Instant>,
    answered: Option<Instant>,
    /// Start of the second exchange, at the end of the first.
    again: Option<Instant>,
}

/// Sends each client's first datagram at its time, and a second datagram when the first is answered.
fn exchange(variant: &mut Variant, sockets: &[UdpSocket]) -> anyhow::Result<()> {
    let gap = Duration::from_millis(variant.gap_ms);
    let start = Instant::now() + gap;
    let end = start + gap * sockets.len() as u32 + PATIENCE;
    let mut exchanges = vec![Exchange::default(); sockets.len()];
    let mut next = 0;
    let mut open = sockets.len();
    while open > 0 && Instant::now() < end {
        interrupt::check()?;
        let due = start + gap * next as u32;
        if next < sockets.len() && Instant::now() >= due {
            exchanges[next].sent = Some(Instant::now());
            sockets[next].send(b"first").context("sending")?;
            next += 1;
            continue;
        }
        // The clients that wait for an answer, until the next client arrives.
        let waiting: Vec<usize> = (0..next)
            .filter(|client| {
                exchanges[*client].answered.is_none() || exchanges[*client].again.is_some()
            })
            .collect();
        let mut fds: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|client| PollFd::new(&sockets[*client], PollFlags::IN))
            .collect();
        let until = if next < sockets.len() { due } else { end };
        let patience = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(patience).unwrap_or_default();
        poll(&mut fds, Some(&timeout)).context("waiting for answers")?;
        let now = Instant::now();
        let ready: Vec<usize> = waiting
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| fd.revents().contains(PollFlags::IN))
            .map(|(client, _)| *client)
            .collect();
        for client in ready {
            let mut buffer = [0; 64];
            if sockets[client].recv(&mut buffer).is_err() {
                continue;
            }
            let exchange = &mut exchanges[client];
            if exchange.answered.is_none() {
                exchange.answered = Some(now);
                exchange.again = Some(Instant::now());
                sockets[client].send(b"again").context("sending")?;
            } else if let Some(again) = exchange.again.take() {
                variant
                    .second_ms
                    .push(now.duration_since(again).as_secs_f64() * 1e3);
                open -= 1;
            }
        }
    }
    variant.clients += sockets.len();
    for exchange in exchanges {
        match (exchange.sent, exchange.answered) {
            (Some(sent), Some(answered)) => {
                let ms = answered.duration_since(sent).as_secs_f64() * 1e3;
                variant.first_ms.push(ms);
            }
            _ => variant.lost += 1,
        }
    }
    Ok(())
}
