//! Alternatives to nfluid for carrying frames from one end to another: Linux's bridge, its routing with nftables, XDP,
//! DPDK's forwarder and Open vSwitch, measured alternately on the same two cores.
//!
//! A peer may have several set-ups; all are measured, and the fastest is the figure.

pub mod chains;
mod dpdk;
pub mod driver;
pub mod guards;
mod kernel;
mod nfluid;
mod ovs;
pub mod ovs_groups;
mod polling;
mod resources;
mod veth;
mod way;

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep};
use nfluid_figures::statistics::{Samples, highest};
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt;
use resources::Resources;
use std::time::Duration;
use way::{Contender, Way};

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

/// The quantities of a way and a length: those of a round, and CPU time without traffic.
const QUANTITIES: [Quantity; 6] = [
    Quantity::MPPS,
    Quantity::new(
        ".per_cpu_second",
        "frames/s",
        &[("per CPU-second", Shown::Whole)],
    ),
    Quantity::new(
        ".per_cpu_second_all",
        "frames/s",
        &[("traffic's too", Shown::Whole)],
    )
    .meaning("CPU time of every thread, the traffic's too"),
    Quantity::shown(&[("cores: forwarding", Shown::Median)]),
    Quantity::shown(&[("traffic", Shown::Median)]),
    Quantity::shown(&[("idle CPU %", Shown::Median)]),
];
const MPPS: usize = 0;
const PER_CPU: usize = 1;
const PER_CPU_ALL: usize = 2;
const FORWARDING: usize = 3;
const TRAFFIC: usize = 4;
const IDLE: usize = 5;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut resources = Resources::new("peers", &SIZES, DPDK_PROCESSES)?;
    let mut contenders = start_all(report, &mut resources)?;
    let (rounds, seconds) = report.effort((11, 0.5), (1, 0.1));
    let mut sides = sides("peers", &contenders);
    let mut sweep = Sweep::new(&["peer", "size"], QUANTITIES);
    sweep.notes = &["how"];
    sweep.run(report, rounds, &mut sides, |(at, len), counts| {
        let seconds = if counts { seconds } else { seconds / 2.0 };
        let [mpps, own, all, forwarding, traffic] = contenders[*at].round(*len, seconds)?;
        Ok([mpps, own, all, forwarding, traffic, f64::NAN])
    })?;
    let idle_percent = idle(report, &mut contenders)?;
    for (row, side) in sweep.rows_mut().iter_mut().zip(&sides) {
        row.samples[IDLE] = idle_percent[side.subject.0].clone();
        row.notes.push(row.conditions.clone());
        let [forwarding, traffic] = [FORWARDING, TRAFFIC].map(|it| row.samples[it].median());
        row.conditions += &format!("; cores: forwarding {forwarding:.2}, traffic {traffic:.2}");
    }
    sweep.print("From one end to the other, on the same two cores");
    for (peer, _, _) in PEERS {
        for len in SIZES {
            let Some(row) = fastest(sweep.rows(), &format!("peers.{peer}.{len}")) else {
                continue;
            };
            sweep.report_some(report, row, &[MPPS, PER_CPU, PER_CPU_ALL]);
            if len == SIZES[0] {
                let conditions = format!("percent of a core; {}", row.notes[0]);
                let id = format!("peers.{peer}.idle_cpu_percent");
                report.figure(id, &row.samples[IDLE], "%", &conditions);
            }
        }
    }
    Ok(())
}

/// Returns a side for each way and length, by the way's index and the length; `id` is the beginning of their figures' ids.
fn sides(id: &str, contenders: &[Contender]) -> Vec<Side<(usize, usize)>> {
    let mut sides = Vec::new();
    for (at, contender) in contenders.iter().enumerate() {
        for len in SIZES {
            let key = [contender.peer.to_owned(), len.to_string()];
            let side = Side::new(key, format!("{id}.{}.{len}", contender.peer), (at, len));
            sides.push(side.under(&contender.way.conditions()));
        }
    }
    sides
}

/// The fastest of the rows of this id: a peer may have several.
fn fastest<'a, const N: usize>(rows: &'a [Row<N>], id: &str) -> Option<&'a Row<N>> {
    let ways = rows.iter().filter(|row| row.id == id);
    highest(ways, |row| &row.samples[MPPS])
}

/// Starts the ways that this host has.
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
                    contenders.push(Contender { peer, way });
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

/// CPU time of each without traffic, in percent of a core: those that sleep all at once, those that poll one by one.
fn idle(report: &Report, contenders: &mut [Contender]) -> anyhow::Result<Vec<Samples>> {
    let (rounds, seconds) = report.effort((3, 1.0), (1, 0.3));
    let mut percent = vec![Samples::default(); contenders.len()];
    let all = contenders.iter_mut().zip(&mut percent);
    let (mut polling, mut sleeping): (Vec<_>, Vec<_>) =
        all.partition(|(contender, _)| contender.way.polls());
    for _ in 0..rounds {
        watch_idle(&mut sleeping, seconds)?;
        for contender in &mut polling {
            watch_idle(std::slice::from_mut(contender), seconds)?;
        }
    }
    Ok(percent)
}

fn watch_idle(
    contenders: &mut [(&mut Contender, &mut Samples)],
    seconds: f64,
) -> anyhow::Result<()> {
    interrupt::check()?;
    for (contender, _) in contenders.iter_mut() {
        contender.way.idle_begin(seconds)?;
    }
    std::thread::sleep(Duration::from_secs_f64(seconds));
    for (contender, percent) in contenders.iter_mut() {
        let used = contender.way.idle_end()?;
        percent.push(used / seconds * 100.0);
    }
    Ok(())
}
