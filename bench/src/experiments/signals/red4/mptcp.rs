//! A TCP connection of two subflows (the kernel's MPTCP) beside two plain flows: the topology of "Sharing CPUs by
//! congestion control" (KBNets '17, figs. 8 and 10) as far as possible. Each subflow passes its own NF, each NF carries
//! a plain flow too, and both NFs share a core. Measures the shares with and without congestion signals.
//!
//! The paper's multipath sender couples its subflows (RFC 6356). Linux does not: each subflow runs the connection's
//! congestion control as if it were alone, and the default scheduler fills any subflow with room. So the expected share
//! is that of two flows of four, not that of one of three.

use super::counters::Moment;
use super::ends::{OF_ENDS, OF_NFS, join, reach, set_ecn};
use super::sockets::{Connection, connections};
use super::{FLOWS, NFS, Setting, Signals};
use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::peer::Peer;
use crate::report::Report;
use crate::roles::tcp::multipath_socket;
use crate::roles::{Role, Task};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const PORT: u16 = 5301;
const CONTROL: &str = "cubic";
/// Number of checks for all connections, and the time in between: a first packet may be lost several times.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// Two hosts with two paths between them.
struct Hosts {
    outside: Namespace,
    client: Namespace,
    server: Namespace,
}

/// The quantities of a setting: CPU time for the multipath connection, then by NF of the plain flows and the subflows.
const QUANTITIES: [Quantity; 11] = [
    Quantity::new(
        ".multipath_percent",
        "%",
        &[("multipath CPU %", Shown::Median)],
    )
    .meaning(OF_BOTH),
    Quantity::new(
        ".cheap.plain_percent",
        "%",
        &[("plain CPU %: cheap", Shown::Median)],
    )
    .meaning(OF_BOTH),
    Quantity::new(".dear.plain_percent", "%", &[("dear", Shown::Median)]).meaning(OF_BOTH),
    Quantity::new(
        ".cheap.subflow_mbps",
        "Mbit/s",
        &[("subflows Mbit/s: cheap", Shown::Median)],
    )
    .meaning("acknowledged"),
    Quantity::new(".dear.subflow_mbps", "Mbit/s", &[("dear", Shown::Median)])
        .meaning("acknowledged"),
    Quantity::new(
        ".cheap.plain_mbps",
        "Mbit/s",
        &[("plain Mbit/s: cheap", Shown::Median)],
    )
    .meaning("acknowledged"),
    Quantity::new(".dear.plain_mbps", "Mbit/s", &[("dear", Shown::Median)]).meaning("acknowledged"),
    Quantity::new(".cheap.rtt_us", "us", &[("RTT us: cheap", Shown::Median)]).meaning(RTT),
    Quantity::new(".dear.rtt_us", "us", &[("dear", Shown::Median)]).meaning(RTT),
    Quantity::new(".lost_percent", "%", &[("lost %", Shown::Median)])
        .meaning("of the frames for the NFs"),
    Quantity::new(".cpu_percent", "%", &[]).meaning("of the core, both NFs"),
];
const OF_BOTH: &str = "of the CPU time of both NFs";
const RTT: &str = "of the plain flow, at the end";

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let hosts = Hosts::new()?;
    let platform = platform::start()?;
    let (rounds, settle, measured) = report.effort((5, 3, 8), (1, 2, 2));
    let [settle, measured] = [settle, measured].map(Duration::from_secs);
    let mut sweep = Sweep::plain(&["cost", "signals"], QUANTITIES);
    sweep.run(report, rounds, &mut sides(report), |setting, _| {
        measure(*setting, &platform, &hosts, settle, measured)
    })?;
    sweep.print("A connection of two subflows beside a plain flow on either NF");
    sweep.report_all(report);
    Ok(())
}

fn sides(report: &Report) -> Vec<Side<Setting>> {
    let ratios = report.choose(vec![1, 4], vec![4]);
    let signals = report.choose(
        super::SIGNALS.to_vec(),
        vec![Signals::Off, Signals::SelfTuning],
    );
    let all = ratios.into_iter().flat_map(|ratio| {
        signals.iter().map(move |signals| {
            let setting = Setting {
                ratio,
                control: CONTROL,
                ecn: true,
                signals: *signals,
            };
            let conditions = format!(
                "costs 1:{ratio}, each subflow {CONTROL} by itself (Linux does not couple them), the default \
                 scheduler, {}; NFs on core {OF_NFS}, TCP's ends on core {OF_ENDS}",
                setting.words()
            );
            let key = [format!("1:{ratio}"), signals.id().to_owned()];
            let id = format!("red4.mptcp.{ratio}.{}", signals.id());
            Side::new(key, id, setting).under(&conditions)
        })
    });
    all.collect()
}

impl Hosts {
    fn new() -> anyhow::Result<Self> {
        let hosts = Hosts {
            outside: Namespace::new()?,
            client: Namespace::new()?,
            server: Namespace::new()?,
        };
        for (_, flow) in FLOWS {
            for (host, side, last) in [(&hosts.client, "left", 1), (&hosts.server, "right", 2)] {
                let interface = format!("eth{flow}");
                let (inner, outer) = ((host, &*interface), format!("{side}{flow}"));
                let address = format!("10.0.{flow}.{last}/24");
                join(inner, (&hosts.outside, &outer), &address)?;
            }
        }
        hosts.allow_subflows()?;
        set_ecn(&hosts.client, true)?;
        set_ecn(&hosts.server, true)?;
        Ok(hosts)
    }

