//! Chains of peers, of one hop and more: the alternatives of a user.
//!
//! A polling hop needs a core, and this machine has two: several hops then share a core and poll alternately, one time
//! slice each. The measurement includes that effect.

mod polling;

use super::kernel::{self, Forwarder, Placement};
use super::resources::Resources;
use super::way::{Contender, Way};
use super::{MPPS, fastest};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep, line};
use nfluid_figures::plot::{Axis, Plot, Series};
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

/// The quantities of a chain.
const QUANTITIES: [Quantity; 5] = [
    Quantity::MPPS,
    Quantity::new(".mpps_per_cpu", "Mpps", &[("M per CPU-second, all", Shown::Median)])
        .meaning("CPU time of every thread, the traffic's too"),
    Quantity::shown(&[("cores: forwarding", Shown::Median)]),
    Quantity::shown(&[("traffic", Shown::Median)]),
    Quantity::new(".once_us", "us", &[("once through, us", Shown::Median)]).meaning(
        "one frame at a time, from one process back to it, once through the chain, mean of a run; the faster way of \
         the peer",
    ),
];
const PER_CPU: usize = 1;
/// None for XDP redirects, whose frames no socket sees.
const ONCE: usize = 4;

/// Starts chains of so many hops, of all peers that this host has; in a quick run one way of each peer that starts
/// soon. What polls is stopped until it is measured.
///
/// # Errors
/// [`CannotRun`] when this host has none of the peers.
fn start(
    report: &Report,
    resources: &mut Resources,
    hops: usize,
) -> anyhow::Result<Vec<Side<Contender>>> {
    let mut sides = Vec::new();
    for (peer, ways, quick) in PEERS {
        for start in &ways[..report.choose(ways.len(), *quick)] {
            interrupt::check()?;
            match start(resources, hops) {
                Ok(way) => {
                    let key = [hops.to_string(), (*peer).to_owned()];
                    let conditions = way.conditions();
                    let side = Side::new(key, id(hops, peer), Contender { peer, way });
                    sides.push(side.under(&conditions).on(peer, hops as f64));
                }
                Err(error) => println!("{peer}, {hops} hops, left out: {error:#}"),
            }
        }
    }
    if sides.is_empty() {
        let why = "no peer could be started, see above".to_owned();
        return Err(CannotRun(why).into());
    }
    Ok(sides)
}

/// The beginning of the figures' ids of a peer.
fn id(hops: usize, peer: &str) -> String {
    format!("h11.{hops}.{peer}")
}

/// Runs the experiment: chains of 1 to 10 hops of each peer.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    // Starting a polling process on a core of polling processes is most of a quick run.
    let counts = report.choose(vec![1, 2, 5, 10], vec![2]);
    let (rounds, seconds) = report.effort((7, 0.3), (2, 0.1));
    let mut sweep = Sweep::new(&["hops", "peer"], QUANTITIES);
    sweep.notes = &["how"];
    for &hops in &counts {
        // The ways end before the resources that they use.
        let mut resources = Resources::new("h11peers", &[LEN], processes(hops))?;
        let mut sides = start(report, &mut resources, hops)?;
        sweep.run(report, rounds, &mut sides, |contender, counts| {
            let [mpps, _, all, forwarding, traffic] = contender.round(LEN, seconds)?;
            let once = match counts {
                true => contender.way.alone_us(LEN, seconds)?,
                false => None,
            };
            let once = once.unwrap_or(f64::NAN);
            Ok([mpps, all / 1e6, forwarding, traffic, once])
        })?;
    }
    for row in sweep.rows_mut() {
        row.notes.push(row.conditions.clone());
    }
    let peers = || PEERS.iter().map(|(peer, _, _)| *peer);
    let ids = counts
        .iter()
        .flat_map(|hops| peers().map(|peer| id(*hops, peer)));
    let ids: Vec<String> = ids.collect();
    let best: Vec<_> = ids
        .iter()
        .filter_map(|id| fastest(sweep.rows(), id))
        .collect();
    for row in &best {
        sweep.report_some(report, row, &[MPPS, PER_CPU]);
    }
    for id in &ids {
        let ways = sweep.rows().iter().filter(|row| row.id == *id);
        let once = |row: &&Row<5>| row.samples[ONCE].median();
        let known = ways.filter(|row| !row.samples[ONCE].values().is_empty());
        if let Some(row) = known.min_by(|a, b| once(a).total_cmp(&once(b))) {
            sweep.report_some(report, row, &[ONCE]);
        }
    }
    let of = |quantity| {
        let of_peer = |peer: &'static str| best.iter().copied().filter(move |row| row.line == peer);
        peers()
            .map(|peer| line(peer, of_peer(peer), quantity))
            .collect()
    };
    plot(report, "h11.peers", "Mpps", of(MPPS));
    let label = "Mpps per CPU-second, traffic included";
    plot(report, "h11.peers_per_cpu", label, of(PER_CPU));
    sweep.print("Chains of peers");
    Ok(())
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
