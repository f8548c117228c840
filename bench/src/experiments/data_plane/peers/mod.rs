//! Alternatives to nfluid for carrying frames from one end to another: Linux's bridge, its routing with nftables, XDP,
//! DPDK's forwarder and Open vSwitch, measured alternately on the same two cores.
//!
//! A peer may have several set-ups; all are measured, and the fastest is the figure.

pub mod chains;
mod dpdk;
mod kernel;
mod nfluid;
mod ovs;
mod polling;
mod resources;
mod veth;
mod way;

use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use anyhow::Context;
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt;
use resources::Resources;
use std::time::Duration;
use way::{Contender, Measured, Way};

const SIZES: [usize; 2] = [64, 1514];

/// Starts a set-up.
type Start = fn(&mut Resources) -> anyhow::Result<Box<dyn Way>>;

/// Name in figures, set-ups in a full run, and the number of set-ups (the first ones) in a quick run.
const PEERS: &[(&str, &[Start], usize)] = &[
    ("nfluid_link", &[nfluid::link], 1),
    ("nfluid_bridge", &[nfluid::bridge], 1),
    (
        "linux_bridge",
        &[kernel::bridge_one_core, kernel::bridge_two_cores],
        1,
    ),
    (
        "linux_nftables",
        &[kernel::nftables_one_core, kernel::nftables_two_cores],
        1,
    ),
    (
        "xdp_redirect",
        &[kernel::xdp_one_core, kernel::xdp_two_cores],
        1,
    ),
    (
        "testpmd_memif",
        &[dpdk::memif_zero_copy, dpdk::memif_copy],
        1,
    ),
    // Starting them takes longer than a quick run may.
    ("testpmd_vhost", &[dpdk::virtio_user, dpdk::vhost], 0),
    ("ovs_dpdk", &[ovs::vhost], 1),
    ("ovs_af_xdp", &[ovs::af_xdp], 0),
    ("ovs_af_packet", &[ovs::af_packet], 0),
];
/// Number of processes for which huge pages are reserved.
const DPDK_PROCESSES: usize = 8;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut resources = Resources::new("peers", &SIZES, DPDK_PROCESSES)?;
    let mut contenders = start_all(report, &mut resources)?;
    let (rounds, seconds) = report.effort((11, 0.5), (1, 0.1));
    // The first round warms up.
    round(report, &mut contenders, &SIZES, seconds / 2.0, false)?;
    for _ in 0..rounds {
        round(report, &mut contenders, &SIZES, seconds, true)?;
    }
    idle(report, &mut contenders)?;
    print_all(&contenders);
    for (peer, _, _) in PEERS {
        for len in SIZES {
            figures(report, peer, len, &contenders);
        }
        idle_figure(report, peer, &contenders);
    }
    Ok(())
}

/// Measures each set-up once. Rounds follow each other, so that the state of the machine affects all set-ups alike.
fn round(
    report: &mut Report,
    contenders: &mut [Contender],
    sizes: &[usize],
    seconds: f64,
    counts: bool,
) -> anyhow::Result<()> {
    for contender in contenders {
        for &len in sizes {
            interrupt::check()?;
            report.settle();
            let outcome = contender.way.round(len, seconds);
            let outcome = outcome
                .with_context(|| format!("{}, {}", contender.peer, contender.way.conditions()))?;
            if counts {
                contender.add(len, &outcome);
            }
        }
    }
    Ok(())
}

/// Starts the set-ups that this host can run.
///
/// # Errors
/// [`CannotRun`] when only nfluid's own set-ups can run.
fn start_all(report: &Report, resources: &mut Resources) -> anyhow::Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    let mut others = 0;
    for (peer, ways, quick) in PEERS {
        for start in &ways[..report.choose(ways.len(), *quick)] {
            interrupt::check()?;
            match start(resources) {
                Ok(way) => {
                    others += usize::from(!peer.starts_with("nfluid"));
                    contenders.push(Contender::new(peer, way, &SIZES));
                }
                Err(error) => println!("{peer} left out: {error:#}"),
            }
        }
    }
    if others == 0 {
        let why = "no peer could be started, see above".to_owned();
        return Err(CannotRun(why).into());
    }
    Ok(contenders)
}

