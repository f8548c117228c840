//! Transfer between two DPDK processes.

use super::{BATCH, TWO_CORES, Transfer, cores_in_words, idle_percent};
use crate::dpdk::Dpdk;
use crate::dpdk::memif::{Mode, Setup};
use crate::report::Report;
use crate::setups::pairs;
use crate::sweep::Side;

/// The measured set-ups. nfluid is compared with the fastest.
pub const SETUPS: [Setup; 6] = [
    setup(Mode::Copy, 10),
    setup(Mode::ReceiverZeroCopy, 10),
    setup(Mode::SenderZeroCopy, 10),
    setup(Mode::Copy, 8),
    setup(Mode::ReceiverZeroCopy, 8),
    setup(Mode::SenderZeroCopy, 8),
];
/// The set-ups of a quick run.
pub const SETUPS_QUICK: [Setup; 2] = [
    setup(Mode::ReceiverZeroCopy, 10),
    setup(Mode::SenderZeroCopy, 10),
];
/// The only set-up that works without huge pages.
pub const SETUPS_SMALL_PAGES: [Setup; 1] = [setup(Mode::Copy, 10)];
/// Largest number of pairs at a time.
pub const SETUPS_MAX: usize = SETUPS.len();

const fn setup(mode: Mode, ring_bits: u32) -> Setup {
    Setup { mode, ring_bits }
}

/// Returns a side, or `None` after a message with the set-up's name: some set-ups do not work with some kinds of
/// memory.
pub fn side_if_it_works(
    dpdk: &mut Dpdk,
    id: &str,
    setup: Setup,
    len: usize,
    cores: [usize; 2],
    yields: bool,
) -> Option<Side<Transfer>> {
    let side = side(dpdk, id.to_owned(), setup, len, cores, yields);
    side.map_err(|error| println!("memif, {}, left out: {error:#}", setup.name()))
        .ok()
}

fn side(
    dpdk: &mut Dpdk,
    id: String,
    setup: Setup,
    len: usize,
    cores: [usize; 2],
    yields: bool,
) -> anyhow::Result<Side<Transfer>> {
    let peers = dpdk.memif_pair(setup, BATCH, cores, yields)?;
    let conditions = format!(
        "{}{}, batch {BATCH}, {}, {}",
        cores_in_words(cores),
        if yields { ", sched_yield" } else { "" },
        setup.name(),
        dpdk.memory()
    );
    let transfer = Transfer {
        pair: pairs::of(peers, Vec::new()),
        len: Some(len),
        sender_copies: setup.mode != Mode::SenderZeroCopy,
    };
    Ok(super::side(id, &conditions, transfer))
}

/// Measures a polling receiver without traffic.
pub fn idle(report: &mut Report, dpdk: &mut Dpdk) -> anyhow::Result<()> {
    let mut peers = dpdk.memif_pair(SETUPS[0], BATCH, TWO_CORES, false)?;
    let percent = idle_percent(report, &mut peers[1..])?;
    let conditions = "a receiver that nobody sends to: it polls";
    report.figure("nonf.memif.idle_cpu_percent", &percent, "%", conditions);
    Ok(())
}
