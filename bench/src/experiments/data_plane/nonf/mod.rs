//! No NF: sender -> switch -> receiver that reads every byte (H5 "no NF"), and the same work between
//! two processes on DPDK over memif, which have no switch between them.

mod memif;
mod own;

use crate::dpdk::Dpdk;
use crate::host::cpu::require_two_cores;
use crate::peer::{Peer, run_together, run_with};
use crate::report::Report;
use crate::setups::pairs::Pair;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt;
use nfluid_testbed::scratch::Scratch;
use std::ops::Range;

/// The batch of the comparison, the same for both sides.
const BATCH: usize = 32;
/// The batch of the figures without a suffix.
const BATCH_OWN: usize = 64;
const TWO_CORES: [usize; 2] = [0, 1];
const SAME: [usize; 2] = [1, 1];

const MPPS: [Quantity; 1] = [Quantity::new(
    "",
    "Mpps",
    &[("Mpps", Shown::Median), ("spread", Shown::Spread)],
)];

/// A sender and a receiver.
struct Transfer {
    /// The sender and the receiver.
    pair: Pair,
    /// The length of frames, if the processes must be told.
    len: Option<usize>,
    /// True if the sender's side copies the bytes. If the receiver's side copies, the frames, which are always the
    /// same, are in its own cache.
    sender_copies: bool,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut scratch = Scratch::new("nonf")?;
    let mut dpdk = match Dpdk::prepare(2 * memif::SETUPS_MAX) {
        Err(error) if error.is::<CannotRun>() => {
            println!("\nthe peer, DPDK over memif, is left out: {error:#}");
            None
        }
        dpdk => Some(dpdk?),
    };
    let mut sweep = Sweep::new(&["figure"], MPPS);
    sweep.notes = &["conditions"];
    for len in report.choose(vec![64, 128, 256, 512, 1024, 1514], vec![64, 1514]) {
        let peer = dpdk.as_mut().filter(|_| matches!(len, 64 | 1514));
        on_two_cores(report, &mut sweep, &mut scratch, peer, len)?;
    }
    interrupt::check()?;
    same_core(report, &mut sweep, &mut scratch, dpdk.as_mut())?;
    for row in sweep.rows_mut() {
        row.notes = vec![row.conditions.clone()];
    }
    sweep.print("No NF: sender -> receiver that reads the payload, through the switch or by memif");
    own::idle(report, &mut scratch)?;
    if let Some(dpdk) = &mut dpdk
        && let Err(error) = memif::idle(report, dpdk)
    {
        interrupt::check()?;
        println!("idle memif left out: {error:#}");
    }
    Ok(())
}

fn side(id: String, conditions: &str, transfer: Transfer) -> Side<Transfer> {
    Side::new([id.clone()], id, transfer).under(conditions)
}

/// Measures with one core per side.
fn on_two_cores(
    report: &mut Report,
    sweep: &mut Sweep<1>,
    scratch: &mut Scratch,
    dpdk: Option<&mut Dpdk>,
    len: usize,
) -> anyhow::Result<()> {
    let mut sides = Vec::new();
    for (suffix, batch) in [("", BATCH_OWN), (".batch32", BATCH)] {
        for slots in own::RINGS {
            let id = format!("nonf.{len}{suffix}.mpps");
            sides.push(own::side(scratch, id, len, batch, slots, TWO_CORES)?);
        }
    }
    let own = sides.len();
    if let Some(dpdk) = dpdk {
        let id = format!("nonf.memif.{len}.mpps");
        let setups: &[_] = if dpdk.has_huge_pages() {
            report.choose(memif::SETUPS.as_slice(), memif::SETUPS_QUICK.as_slice())
        } else {
            &memif::SETUPS_SMALL_PAGES
        };
        for setup in setups {
            sides.extend(memif::side_if_it_works(
                dpdk, &id, *setup, len, TWO_CORES, false,
            ));
        }
    }
    let rows = measure(report, sweep, &mut sides)?;
    let own_rows = rows.start..rows.start + own;
    let mut best = rows.start;
    for rings in own_rows.step_by(own::RINGS.len()) {
        best = fastest(sweep, rings..rings + own::RINGS.len()).unwrap_or(best);
        sweep.report(report, best..best + 1);
    }
    // The last sides have the peers' batch.
    let peers = rows.start + own..rows.end;
    if let Some(peer) = fastest(sweep, peers.clone()) {
        sweep.report(report, peer..peer + 1);
        compare(report, format!("nonf.{len}.vs_memif"), sweep, [best, peer]);
    }
    let copies = peers.filter(|row| sides[row - rows.start].subject.sender_copies);
    if let Some(peer) = fastest(sweep, copies) {
        let id = format!("nonf.{len}.vs_memif_copied");
        compare(report, id, sweep, [best, peer]);
    }
    Ok(())
}