    /// Makes the server announce its second address, to which the client then opens a subflow.
    fn allow_subflows(&self) -> anyhow::Result<()> {
        let cannot = |why: String| CannotRun(format!("this kernel has no MPTCP: {why}"));
        multipath_socket().map_err(|error| cannot(error.to_string()))?;
        // A lost announcement is sent again after a second, not after two minutes. A lost first packet does not make
        // the kernel give up MPTCP for an hour.
        let on = "sysctl -qw net.mptcp.enabled=1 net.mptcp.add_addr_timeout=1";
        let keep =
            "sysctl -eqw net.mptcp.blackhole_timeout=0 net.mptcp.syn_retrans_before_tcp_fallback=6";
        let limits = "mptcp limits set subflow 1 add_addr_accepted 1";
        for host in [&self.client, &self.server] {
            host.run(on)
                .and_then(|_| host.run(keep))
                .and_then(|_| host.ip(limits))
                .map_err(|error| cannot(format!("{error:#}")))?;
        }
        let endpoint = "mptcp endpoint add 10.0.2.2 dev eth2 signal";
        self.server
            .ip(endpoint)
            .map_err(|error| cannot(format!("{error:#}")))?;
        Ok(())
    }

    /// Starts a sender to one of the server's addresses.
    fn source(&self, flow: u8, multipath: bool) -> anyhow::Result<Peer> {
        let task = Task::TcpSource {
            to: SocketAddrV4::new(Ipv4Addr::new(10, 0, flow, 2), PORT),
            multipath,
            control: CONTROL.to_owned(),
        };
        let core = OF_ENDS as usize;
        Peer::start_within(&self.client, &Role { core, task })
    }

    /// Waits for both subflows and both plain connections.
    fn await_connections(&self) -> anyhow::Result<()> {
        let mut found = [0; 2];
        for _ in 0..TRIES {
            interrupt::check()?;
            let all = connections(&self.client, PORT)?;
            let of = |is_subflow| all.iter().filter(move |one| one.is_subflow == is_subflow);
            found = [true, false].map(|is_subflow| of(is_subflow).count());
            if found == [FLOWS.len(); 2] {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        let [subflows, plain] = found;
        anyhow::bail!(
            "there are {subflows} of 2 subflows and {plain} of 2 plain connections; 'ip mptcp monitor' tells more"
        )
    }
}

/// Returns the connection, plain or a subflow, that leads to the server by the address of `flow`.
fn find(all: &[Connection], flow: u8, is_subflow: bool) -> anyhow::Result<&Connection> {
    let to = format!("10.0.{flow}.2");
    let mut found = all
        .iter()
        .filter(|one| one.is_subflow == is_subflow && one.to == to);
    let one = found.next();
    one.with_context(|| format!("a connection to {to} has ended (subflow: {is_subflow})"))
}

fn measure(
    setting: Setting,
    platform: &Platform,
    hosts: &Hosts,
    settle: Duration,
    measured: Duration,
) -> anyhow::Result<[f64; 11]> {
    platform.apply(&setting.deployment(hosts.outside.name()))?;
    for (_, flow) in FLOWS {
        reach(&hosts.client, &format!("10.0.{flow}.2"))?;
    }
    let core = OF_ENDS as usize;
    let task = Task::TcpSink { port: PORT };
    let mut server = Peer::start_within(&hosts.server, &Role { core, task })?;
    let mut sources = vec![hosts.source(FLOWS[0].1, true)?];
    for (_, flow) in FLOWS {
        sources.push(hosts.source(flow, false)?);
    }
    hosts.await_connections()?;
    std::thread::sleep(settle);
    let look = || -> anyhow::Result<(Vec<Connection>, Moment)> {
        Ok((
            connections(&hosts.client, PORT)?,
            Moment::now(platform, &NFS)?,
        ))
    };
    let before = look()?;
    std::thread::sleep(measured);
    let after = look()?;
    for source in &mut sources {
        source.kill();
    }
    server.kill();
    values(&before.0, &after.0, &after.1.since(&before.1))
}

fn values(
    before: &[Connection],
    after: &[Connection],
    found: &Moment,
) -> anyhow::Result<[f64; 11]> {
    let cpu = [0, 1].map(|at| found.cpu_percent(at));
    let both: f64 = cpu.iter().sum();
    anyhow::ensure!(both > 0.0, "no NF was at work");
    let mut multipath = 0.0;
    let [mut plain, mut subflow_mbps, mut plain_mbps, mut rtt_us] = [[0.0; 2]; 4];
    for (at, (_, flow)) in FLOWS.into_iter().enumerate() {
        let acked = |is_subflow| -> anyhow::Result<f64> {
            let now = find(after, flow, is_subflow)?.acked;
            let then = find(before, flow, is_subflow)?.acked;
            Ok(now.saturating_sub(then) as f64)
        };
        let (by_subflow, by_plain) = (acked(true)?, acked(false)?);
        // All packets of an NF cost the same, and nearly all are full.
        let part = by_subflow / (by_subflow + by_plain).max(1.0);
        multipath += cpu[at] * part;
        plain[at] = cpu[at] * (1.0 - part) / both * 100.0;
        let mbps = |bytes: f64| bytes * 8e3 / found.time_ns as f64;
        subflow_mbps[at] = mbps(by_subflow);
        plain_mbps[at] = mbps(by_plain);
        rtt_us[at] = find(after, flow, false)?.rtt_us;
    }
    let offered: u64 = found.of.iter().map(|one| one.offered()).sum();
    let lost: u64 = found.of.iter().map(|one| one.lost()).sum();
    Ok([
        multipath / both * 100.0,
        plain[0],
        plain[1],
        subflow_mbps[0],
        subflow_mbps[1],
        plain_mbps[0],
        plain_mbps[1],
        rtt_us[0],
        rtt_us[1],
        lost as f64 / offered.max(1) as f64 * 100.0,
        both,
    ])
}
