//! Chains of peers, of one hop and more: the alternatives of a user.
//!
//! A polling hop needs a core, and this machine has two: several hops then share a core and poll alternately, one time
//! slice each. The measurement includes that effect.

mod polling;

use super::kernel::{self, Forwarder, Placement};
use super::resources::Resources;
use super::way::{Contender, Way};
use super::{fastest, round};
use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt;

/// Length of the frames, as in H11.
const LEN: usize = 256;
/// Processes for which OVS needs huge pages in addition to the hops.
const DPDK_PROCESSES_BESIDE_HOPS: usize = 4;

/// Starts a chain of this many hops.
type Start = fn(&mut Resources, usize) -> anyhow::Result<Box<dyn Way>>;

/// Name in figures, set-ups in a full run, and the number of set-ups (the first ones) in a quick run.
const PEERS: &[(&str, &[Start], usize)] = &[
    ("linux_bridge", &[bridges, bridges_on_two_cores], 1),
    ("linux_nftables", &[routers, routers_on_two_cores], 1),
    ("xdp_redirect", &[redirects, redirects_on_two_cores], 1),
    ("testpmd_memif", &[polling::memif, polling::memif_halves], 1),
    // Starting a polling switch on a core of polling hops takes longer than a quick run may.
    (
        "ovs_dpdk",
        &[
            polling::ovs_hops_beside_traffic,
            polling::ovs_hops_beside_switch,
        ],
        0,
    ),
];

/// Chains of one length, of all peers that this host has.
pub struct PeerChains {
    hops: usize,
    /// The set-ups; they end before the resources that they use.
    variants: Vec<Contender>,
    _resources: Resources,
}

/// Result of the fastest set-up of a peer.
pub struct Best {
    pub peer: &'static str,
    pub mpps: Samples,
    /// Million frames per second of CPU time of all threads, including the traffic's.
    pub per_cpu: Samples,
    /// Mean end-to-end times of a single frame, in microseconds; empty for XDP redirects, whose frames reach no socket.
    pub alone_us: Samples,
    conditions: String,
}

impl PeerChains {
    /// Starts the chains; in a quick run, one set-up of each peer that starts quickly. Polling processes are stopped
    /// until they are measured.
    ///
    /// # Errors
    /// [`CannotRun`] when this host has none of the peers.
    pub fn start(report: &Report, hops: usize) -> anyhow::Result<Self> {
        let mut resources = Resources::new("h11peers", &[LEN], processes(hops))?;
        let mut variants = Vec::new();
        for (peer, ways, quick) in PEERS {
            for start in &ways[..report.choose(ways.len(), *quick)] {
                interrupt::check()?;
                match start(&mut resources, hops) {
                    Ok(way) => variants.push(Contender::new(peer, way, &[LEN])),
                    Err(error) => println!("{peer}, {hops} hops, left out: {error:#}"),
                }
            }
        }
        if variants.is_empty() {
            let why = "no peer could be started, see above".to_owned();
            return Err(CannotRun(why).into());
        }
        Ok(PeerChains {
            hops,
            variants,
            _resources: resources,
        })
    }

    /// Measures each chain once, for `seconds`.
    ///
    /// # Errors
    /// When a process has ended.
    pub fn round(&mut self, report: &mut Report, seconds: f64, counts: bool) -> anyhow::Result<()> {
        round(report, &mut self.variants, &[LEN], seconds, counts)?;
        for variant in &mut self.variants {
            interrupt::check()?;
            if counts && let Some(us) = variant.way.alone_us(LEN, seconds)? {
                variant.alone_us.push(us);
            }
        }
        Ok(())
    }

    /// Returns the fastest set-up of each peer.
    pub fn best(&self) -> Vec<Best> {
        let best = |(peer, _, _): &(&'static str, _, _)| {
            let (variant, measured) = fastest(&self.variants, peer, LEN)?;
            Some(Best {
                peer,
                mpps: measured.mpps.clone(),
                per_cpu: in_millions(&measured.per_cpu_second_all),
                alone_us: self.shortest(peer),
                conditions: variant.way.conditions(),
            })
        };
        PEERS.iter().filter_map(best).collect()
    }

    /// Returns the single-frame times of a peer's set-up that is the fastest for a single frame.
    fn shortest(&self, peer: &str) -> Samples {
        let ways = self.variants.iter().filter(|variant| variant.peer == peer);
        let measured = ways.filter(|variant| !variant.alone_us.values().is_empty());
        measured
            .min_by(|a, b| a.alone_us.median().total_cmp(&b.alone_us.median()))
            .map(|variant| variant.alone_us.clone())
            .unwrap_or_default()
    }