/// Measures with both sides on one core.
fn same_core(
    report: &mut Report,
    sweep: &mut Sweep<1>,
    scratch: &mut Scratch,
    dpdk: Option<&mut Dpdk>,
) -> anyhow::Result<()> {
    let mut sides = Vec::new();
    for len in [64, 1514] {
        let id = format!("nonf.samecore.{len}.mpps");
        sides.push(own::side(scratch, id, len, BATCH_OWN, own::RINGS[0], SAME)?);
    }
    if let Some(dpdk) = dpdk {
        // Yielding as nfluid does, and polling as DPDK programs do until their time slice is over.
        for (way, yields) in [("", true), ("poll.", false)] {
            let id = format!("nonf.samecore.memif.{way}64.mpps");
            let setup = memif::SETUPS[0];
            sides.extend(memif::side_if_it_works(dpdk, &id, setup, 64, SAME, yields));
        }
    }
    let rows = measure(report, sweep, &mut sides)?;
    sweep.report(report, rows);
    Ok(())
}

fn measure(
    report: &mut Report,
    sweep: &mut Sweep<1>,
    sides: &mut [Side<Transfer>],
) -> anyhow::Result<Range<usize>> {
    let (rounds, seconds) = report.effort((11, 0.5), (3, 0.1));
    sweep.run(report, rounds, sides, |transfer, _| {
        let receiver = run_with(&mut transfer.pair.peers, seconds, transfer.len)?[1];
        Ok([receiver.frames as f64 / receiver.seconds / 1e6])
    })
}

/// Returns the fastest of these rows. A baseline that is not tuned is no baseline.
fn fastest(sweep: &Sweep<1>, rows: impl Iterator<Item = usize>) -> Option<usize> {
    let mpps = |row: &usize| sweep.rows()[*row].samples[0].median();
    rows.max_by(|a, b| mpps(a).total_cmp(&mpps(b)))
}

/// Reports the ratio of each round.
fn compare(report: &mut Report, id: String, sweep: &Sweep<1>, rows: [usize; 2]) {
    let [own, peer] = rows.map(|row| &sweep.rows()[row]);
    let ratio = own.samples[0].ratios(&peer.samples[0]);
    let conditions = format!(
        "nfluid / memif, round by round, both on two cores that poll; nfluid: {}; memif: {}",
        own.conditions, peer.conditions
    );
    report.figure(id, &ratio, "x", &conditions);
}

/// Returns the CPU time of two receivers without traffic, in percent of a core.
fn idle_percent(report: &Report, receivers: &mut [Peer]) -> anyhow::Result<Samples> {
    let (rounds, seconds) = report.effort((5, 1.0), (1, 0.3));
    let mut percent = Samples::default();
    for _ in 0..rounds {
        for outcome in run_together(receivers, seconds)? {
            percent.push(outcome.cpu_seconds / outcome.seconds * 100.0);
        }
    }
    Ok(percent)
}

fn cores_in_words(cores: [usize; 2]) -> &'static str {
    if cores[0] == cores[1] {
        "one core for both"
    } else {
        "one core each"
    }
}
