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
use crate::report::{Report, significant, table};
use crate::roles::tcp::multipath_socket;
use crate::roles::{Role, Task};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const PORT: u16 = 5301;
const CONTROL: &str = "cubic";
/// Number of checks for the second subflow, and the time in between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Two hosts with two paths between them.
struct Hosts {
    outside: Namespace,
    client: Namespace,
    server: Namespace,
}

/// A setting and its results.
struct Variant {
    setting: Setting,
    /// CPU time of the NFs for the multipath connection, in percent of that of both NFs.
    multipath: Samples,
    /// CPU time for the plain flows, by NF.
    plain: [Samples; 2],
    /// Mbit/s of the subflows and of the plain flows, by NF.
    subflow_mbps: [Samples; 2],
    plain_mbps: [Samples; 2],
    rtt_us: [Samples; 2],
    lost: Samples,
    used: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let hosts = Hosts::new()?;
    let platform = platform::start()?;
    let (rounds, settle, measured) = report.effort((5, 3, 8), (1, 2, 2));
    let [settle, measured] = [settle, measured].map(Duration::from_secs);
    let mut variants: Vec<Variant> = settings(report).into_iter().map(Variant::new).collect();
    for _ in 0..rounds {
        for variant in &mut variants {
            interrupt::check()?;
            variant.measure(&platform, &hosts, settle, measured)?;
        }
    }
    let rows: Vec<_> = variants.iter().map(Variant::row).collect();
    let title = "A connection of two subflows beside a plain flow on either NF (two values: cheap and dear NF)";
    table(title, &HEADER, &rows);
    variants.iter().for_each(|variant| variant.figures(report));
    Ok(())
}

const HEADER: [&str; 8] = [
    "cost",
    "signals",
    "multipath CPU %",
    "plain CPU %",
    "subflows Mbit/s",
    "plain Mbit/s",
    "RTT us",
    "lost %",
];

fn settings(report: &Report) -> Vec<Setting> {
    let ratios = report.choose(vec![1, 4], vec![4]);
    let signals = report.choose(
        super::SIGNALS.to_vec(),
        vec![Signals::Off, Signals::SelfTuning],
    );
    let all = ratios.into_iter().flat_map(|ratio| {
        signals.iter().map(move |signals| Setting {
            ratio,
            control: CONTROL,
            ecn: true,
            signals: *signals,
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
        let on = "sysctl -qw net.mptcp.enabled=1";
        let limits = "mptcp limits set subflow 1 add_addr_accepted 1";
        for host in [&self.client, &self.server] {
            host.run(on)
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

    /// Waits for the second subflow.
    fn await_subflows(&self) -> anyhow::Result<()> {
        for _ in 0..TRIES {
            interrupt::check()?;
            let all = connections(&self.client, PORT)?;
            if all.iter().filter(|one| one.is_subflow).count() == FLOWS.len() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        anyhow::bail!("the connection has no second subflow; 'ip mptcp monitor' tells why")
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

impl Variant {
    fn new(setting: Setting) -> Self {
        Variant {
            setting,
            multipath: Samples::default(),
            plain: Default::default(),
            subflow_mbps: Default::default(),
            plain_mbps: Default::default(),
            rtt_us: Default::default(),
            lost: Samples::default(),
            used: Samples::default(),
        }
    }

    fn measure(
        &mut self,
        platform: &Platform,
        hosts: &Hosts,
        settle: Duration,
        measured: Duration,
    ) -> anyhow::Result<()> {
        platform.apply(&self.setting.deployment(hosts.outside.name()))?;
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
        hosts.await_subflows()?;
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
        self.push(&before.0, &after.0, &after.1.since(&before.1))
    }

    fn push(
        &mut self,
        before: &[Connection],
        after: &[Connection],
        found: &Moment,
    ) -> anyhow::Result<()> {
        let cpu = [0, 1].map(|at| found.cpu_percent(at));
        let both: f64 = cpu.iter().sum();
        anyhow::ensure!(both > 0.0, "no NF was at work");
        let mut multipath = 0.0;
        for (at, (_, flow)) in FLOWS.into_iter().enumerate() {
            let acked = |is_subflow| -> anyhow::Result<f64> {
                let now = find(after, flow, is_subflow)?.acked;
                let then = find(before, flow, is_subflow)?.acked;
                Ok(now.saturating_sub(then) as f64)
            };
            let (subflow, plain) = (acked(true)?, acked(false)?);
            // All packets of an NF cost the same, and nearly all are full.
            let part = subflow / (subflow + plain).max(1.0);
            multipath += cpu[at] * part;
            self.plain[at].push(cpu[at] * (1.0 - part) / both * 100.0);
            let mbps = |bytes: f64| bytes * 8e3 / found.time_ns as f64;
            self.subflow_mbps[at].push(mbps(subflow));
            self.plain_mbps[at].push(mbps(plain));
            self.rtt_us[at].push(find(after, flow, false)?.rtt_us);
        }
        self.multipath.push(multipath / both * 100.0);
        self.used.push(both);
        let offered: u64 = found.of.iter().map(|one| one.offered()).sum();
        let lost: u64 = found.of.iter().map(|one| one.lost()).sum();
        self.lost.push(lost as f64 / offered.max(1) as f64 * 100.0);
        Ok(())
    }

    fn row(&self) -> Vec<String> {
        let both = |of: &[Samples; 2]| {
            let [cheap, dear] = of.each_ref().map(Samples::median).map(significant);
            format!("{cheap} {dear}")
        };
        vec![
            format!("1:{}", self.setting.ratio),
            self.setting.signals.id().to_owned(),
            significant(self.multipath.median()),
            both(&self.plain),
            both(&self.subflow_mbps),
            both(&self.plain_mbps),
            both(&self.rtt_us),
            significant(self.lost.median()),
        ]
    }

    fn figures(&self, report: &mut Report) {
        let Setting { ratio, signals, .. } = self.setting;
        let conditions = format!(
            "costs 1:{ratio}, each subflow {CONTROL} by itself (Linux does not couple them), the default scheduler, {}; NFs on \
             core {OF_NFS}, TCP's ends on core {OF_ENDS}",
            self.setting.words()
        );
        let mut figure = |id: &str, samples: &Samples, unit, what: &str| {
            let id = format!("red4.mptcp.{ratio}.{}.{id}", signals.id());
            report.figure(id, samples, unit, &format!("{what}; {conditions}"));
        };
        let of_both = "of the CPU time of both NFs";
        figure("multipath_percent", &self.multipath, "%", of_both);
        figure("lost_percent", &self.lost, "%", "of the frames for the NFs");
        figure("cpu_percent", &self.used, "%", "of the core, both NFs");
        for (at, nf) in NFS.iter().enumerate() {
            let mut one = |id: &str, samples: &[Samples; 2], unit, what: &str| {
                figure(&format!("{nf}.{id}"), &samples[at], unit, what);
            };
            one("plain_percent", &self.plain, "%", of_both);
            one("subflow_mbps", &self.subflow_mbps, "Mbit/s", "acknowledged");
            one("plain_mbps", &self.plain_mbps, "Mbit/s", "acknowledged");
            one(
                "rtt_us",
                &self.rtt_us,
                "us",
                "of the plain flow, at the end",
            );
        }
    }
}
