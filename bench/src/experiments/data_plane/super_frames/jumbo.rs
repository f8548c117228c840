//! Long frames: sender, switch, receiver that reads every byte, a core each, as `nonf` does it with short ones.

use crate::peer::run_together;
use crate::report::{Report, gbps};
use crate::setups::pairs;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_switch::LongSlots;
use nfluid_testbed::scratch::Scratch;

const BATCH: usize = 64;
const CORES: [usize; 2] = [0, 1];
/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// Lengths of packets: of a wire, jumbo, the longest of all.
const PACKETS: [usize; 3] = [1500, JUMBO, 65_506];
const JUMBO: usize = 9000;
/// Ring slots, slots for long frames of the receiver and of the sender: the best is the figure. Small ones stay in a
/// core's own cache; the slots of large ones have left the receiver's cache when the sender writes them again.
const SLOTS: [[u32; 3]; 4] = [
    [256, 256, 256],
    [256, 1024, 256],
    [1024, 1024, 1024],
    [1024, 4096, 256],
];

const GBPS: [Quantity; 1] = [Quantity::new(
    ".gbps",
    "Gbit/s",
    &[("Gbit/s", Shown::Median), ("spread", Shown::Spread)],
)];

/// Measures, prints the table and reports the figures.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut scratch = Scratch::new("super")?;
    let (rounds, seconds) = report.effort((5, 0.5), (1, 0.1));
    let mut sweep = Sweep::new(&["figure", "slots: ring, receiver's, sender's"], GBPS);
    for &packet in report.choose(&PACKETS[..], &[JUMBO]) {
        let len = packet + HEADER;
        let mut sides = Vec::new();
        for [ring, rx, tx] in SLOTS {
            let long = LongSlots { rx, tx };
            let pair = pairs::one_way_long(&mut scratch, len, BATCH, ring, long, CORES)?;
            let id = format!("super.jumbo.{packet}");
            let slots = format!("{ring}, {rx}, {tx}");
            let conditions = format!(
                "frames of {len} bytes over a link, one core each, batch {BATCH}; the best of {} sizes: {ring} slots, \
                 for long frames {rx} of the receiver, {tx} of the sender",
                SLOTS.len()
            );
            sides.push(Side::new([id.clone(), slots], id, pair).under(&conditions));
        }
        let rows = sweep.run(report, rounds, &mut sides, |pair, _| {
            let receiver = run_together(&mut pair.peers, seconds)?[1];
            Ok([gbps(receiver.frames as f64 / receiver.seconds / 1e6, len)])
        })?;
        let best = rows.max_by(|a, b| {
            let median = |row: &usize| sweep.rows()[*row].samples[0].median();
            median(a).total_cmp(&median(b))
        });
        if let Some(best) = best {
            sweep.report(report, best..best + 1);
        }
    }
    sweep.print("Long frames: sender -> switch -> receiver that reads the payload, one core each");
    Ok(())
}
