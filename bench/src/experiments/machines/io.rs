//! H9: network functions in KVM guests, in every I/O model (HyperNF, SoCC '17, fig. 9), and the same in processes.
//!
//! In each model the guest leaves its virtual CPU once for each batch. An exit costs about 1 us on a host with hardware
//! virtualization, and 25 us and more where the host is a virtual machine itself: its cost on this host is part of the result.
//! `model` predicts the throughput from it: a batch takes what it takes in a process, and one exit.

use crate::host::cpu::require_two_cores;
use crate::host::machine;
use crate::io_model::Model;
use crate::peer::run_together;
use crate::report::Report;
use crate::setups::pairs::{self, Served};
use crate::sweep::{Quantity, Side, Sweep};
use crate::workload::Workload;
use nfluid_figures::statistics::Samples;
use nfluid_nf::{Nanos, NetworkFunction};
use nfluid_ring::port::PortsOutbox;
use nfluid_testbed::scratch::Scratch;
use std::time::Instant;

const BATCH: usize = 64;
const RING: u32 = 256;
const SIZES: [usize; 3] = [64, 512, 1514];
const SUBJECTS: [(&str, Workload); 2] = [
    ("bridge", Workload::Bridge),
    (
        "firewall10",
        Workload::Firewall {
            rules: 10,
            flows: 1000,
        },
    ),
];
/// Calls of the guest for one sample of the cost of an exit.
const CALLS: u32 = 200;

const QUANTITIES: [Quantity; 2] = [
    // Frames per CPU-second.
    Quantity::CPU_MPPS,
    Quantity::WALL_MPPS,
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, seconds) = report.effort((5, 0.5), (1, 0.1));
    let sizes = report.choose(&SIZES[..], &[64][..]);
    let exit_ns = exit_cost(report.choose(200, 20))?;
    report.figure(
        "h9.exit_ns",
        &exit_ns,
        "ns",
        "a call of a guest that does nothing, and its exit",
    );
    println!(
        "An exit of a guest and its next entry: {:.0} ns",
        exit_ns.median()
    );
    let mut scratch = Scratch::new("h9")?;
    let mut sweep = Sweep::new(&["NF", "size", "in", "model"], QUANTITIES);
    for (name, workload) in SUBJECTS {
        for &len in sizes {
            let mut sides = Vec::new();
            for model in Model::ALL {
                for (place, in_guest) in [("process", false), ("guest", true)] {
                    sides.push(side(
                        &mut scratch,
                        (name, workload),
                        len,
                        model,
                        (place, in_guest),
                    )?);
                }
            }
            let rows = sweep.run(report, rounds, &mut sides, |served, _| {
                measure(served, seconds)
            })?;
            sweep.report(report, rows.clone());
            compare(report, &sweep, rows, (name, len), exit_ns.median());
        }
    }
    sweep.print("NFs in guests and in processes");
    Ok(())
}

/// Returns the time of a call of a guest that does nothing, in nanoseconds.
fn exit_cost(samples: usize) -> anyhow::Result<Samples> {
    let mut guest = machine::start(machine::noop()?, None)?;
    guest.build("noop", &serde_json::Value::Null, &[])?;
    let mut outbox = PortsOutbox(&mut []);
    let mut ns = Samples::default();
    for _ in 0..samples {
        let begun = Instant::now();
        for _ in 0..CALLS {
            guest.tick(Nanos(1), &mut outbox);
        }
        ns.push(begun.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    Ok(ns)
}

fn side(
    scratch: &mut Scratch,
    (name, workload): (&str, Workload),
    len: usize,
    model: Model,
    (place, in_guest): (&str, bool),
) -> anyhow::Result<Side<Served>> {
    let served = if in_guest {
        pairs::around_guest_by(scratch, model, workload, len, BATCH, RING)?
    } else {
        pairs::around_by(scratch, model, workload, len, BATCH, RING)?
    };
    let key = [name, &len.to_string(), place, model.name()].map(str::to_owned);
    let id = format!("h9.{name}.{len}.{place}.{}", model.name());
    Ok(Side::new(key, id, served)
        .under(&model.conditions())
        .on(place, len as f64))
}

fn measure(served: &mut Served, seconds: f64) -> anyhow::Result<[f64; 2]> {
    let outcomes = run_together(&mut served.peers, seconds)?;
    // Order: the NF, the traffic's outcome, the I/O threads.
    let io = outcomes.get(2);
    let cpu = outcomes[0].cpu_seconds + io.map_or(0.0, |io| io.cpu_seconds);
    let frames = outcomes[1].frames as f64;
    Ok([frames / cpu / 1e6, frames / outcomes[1].seconds / 1e6])
}

/// Reports the ratios of a subject: in guests the inline model to the others, and a guest to a process.
fn compare(
    report: &mut Report,
    sweep: &Sweep<2>,
    rows: std::ops::Range<usize>,
    (name, len): (&str, usize),
    exit_ns: f64,
) {
    let find = |place: &str, model: Model| {
        sweep.rows()[rows.clone()]
            .iter()
            .find(|row| row.key[2] == place && row.key[3] == model.name())
    };
    let Some(inline) = find("guest", Model::Inline) else {
        return;
    };
    for model in Model::ALL
        .into_iter()
        .filter(|model| *model != Model::Inline)
    {
        if let Some(other) = find("guest", model) {
            let id = format!("h9.{name}.{len}.inline_vs_{}", model.name());
            let ratio = inline.samples[0].ratios(&other.samples[0]);
            report.figure(id, &ratio, "ratio", "frames per CPU-second, both in guests");
        }
    }
    if let Some(process) = find("process", Model::Inline) {
        let id = format!("h9.{name}.{len}.guest_vs_process");
        let ratio = inline.samples[0].ratios(&process.samples[0]);
        report.figure(id, &ratio, "ratio", "frames per CPU-second, both inline");
        let per_frame_ns = 1e3 / process.samples[0].median();
        let predicted = 1e3 / (per_frame_ns + exit_ns / BATCH as f64);
        let id = format!("h9.{name}.{len}.model_mpps");
        let what = "predicted: the process' time for a frame, and an exit for each batch of 64";
        report.derived(id, predicted, "Mpps", what);
    }
}