/// Measures CPU time without traffic: sleeping set-ups all at once, polling set-ups one by one.
fn idle(report: &Report, contenders: &mut [Contender]) -> anyhow::Result<()> {
    let (rounds, seconds) = report.effort((3, 1.0), (1, 0.3));
    let (mut polling, mut sleeping): (Vec<_>, Vec<_>) = contenders
        .iter_mut()
        .partition(|contender| contender.way.polls());
    for _ in 0..rounds {
        watch_idle(&mut sleeping, seconds)?;
        for contender in &mut polling {
            watch_idle(std::slice::from_mut(contender), seconds)?;
        }
    }
    Ok(())
}

fn watch_idle(contenders: &mut [&mut Contender], seconds: f64) -> anyhow::Result<()> {
    interrupt::check()?;
    for contender in contenders.iter_mut() {
        contender.way.idle_begin(seconds)?;
    }
    std::thread::sleep(Duration::from_secs_f64(seconds));
    for contender in contenders.iter_mut() {
        let used = contender.way.idle_end()?;
        contender.idle_percent.push(used / seconds * 100.0);
    }
    Ok(())
}

fn print_all(contenders: &[Contender]) {
    let header = [
        "peer",
        "size",
        "Mpps",
        "spread",
        "M per CPU-second",
        "traffic's too",
        "cores: forwarding",
        "traffic",
        "idle CPU %",
        "how",
    ];
    let mut rows = Vec::new();
    for contender in contenders {
        for measured in &contender.measured {
            rows.push(vec![
                contender.peer.to_owned(),
                measured.len.to_string(),
                significant(measured.mpps.median()),
                format!("{:.0} %", measured.mpps.spread_percent()),
                significant(measured.per_cpu_second.median() / 1e6),
                significant(measured.per_cpu_second_all.median() / 1e6),
                format!("{:.2}", measured.forwarding_cores.median()),
                format!("{:.2}", measured.traffic_cores.median()),
                significant(contender.idle_percent.median()),
                contender.way.conditions(),
            ]);
        }
    }
    table(
        "From one end to the other, on the same two cores",
        &header,
        &rows,
    );
}

/// Returns the fastest set-up of a peer for frames of this length.
fn fastest<'a>(
    contenders: &'a [Contender],
    peer: &str,
    len: usize,
) -> Option<(&'a Contender, &'a Measured)> {
    contenders
        .iter()
        .filter(|contender| contender.peer == peer)
        .filter_map(|contender| Some((contender, contender.of(len)?)))
        .max_by(|a, b| a.1.mpps.median().total_cmp(&b.1.mpps.median()))
}

fn figures(report: &mut Report, peer: &str, len: usize, contenders: &[Contender]) {
    let Some((contender, measured)) = fastest(contenders, peer, len) else {
        return;
    };
    let conditions = format!(
        "{}; cores: forwarding {:.2}, traffic {:.2}",
        contender.way.conditions(),
        measured.forwarding_cores.median(),
        measured.traffic_cores.median(),
    );
    let id = |what: &str| format!("peers.{peer}.{len}.{what}");
    report.figure(id("mpps"), &measured.mpps, "Mpps", &conditions);
    let per_cpu = &measured.per_cpu_second;
    if !per_cpu.values().is_empty() {
        report.figure(id("per_cpu_second"), per_cpu, "frames/s", &conditions);
    }
    let all = &measured.per_cpu_second_all;
    if !all.values().is_empty() {
        let conditions = format!("CPU time of every thread, the traffic's too; {conditions}");
        report.figure(id("per_cpu_second_all"), all, "frames/s", &conditions);
    }
}

fn idle_figure(report: &mut Report, peer: &str, contenders: &[Contender]) {
    if let Some((contender, _)) = fastest(contenders, peer, SIZES[0]) {
        let conditions = format!("percent of a core; {}", contender.way.conditions());
        let id = format!("peers.{peer}.idle_cpu_percent");
        report.figure(id, &contender.idle_percent, "%", &conditions);
    }
}
