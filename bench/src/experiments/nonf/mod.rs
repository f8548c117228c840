//! No NF: sender -> switch -> receiver that reads every byte (H5 "no NF"), and the same work between
//! two processes on DPDK over memif, which have no switch between them.

mod memif;
mod own;

use super::pairs::Pair;
use super::two_cores;
use crate::dpdk::Dpdk;
use crate::peer::{Peer, run_together, run_with};
use crate::report::{Report, significant, table};
use crate::statistics::{Samples, highest};
use nfluid_testbed::CannotRun;
use nfluid_testbed::interrupt;
use nfluid_testbed::scratch::Scratch;

/// The batch of the comparison: both sides have the same.
const BATCH: usize = 32;
/// The batch of the figures without a suffix.
const BATCH_OWN: usize = 64;
const APART: [usize; 2] = [0, 1];
const SAME: [usize; 2] = [1, 1];

/// A sender and a receiver.
struct Variant {
    id: String,
    /// What a reader must know.
    conditions: String,
    /// The length of frames, where the peers have to be told.
    len: Option<usize>,
    /// Whether the sender's side moves the bytes; else the receiver's does, which finds frames that
    /// are always the same in its own cache.
    sender_copies: bool,
    /// The sender and the receiver.
    pair: Pair,
    mpps: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let mut scratch = Scratch::new("nonf")?;
    let mut dpdk = match Dpdk::prepare(2 * memif::SETUPS_MAX) {
        Err(error) if error.is::<CannotRun>() => {
            println!("\nthe peer, DPDK over memif, is left out: {error:#}");
            None
        }
        dpdk => Some(dpdk?),
    };
    let mut rows = Vec::new();
    for len in report.choose(vec![64, 128, 256, 512, 1024, 1514], vec![64, 1514]) {
        let peer = dpdk.as_mut().filter(|_| matches!(len, 64 | 1514));
        rows.extend(apart(report, &mut scratch, peer, len)?);
    }
    interrupt::check()?;
    rows.extend(same_core(report, &mut scratch, dpdk.as_mut())?);
    let title = "No NF: sender -> receiver that reads the payload, through the switch or by memif";
    table(title, &["figure", "Mpps", "spread", "conditions"], &rows);
    own::idle(report, &mut scratch)?;
    if let Some(dpdk) = &mut dpdk
        && let Err(error) = memif::idle(report, dpdk)
    {
        interrupt::check()?;
        println!("idle memif left out: {error:#}");
    }
    Ok(())
}

/// A core each.
fn apart(
    report: &mut Report,
    scratch: &mut Scratch,
    dpdk: Option<&mut Dpdk>,
    len: usize,
) -> anyhow::Result<Vec<Vec<String>>> {
    let mut variants = Vec::new();
    for (suffix, batch) in [("", BATCH_OWN), (".batch32", BATCH)] {
        for slots in own::RINGS {
            let id = format!("nonf.{len}{suffix}.mpps");
            variants.push(own::variant(scratch, id, len, batch, slots, APART)?);
        }
    }
    let own = variants.len();
    if let Some(dpdk) = dpdk {
        let id = format!("nonf.memif.{len}.mpps");
        let setups: &[_] = if dpdk.has_huge_pages() {
            report.choose(memif::SETUPS.as_slice(), memif::SETUPS_QUICK.as_slice())
        } else {
            &memif::SETUPS_SMALL_PAGES
        };
        for setup in setups {
            variants.extend(memif::variant_if_it_works(
                dpdk, &id, *setup, len, APART, false,
            ));
        }
    }
    measure(report, &mut variants)?;
    let rows = variants.iter().map(Variant::row).collect();
    let peers = variants.split_off(own);
    let mut own = &variants[0];
    for rings in variants.chunks(own::RINGS.len()) {
        own = fastest(rings.iter()).unwrap_or(own);
        own.figure(report);
    }
    // The last ones have the peers' batch.
    if let Some(best) = fastest(peers.iter()) {
        best.figure(report);
        compare(report, format!("nonf.{len}.vs_memif"), own, best);
    }
    if let Some(best) = fastest(peers.iter().filter(|variant| variant.sender_copies)) {
        compare(report, format!("nonf.{len}.vs_memif_copied"), own, best);
    }
    Ok(rows)
}

/// Both on one core.
fn same_core(
    report: &mut Report,
    scratch: &mut Scratch,
    dpdk: Option<&mut Dpdk>,
) -> anyhow::Result<Vec<Vec<String>>> {
    let mut variants = Vec::new();
    for len in [64, 1514] {
        let id = format!("nonf.samecore.{len}.mpps");
        variants.push(own::variant(
            scratch,
            id,
            len,
            BATCH_OWN,
            own::RINGS[0],
            SAME,
        )?);
    }
    if let Some(dpdk) = dpdk {
        // As nfluid's, and as programs on DPDK are: they poll until their time slice is over.
        for (way, yields) in [("", true), ("poll.", false)] {
            let id = format!("nonf.samecore.memif.{way}64.mpps");
            let setup = memif::SETUPS[0];
            variants.extend(memif::variant_if_it_works(
                dpdk, &id, setup, 64, SAME, yields,
            ));
        }
    }
    measure(report, &mut variants)?;
    for variant in &variants {
        variant.figure(report);
    }
    Ok(variants.iter().map(Variant::row).collect())
}

/// Rounds in turn, so that all variants have the same luck with the machine.
fn measure(report: &mut Report, variants: &mut [Variant]) -> anyhow::Result<()> {
    let (rounds, seconds) = report.effort((11, 0.5), (3, 0.1));
    for round in 0..=rounds {
        for variant in variants.iter_mut() {
            report.settle();
            let receiver = run_with(&mut variant.pair.peers, seconds, variant.len)?[1];
            // The first round warms up.
            if round > 0 {
                variant
                    .mpps
                    .push(receiver.frames as f64 / receiver.seconds / 1e6);
            }
        }
    }
    Ok(())
}

/// A baseline that is slower than it has to be is none.
fn fastest<'a>(variants: impl Iterator<Item = &'a Variant>) -> Option<&'a Variant> {
    highest(variants, |variant| &variant.mpps)
}

/// The ratio of each round.
fn compare(report: &mut Report, id: String, own: &Variant, peer: &Variant) {
    let rounds = own.mpps.values().iter().zip(peer.mpps.values());
    let ratio: Samples = rounds.map(|(own, peer)| own / peer).collect();
    let conditions = format!(
        "nfluid / memif, round by round, both on two cores that poll; nfluid: {}; memif: {}",
        own.conditions, peer.conditions
    );
    report.figure(id, &ratio, "x", &conditions);
}

/// CPU time of two receivers that nobody sends to, as a part of a core.
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

impl Variant {
    fn row(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            significant(self.mpps.median()),
            format!("{:.0} %", self.mpps.spread_percent()),
            self.conditions.clone(),
        ]
    }

    fn figure(&self, report: &mut Report) {
        report.figure(&self.id, &self.mpps, "Mpps", &self.conditions);
    }
}

fn cores_in_words(cores: [usize; 2]) -> &'static str {
    if cores[0] == cores[1] {
        "one core for both"
    } else {
        "one core each"
    }
}
