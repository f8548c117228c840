//! Four streams of iperf3 beside small datagrams, through nfluid and the kernel in turn: throughput, CPU time of
//! everything, retransmissions, and round trips of the datagrams.

use crate::experiments::data_plane::tcp_paths::{
    Ends, KernelPath, NfluidPath, Offloads, Queues, Uplinks, iperf,
};
use crate::host::cpu::{ANY_CORE, softirq_seconds_uncharged};
use crate::peer::Peer;
use crate::report::Report;
use crate::roles::{Role, Task};
use crate::sweep::{Quantity, Row, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_ring::clock::monotonic_ns;
use nfluid_testbed::process::Background;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const STREAMS: u32 = 4;
/// The port of the datagrams, which the demo's firewall lets pass.
const ECHO_PORT: u16 = 53;
/// Part of a round before the first datagram that counts.
const BEFORE: f64 = 0.15;
/// Part of a round in which datagrams count.
const MEASURED: f64 = 0.75;

const QUANTITIES: [Quantity; 6] = [
    Quantity::new(
        ".gbps",
        "Gbit/s",
        &[("Gbit/s", Shown::Median), ("spread", Shown::Spread)],
    ),
    Quantity::new(
        ".cpu_s_per_gbit",
        "s/Gbit",
        &[("CPU s/Gbit", Shown::Median), ("spread", Shown::Spread)],
    )
    .meaning("CPU time of both ends of iperf3, all processes of the platform, and ksoftirqd"),
    Quantity::new(
        ".retransmits_per_gb",
        "segments/GB",
        &[("retransmits/GB", Shown::Median)],
    ),
    Quantity::new(".median_us", "us", &[("round trip, us", Shown::Median)])
        .meaning("round trip of a UDP datagram of 64 bytes, one every 2 ms"),
    Quantity::new(
        ".p99_us",
        "us",
        &[("p99, us", Shown::Median), ("spread", Shown::Spread)],
    )
    .meaning("99th percentile of the round trips of a run"),
    Quantity::shown(&[("datagrams lost", Shown::Sum)]),
];
// Places of quantities in [`QUANTITIES`].
const CPU: usize = 1;
const P99: usize = 4;

/// The way of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Nfluid,
    Tap,
    Kernel(Queues),
}

/// A path of the comparison.
struct Variant {
    id: &'static str,
    path: Path,
    what: &'static str,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        id: "super",
        path: Path::Nfluid,
        what: "nfluid, as in the demo, default settings",
    },
    Variant {
        id: "super.tap",
        path: Path::Tap,
        what: "nfluid, the same chain, taps at both ends",
    },
    Variant {
        id: KERNEL,
        path: Path::Kernel(Queues::AsTheyCome),
        what: "veth with its default offloads, routing, nftables with 10 rules, masquerading",
    },
    Variant {
        id: KERNEL_FQ_CODEL,
        path: Path::Kernel(Queues::FqCodel),
        what: "the same, fq_codel on all interfaces",
    },
];
const KERNEL: &str = "super.kernel";
const KERNEL_FQ_CODEL: &str = "super.kernel_fq_codel";

