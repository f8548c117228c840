//! Cost of congestion signals per packet: a link, one core, with and without a signal word in the receiver's port,
//! alternately. CPU time, so that other processes on the core do not count.

use crate::report::Report;
use crate::setups::hyperio_call::ns_per_frame;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;
use nfluid_ring::port::Port;
use nfluid_switch::PortSignal;
use nfluid_switch::signal::SIGNAL_FOR_MAX;
use nfluid_testbed::scratch::{Scratch, mac_of};

const RING: u32 = 256;
const LEN: usize = 64;
/// The batch of the target.
const BATCH: usize = 32;
/// A probability at which the switch draws a random number per packet and marks one packet in two thousand million.
const RARELY: u32 = 1;

/// The receiver's signal word in each variant: no signal, a probability near 0, and a mark for each packet.
const VARIANTS: [u32; 3] = [0, RARELY, u32::MAX];

const QUANTITIES: [Quantity; 5] = [
    Quantity::shown(&[("no word", Shown::Median)]),
    Quantity::shown(&[("probability near 0", Shown::Median)]),
    Quantity::shown(&[("each packet marked", Shown::Median)]),
    Quantity::new(".cost_ns", "ns/packet", &[("more: near 0", Shown::Median)]),
    Quantity::new(
        ".marked_ns",
        "ns/packet",
        &[("more: each marked", Shown::Median)],
    ),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut scratch = Scratch::new("red4cost")?;
    let mut a = scratch.instance(1, RING, RING)?;
    let mut b = scratch.instance(1, RING, 64)?;
    scratch.link((&mut a, 0), (&mut b, 0))?;
    let receiver = b.id(0);
    let (mut from, mut to) = (a.attach()?, b.attach()?);
    fill(&mut from.ports[0], &mut to.ports[0])?;
    let (rounds, frames) = report.effort((201, 100_000), (21, 50_000));
    let mut sweep = Sweep::plain(&["batch"], QUANTITIES);
    for batch in [1, 8, BATCH, 256] {
        let mut variants = VARIANTS.map(|_| Samples::default());
        let mut costs = VARIANTS.map(|_| Samples::default());
        for round in 0..rounds {
            let mut took = [0.0; VARIANTS.len()];
            for turn in 0..VARIANTS.len() {
                let variant = (round + turn) % VARIANTS.len();
                let signal = PortSignal {
                    probability: VARIANTS[variant],
                    is_refused: false,
                };
                // A variant takes some ten milliseconds.
                scratch
                    .switch
                    .set_signal(receiver, signal, SIGNAL_FOR_MAX)?;
                let (from, to) = (&mut from.ports[0], &mut to.ports[0]);
                took[variant] = ns_per_frame(from, to, LEN, batch, frames / (batch + 3));
            }
            for (variant, ns) in took.into_iter().enumerate() {
                variants[variant].push(ns);
                costs[variant].push(ns - took[0]);
            }
        }
        anyhow::ensure!(
            scratch.switch.counters(receiver).marked > 0,
            "no packet was marked in the variant where each is to be: the figures would say nothing"
        );
        let id = match batch {
            BATCH => "red4".to_owned(),
            _ => format!("red4.batch{batch}"),
        };
        let how = format!("64 B over a link, one core, batch {batch}, against no word in turn");
        let side = Side::new([batch.to_string()], id, ()).under(&how);
        let [none, rare, all] = variants;
        let [_, rare_cost, all_cost] = costs;
        sweep.add(&side, [none, rare, all, rare_cost, all_cost]);
    }
    sweep.report_all(report);
    sweep.print("ns per packet of 64 B, link, one core; and by how much more than without a word");
    Ok(())
}

/// Fills all slots of the sender with packets that can be marked.
fn fill(from: &mut Port, to: &mut Port) -> anyhow::Result<()> {
    let mut packet = [0_u8; LEN];
    packet[..6].copy_from_slice(&mac_of(2));
    packet[12..17].copy_from_slice(&[8, 0, 0x45, 2, 0]);
    packet[17] = (LEN - 14) as u8;
    nfluid_wire::ipv4::Ipv4Packet::new_checked(&mut packet[14..])?.fill_checksum();
    for _ in 0..RING {
        from.send(|slot| {
            slot[..LEN].copy_from_slice(&packet);
            LEN
        });
    }
    from.flush(nfluid_ring::port::WhenFull::Drop)?;
    to.receive(RING as usize, |_| ());
    Ok(())
}
