//! H4: the batch that a sender requests, the batch that the switch sees, and the cost per packet of synchronising with
//! the thread that runs the switch (HyperNF, SoCC '17, fig. 3).
//!
//! A process hands batches of one size to the switch and receives the frames again; the process sleeps when the ring is
//! full. The switch's own counters give the frames per run. The cost of synchronisation is the CPU time of all involved
//! threads per packet, less that of the same process inline with the largest batch, in which the cost of the call is
//! spread over so many frames that little but the forwarding itself is left.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::{Report, significant};
use crate::roles::{Role, Task};
use crate::setups::loopback::{self, Loopback};
use crate::sweep::{Quantity, Shown, Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

const LEN: usize = 64;
/// Batch of the variant with which the others are compared: the whole ring.
const BATCH_MAX: u32 = loopback::RING;

/// A model with a batch size.
struct Variant {
    model: Model,
    batch: u32,
    sender: Loopback,
    /// Frames per run of the switch.
    seen: Samples,
    /// CPU time of all threads per packet.
    ns: Samples,
    mpps: Samples,
}

/// The quantities of a model with one batch, in the order of [`Variant::samples`].
const QUANTITIES: [Quantity; 5] = [
    // Frames per run of the switch.
    Quantity::new(".seen", "frames", &[("seen by the switch", Shown::Median)]),
    // CPU time of all threads per packet.
    Quantity::new(
        ".ns",
        "ns/frame",
        &[("ns per packet", Shown::Median), ("spread", Shown::Spread)],
    ),
    Quantity::new(
        ".sync_ns",
        "ns/frame",
        &[("of it synchronisation", Shown::Median)],
    )
    .meaning(SYNCHRONISATION),
    Quantity::new(".sync_percent", "%", &[("%", Shown::Percent)]).meaning(SYNCHRONISATION),
    Quantity::shown(&[("Mpps", Shown::Median)]),
];
const SEEN: usize = 0;
const SYNC_NS: usize = 2;
const SYNCHRONISATION: &str = "CPU time of all threads per frame, less that of the inline model with batches of 256 in the same round";
const _: () = assert!(BATCH_MAX == 256);

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let batches = report.choose(vec![1, 2, 4, 8, 16, 32, 64, 128], vec![1, 16, 64]);
    // All batches share a switch: loading a switch takes a second or more.
    let mut scratch = Scratch::new("h4")?;
    let mut sweep = Sweep::new(&["asked", "model"], QUANTITIES);
    for batch in batches {
        measure(report, &mut scratch, batch, &mut sweep)?;
    }
    sweep.print("Batches of 64 B frames, CPU time of all threads");
    sweep.report_all(report);
    for (id, what, quantity) in [
        ("h4.batch", "frames per run of the switch", SEEN),
        ("h4.sync", "ns of synchronisation per packet", SYNC_NS),
    ] {
        report.plot(Plot {
            id: id.to_owned(),
            title: format!("Batches of {LEN} B: {what}"),
            x: Axis::log("batch asked for by the sender"),
            y: Axis::log(what),
            series: lines(sweep.rows(), quantity),
        });
    }
    Ok(())
}

/// Measures all models with one batch, and the variant of the comparison in the same rounds.
fn measure(
    report: &mut Report,
    scratch: &mut Scratch,
    batch: u32,
    sweep: &mut Sweep<5>,
) -> anyhow::Result<()> {
    let (rounds, seconds) = report.effort((11, 0.3), (2, 0.1));
    let mut variants = Model::ALL
        .into_iter()
        .map(|model| Variant::new(scratch, model, batch))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut forwarding = Variant::new(scratch, Model::Inline, BATCH_MAX)?;
    for round in 0..=rounds {
        for variant in variants.iter_mut().chain([&mut forwarding]) {
            report.settle();
            // The first round warms up.
            let seconds = if round == 0 { seconds / 5.0 } else { seconds };
            variant.measure(scratch, seconds, round > 0)?;
        }
    }
    for variant in variants {
        let (side, samples) = (variant.side(), variant.samples(&forwarding));
        sweep.add(&side, samples);
    }
    Ok(())
}

impl Variant {
    fn new(scratch: &mut Scratch, model: Model, batch: u32) -> anyhow::Result<Self> {
        let role = Role {
            core: Model::nf_core(),
            task: Task::Stream { len: LEN, batch },
        };
        Ok(Variant {
            model,
            batch,
            sender: Loopback::start(scratch, model, &[role])?,
            seen: Samples::default(),
            ns: Samples::default(),
            mpps: Samples::default(),
        })
    }

    fn measure(&mut self, scratch: &Scratch, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let port = self.sender.port(0);
        let before = scratch.switch.counters(port);
        let run = self.sender.run(seconds)?;
        let after = scratch.switch.counters(port);
        if !counts {
            return Ok(());
        }
        let frames = (after.tx_frames - before.tx_frames).max(1) as f64;
        let runs = (after.tx_calls - before.tx_calls).max(1) as f64;
        self.seen.push(frames / runs);
        self.ns.push(run.cpu_seconds() * 1e9 / frames);
        self.mpps.push(frames / run.processes[0].seconds / 1e6);
        Ok(())
    }

    fn side(&self) -> Side<()> {
        let (model, batch) = (self.model.name(), self.batch);
        let conditions = format!(
            "{}; ports joined, {LEN} B, batches of {batch} asked for, {} slots, {} Mpps by the clock",
            self.model.place(),
            loopback::RING,
            significant(self.mpps.median())
        );
        let key = [batch.to_string(), model.to_owned()];
        Side::new(key, format!("h4.{model}.{batch}"), ())
            .under(&conditions)
            .on(model, batch)
    }

    /// Returns the samples round by round: both sides of the difference are measured within a second or two.
    fn samples(self, forwarding: &Variant) -> [Samples; 5] {
        let pairs = self.ns.values().iter().zip(forwarding.ns.values());
        let sync_ns: Samples = pairs
            .map(|(total, forwarding)| total - forwarding)
            .collect();
        let sync_percent = Samples::from(sync_ns.median() / self.ns.median() * 100.0);
        [self.seen, self.ns, sync_ns, sync_percent, self.mpps]
    }
}
