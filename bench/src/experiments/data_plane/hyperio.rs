//! The hyperio call: empty against getpid, and with frames by batch and size, all on one core, in CPU time, so that
//! other processes on the core do not count.

use crate::report::Report;
use crate::setups::hyperio_call::{ns_per_call, ns_per_frame};
use crate::sweep::{Quantity, Shown, Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_ring::port::Port;
use nfluid_testbed::scratch::Scratch;

const RING: u32 = 256;

/// Measures so many calls.
type Calls = fn(&Port, usize) -> f64;

const CALLS: [(&str, &str, Calls); 3] = [
    ("getppid", "hyperio.getpid", |_, calls| {
        ns_per_call(calls, || {
            std::hint::black_box(rustix::process::getppid());
        })
    }),
    (
        "hyperio, no ring looked at",
        "hyperio.nop",
        |port, calls| ns_per_call(calls, || drop(port.nop())),
    ),
    ("hyperio, empty ring", "hyperio.empty", |port, calls| {
        ns_per_call(calls, || drop(port.call_empty()))
    }),
];

const fn ns(unit: &'static str) -> [Quantity; 1] {
    let columns = &[("ns", Shown::Median), ("spread", Shown::Spread)];
    [Quantity::new("_ns", unit, columns)]
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut scratch = Scratch::new("hyperio")?;
    let mut a = scratch.instance(1, RING, RING)?;
    let mut b = scratch.instance(1, RING, 64)?;
    scratch.link((&mut a, 0), (&mut b, 0))?;
    let (mut from, mut to) = (a.attach()?, b.attach()?);
    let (from, to) = (&mut from.ports[0], &mut to.ports[0]);
    let (rounds, calls) = report.effort((21, 200_000), (5, 50_000));
    let mut sweep = Sweep::plain(&["call"], ns("ns"));
    let mut sides =
        CALLS.map(|(name, id, call)| Side::new([name.to_owned()], id, call).under("one core"));
    sweep.run(report, rounds, &mut sides, |call, _| {
        Ok([call(from, calls)])
    })?;
    sweep.print("One system call");
    sweep.report_all(report);
    let median = |row: usize| sweep.rows()[row].samples[0].median();
    report.derived(
        "hyperio.call_ratio",
        median(2) / median(0),
        "x",
        "empty ring / getppid",
    );
    frames(report, from, to);
    Ok(())
}

fn frames(report: &mut Report, from: &mut Port, to: &mut Port) {
    let rounds = report.effort(11, 3);
    let mut sweep = Sweep::plain(&["size", "batch"], ns("ns/frame"));
    for len in [64, 256, 1024, 1514] {
        for batch in [1, 8, 32, 64, 256] {
            let calls = 200_000 / (batch + 3) / (1 + len / 500);
            let key = [format!("{len} B"), batch.to_string()];
            let side = Side::new(key, format!("hyperio.{len}.batch{batch}"), ())
                .under("one core, sender fills in the length, receiver releases")
                .on(&format!("batch {batch}"), len as f64);
            let samples = (0..rounds).map(|_| ns_per_frame(from, to, len, batch, calls));
            sweep.add(&side, [samples.collect()]);
        }
    }
    sweep.print("ns per frame, link, one core, 256 slots");
    sweep.report_all(report);
    report.plot(Plot {
        id: "hyperio.frames".to_owned(),
        title: "Forwarding in the sender's context, one core".to_owned(),
        x: Axis::log("frame size in bytes"),
        y: Axis::log("ns per frame"),
        series: lines(sweep.rows(), 0),
    });
}