/// The paths, and the processes at their ends, which end first.
struct Setup {
    /// Senders of datagrams: through nfluid, its taps, and the kernel.
    probes: [Peer; 3],
    _echo: Peer,
    _server: Background,
    nfluid: NfluidPath,
    tap: NfluidPath,
    kernel: KernelPath,
    ends: Ends,
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        let ends = Ends::new()?;
        let nfluid = NfluidPath::new(&ends, Uplinks::Veth)?;
        let tap = NfluidPath::new(&ends, Uplinks::Tap)?;
        let kernel = KernelPath::new(&ends)?;
        kernel.set(&ends, Offloads::AsTheyCome)?;
        let servers = [nfluid.server(), tap.server(), kernel.server()];
        servers.iter().try_for_each(|server| ends.reach(server))?;
        let echo = Task::UdpEcho { port: ECHO_PORT };
        let echo = Peer::start_within(&ends.server, &anywhere(echo))?;
        let probe = |server: &String| {
            let address: Ipv4Addr = server.parse().context("the server's address")?;
            let to = SocketAddrV4::new(address, ECHO_PORT);
            Peer::start_within(&ends.client, &anywhere(Task::UdpProbe { to }))
        };
        let [nfluid_server, tap_server, kernel_server] = &servers;
        Ok(Setup {
            probes: [
                probe(nfluid_server)?,
                probe(tap_server)?,
                probe(kernel_server)?,
            ],
            _echo: echo,
            _server: iperf::serve(&ends.server)?,
            nfluid,
            tap,
            kernel,
            ends,
        })
    }

    /// Returns the reason why the kernel's path cannot have fq_codel, if there is one.
    fn lacks_fq_codel(&self) -> Option<anyhow::Error> {
        self.kernel.queue(&self.ends, Queues::FqCodel).err()
    }

    fn measure(&mut self, path: Path, seconds: u32) -> anyhow::Result<[f64; 6]> {
        let ends = &self.ends;
        let (nfluid, probe) = match path {
            Path::Nfluid => (Some(&mut self.nfluid), &mut self.probes[0]),
            Path::Tap => (Some(&mut self.tap), &mut self.probes[1]),
            Path::Kernel(queues) => {
                self.kernel.queue(ends, queues)?;
                (None, &mut self.probes[2])
            }
        };
        let (server, nfluid) = match nfluid {
            Some(nfluid) => {
                nfluid.set(ends, Offloads::AsTheyCome)?;
                nfluid.require_super()?;
                (nfluid.server(), Some(&*nfluid))
            }
            None => (self.kernel.server(), None),
        };
        let cpu = cpu_seconds(nfluid)?;
        let span = f64::from(seconds);
        let from = Duration::from_secs_f64(BEFORE * span).as_nanos() as u64;
        probe.start_span(MEASURED * span, monotonic_ns() + from, Duration::ZERO)?;
        let run = iperf::send(&ends.client, &server, STREAMS, seconds)?;
        let cpu = cpu_seconds(nfluid)? - cpu + run.cpu_seconds;
        let trips = probe.outcome()?;
        Ok([
            run.gbps(),
            cpu / run.gbits,
            run.retransmits_per_gb(),
            trips.median_us,
            trips.p99_us,
            trips.lost as f64,
        ])
    }
}

fn anywhere(task: Task) -> Role {
    Role {
        core: ANY_CORE,
        task,
    }
}

/// CPU time of all that forwards, but what is charged to the ends.
fn cpu_seconds(nfluid: Option<&NfluidPath>) -> anyhow::Result<f64> {
    let platform = nfluid.map_or(Ok(0.0), NfluidPath::cpu_seconds)?;
    Ok(platform + softirq_seconds_uncharged()?)
}

/// Measures, prints the table and reports the figures.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut setup = Setup::new()?;
    let mut variants: Vec<_> = VARIANTS.iter().collect();
    if let Some(error) = setup.lacks_fq_codel() {
        println!("\n{KERNEL_FQ_CODEL} left out: {error:#}");
        variants.retain(|variant| variant.path != Path::Kernel(Queues::FqCodel));
    }
    let (rounds, seconds) = report.effort((5, 5), (1, 1));
    let side = |variant: &Variant| {
        let conditions = format!("{STREAMS} streams, {seconds} s a round; {}", variant.what);
        Side::new([variant.id.to_owned()], variant.id, variant.path).under(&conditions)
    };
    let mut sides: Vec<_> = variants.iter().map(|variant| side(variant)).collect();
    let mut sweep = Sweep::plain(&["figures"], QUANTITIES);
    sweep.notes = &["path"];
    sweep.run(report, rounds, &mut sides, |path, _| {
        setup.measure(*path, seconds)
    })?;
    for (row, variant) in sweep.rows_mut().iter_mut().zip(&variants) {
        row.notes.push(variant.what.to_owned());
    }
    sweep.print(
        "TCP between two namespaces, four streams of iperf3 and a datagram every 2 ms; the uplinks' frames: super",
    );
    sweep.report_all(report);
    compare(report, sweep.rows());
    Ok(())
}

/// Reports the ratios of nfluid and the kernel.
fn compare(report: &mut Report, rows: &[Row<6>]) {
    let row = |id: &str| rows.iter().find(|row| row.id == id);
    let kernel = row(KERNEL);
    let queued = row(KERNEL_FQ_CODEL).or(kernel);
    for (id, quantity, other) in [
        ("super.cpu_s_per_gbit.vs_kernel", CPU, kernel),
        ("super.p99_us.vs_kernel", P99, queued),
    ] {
        let (Some(nfluid), Some(other)) = (rows.first(), other) else {
            continue;
        };
        let ratio = nfluid.samples[quantity].ratios(&other.samples[quantity]);
        let conditions = format!(
            "nfluid / kernel, round by round; kernel: {}",
            other.conditions
        );
        report.figure(id, &ratio, "x", &conditions);
    }
}
