//! H4: the batch that a sender asks for, the batch that the switch sees, and what synchronising with
//! whoever runs the switch costs per packet (HyperNF, SoCC '17, fig. 3).
//!
//! A process hands batches of one size to the switch and takes what comes back; it sleeps when the ring
//! is full. The switch's own counters say how many frames each run of it saw. The cost of
//! synchronisation is the CPU time of all threads involved per packet, less that of the same process
//! inline with the largest batch, in which the call is spread over so many frames that little but the
//! forwarding itself is left.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::{Report, significant, table};
use crate::roles::{Role, Task};
use crate::setups::loopback::{self, Loopback};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

const LEN: usize = 64;
/// Of the variant with which the others are compared: the whole ring.
const BATCH_MAX: u32 = loopback::RING;

/// One model with one batch.
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

/// What a packet costs in one model with one batch.
struct Cost {
    model: Model,
    batch: u32,
    seen: Samples,
    total_ns: Samples,
    sync_ns: Samples,
    mpps: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let batches = report.choose(vec![1, 2, 4, 8, 16, 32, 64, 128], vec![1, 16, 64]);
    // One for all: loading the switch takes a second or more.
    let mut scratch = Scratch::new("h4")?;
    let mut costs = Vec::new();
    for batch in batches {
        costs.extend(measure(report, &mut scratch, batch)?);
    }
    let header = [
        "asked",
        "model",
        "seen by the switch",
        "ns per packet",
        "spread",
        "of it synchronisation",
        "%",
        "Mpps",
    ];
    let rows: Vec<_> = costs.iter().map(Cost::row).collect();
    table(
        "Batches of 64 B frames, CPU time of all threads",
        &header,
        &rows,
    );
    for cost in &costs {
        cost.figures(report);
    }
    report.plot(plot(
        &costs,
        "h4.batch",
        "frames per run of the switch",
        |cost| &cost.seen,
    ));
    report.plot(plot(
        &costs,
        "h4.sync",
        "ns of synchronisation per packet",
        |cost| &cost.sync_ns,
    ));
    Ok(())
}

/// All models with one batch, and in the same rounds what they are compared with.
fn measure(report: &mut Report, scratch: &mut Scratch, batch: u32) -> anyhow::Result<Vec<Cost>> {
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
    Ok(variants
        .into_iter()
        .map(|variant| variant.cost(&forwarding))
        .collect())
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

    /// Round by round: both sides of the difference are measured within a second or two.
    fn cost(self, forwarding: &Variant) -> Cost {
        let pairs = self.ns.values().iter().zip(forwarding.ns.values());
        let sync_ns = pairs
            .map(|(total, forwarding)| total - forwarding)
            .collect();
        Cost {
            model: self.model,
            batch: self.batch,
            seen: self.seen,
            total_ns: self.ns,
            sync_ns,
            mpps: self.mpps,
        }
    }
}

impl Cost {
    fn sync_percent(&self) -> f64 {
        self.sync_ns.median() / self.total_ns.median() * 100.0
    }

    fn figures(&self, report: &mut Report) {
        let (model, batch) = (self.model.name(), self.batch);
        let id = |what: &str| format!("h4.{model}.{batch}.{what}");
        let conditions = format!(
            "{}; ports joined, {LEN} B, batches of {batch} asked for, {} slots, {} Mpps by the clock",
            self.model.place(),
            loopback::RING,
            significant(self.mpps.median())
        );
        report.figure(id("seen"), &self.seen, "frames", &conditions);
        report.figure(id("ns"), &self.total_ns, "ns/frame", &conditions);
        let conditions = format!(
            "CPU time of all threads per frame, less that of the inline model with batches of \
             {BATCH_MAX} in the same round; {conditions}"
        );
        report.figure(id("sync_ns"), &self.sync_ns, "ns/frame", &conditions);
        report.derived(id("sync_percent"), self.sync_percent(), "%", &conditions);
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.batch.to_string(),
            self.model.name().to_owned(),
            significant(self.seen.median()),
            significant(self.total_ns.median()),
            format!("{:.0} %", self.total_ns.spread_percent()),
            significant(self.sync_ns.median()),
            format!("{:.0} %", self.sync_percent()),
            significant(self.mpps.median()),
        ]
    }
}

fn plot(costs: &[Cost], id: &str, what: &str, samples: fn(&Cost) -> &Samples) -> Plot {
    let line = |model: Model| {
        let mut series = Series::new(model.name());
        for cost in costs.iter().filter(|cost| cost.model == model) {
            series.push(f64::from(cost.batch), samples(cost));
        }
        series
    };
    Plot {
        id: id.to_owned(),
        title: format!("Batches of {LEN} B: {what}"),
        x: Axis::log("batch asked for by the sender"),
        y: Axis::log(what),
        series: Model::ALL.into_iter().map(line).collect(),
    }
}