    /// Reports figures: `h11.HOPS.PEER.mpps`, `.mpps_per_cpu` and, where known, `.once_us`: one way, while H11's round
    /// trip is both ways.
    pub fn figures(&self, report: &mut Report) {
        for best in self.best() {
            let id = |what: &str| format!("h11.{}.{}.{what}", self.hops, best.peer);
            report.figure(id("mpps"), &best.mpps, "Mpps", &best.conditions);
            let conditions = format!(
                "CPU time of every thread, the traffic's too; {}",
                best.conditions
            );
            report.figure(id("mpps_per_cpu"), &best.per_cpu, "Mpps", &conditions);
            if !best.alone_us.values().is_empty() {
                let conditions = "one frame at a time, from one process back to it, once through the chain, mean of a run; the \
                                  faster way of the peer";
                report.figure(id("once_us"), &best.alone_us, "us", conditions);
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let row = |variant| row(self.hops, variant);
        self.variants.iter().filter_map(row)
    }
}

/// Runs the experiment: chains of 1 to 10 hops of each peer.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    // Starting a polling process on a core of polling processes is most of a quick run.
    let counts = report.choose(vec![1, 2, 5, 10], vec![2]);
    let (rounds, seconds) = report.effort((7, 0.3), (2, 0.1));
    let mut mpps: Vec<Series> = PEERS
        .iter()
        .map(|(peer, _, _)| Series::new(*peer))
        .collect();
    let mut per_cpu = mpps.clone();
    let mut rows = Vec::new();
    for hops in counts {
        let mut chains = PeerChains::start(report, hops)?;
        for round in 0..=rounds {
            // The first round warms up.
            chains.round(report, seconds, round > 0)?;
        }
        for best in chains.best() {
            push(&mut mpps, &best, hops, &best.mpps);
            push(&mut per_cpu, &best, hops, &best.per_cpu);
        }
        chains.figures(report);
        rows.extend(chains.rows());
    }
    plot(report, "h11.peers", "Mpps", mpps);
    let label = "Mpps per CPU-second, traffic included";
    plot(report, "h11.peers_per_cpu", label, per_cpu);
    let header = [
        "hops",
        "peer",
        "Mpps",
        "spread",
        "M per CPU-second, all",
        "cores: forwarding",
        "traffic",
        "once through, us",
        "how",
    ];
    table("Chains of peers", &header, &rows);
    Ok(())
}

fn push(series: &mut [Series], best: &Best, hops: usize, samples: &Samples) {
    if let Some(line) = series.iter_mut().find(|line| line.name == best.peer) {
        line.push(hops as f64, samples);
    }
}

fn plot(report: &mut Report, id: &str, label: &str, series: Vec<Series>) {
    report.plot(Plot {
        id: id.to_owned(),
        title: format!("Chains of peers, {LEN} B, two cores"),
        x: Axis::linear("hops"),
        y: Axis::log(label),
        series,
    });
}

/// Number of DPDK processes at a time.
fn processes(hops: usize) -> usize {
    let ways = PEERS
        .iter()
        .map(|(_, ways, _)| ways.len())
        .max()
        .unwrap_or(0);
    2 * ways * hops + DPDK_PROCESSES_BESIDE_HOPS
}

fn in_millions(samples: &Samples) -> Samples {
    samples.values().iter().map(|value| value / 1e6).collect()
}

fn row(hops: usize, variant: &Contender) -> Option<Vec<String>> {
    let measured = variant.of(LEN)?;
    Some(vec![
        hops.to_string(),
        variant.peer.to_owned(),
        significant(measured.mpps.median()),
        format!("{:.0} %", measured.mpps.spread_percent()),
        significant(measured.per_cpu_second_all.median() / 1e6),
        format!("{:.2}", measured.forwarding_cores.median()),
        format!("{:.2}", measured.traffic_cores.median()),
        match variant.alone_us.values() {
            [] => "-".to_owned(),
            _ => significant(variant.alone_us.median()),
        },
        variant.way.conditions(),
    ])
}

fn bridges(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    kernel::start(resources, Forwarder::Bridge, Placement::OneCore, hops)
}

fn bridges_on_two_cores(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    kernel::start(resources, Forwarder::Bridge, Placement::Halves, hops)
}

fn routers(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    kernel::start(resources, Forwarder::Nftables, Placement::OneCore, hops)
}

fn routers_on_two_cores(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    kernel::start(resources, Forwarder::Nftables, Placement::Halves, hops)
}

fn redirects(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    kernel::start(resources, Forwarder::Xdp, Placement::OneCore, hops)
}

fn redirects_on_two_cores(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    kernel::start(resources, Forwarder::Xdp, Placement::Halves, hops)
}
