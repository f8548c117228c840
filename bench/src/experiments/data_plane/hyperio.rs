//! The hyperio call: empty against getpid, and with frames by batch and size, all on one core, in CPU time, so that
//! other processes on the core do not count.

use crate::report::{Report, significant, table};
use crate::setups::hyperio_call::{ns_per_call, ns_per_frame};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_ring::port::Port;
use nfluid_testbed::scratch::Scratch;

const RING: u32 = 256;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut scratch = Scratch::new("hyperio")?;
    let mut a = scratch.instance(1, RING, RING)?;
    let mut b = scratch.instance(1, RING, 64)?;
    scratch.link((&mut a, 0), (&mut b, 0))?;
    let (mut from, mut to) = (a.attach()?, b.attach()?);
    let (from, to) = (&mut from.ports[0], &mut to.ports[0]);
    let (rounds, calls) = report.effort((21, 200_000), (5, 50_000));

    let (mut getpid, mut nop, mut empty, mut ratio) = (
        Samples::default(),
        Samples::default(),
        Samples::default(),
        Samples::default(),
    );
    for _ in 0..rounds {
        let floor = ns_per_call(calls, || {
            std::hint::black_box(rustix::process::getppid());
        });
        let call = ns_per_call(calls, || drop(from.nop()));
        getpid.push(floor);
        nop.push(call);
        empty.push(ns_per_call(calls, || drop(from.call_empty())));
        ratio.push(call / floor);
    }
    let row = |name: &str, samples: &Samples| {
        vec![
            name.to_owned(),
            significant(samples.median()),
            format!("{:.0} %", samples.spread_percent()),
        ]
    };
    table(
        "One system call",
        &["call", "ns", "spread"],
        &[
            row("getppid", &getpid),
            row("hyperio, no ring looked at", &nop),
            row("hyperio, empty ring", &empty),
        ],
    );
    report.figure("hyperio.getpid_ns", &getpid, "ns", "one core");
    report.figure("hyperio.nop_ns", &nop, "ns", "one core");
    report.figure("hyperio.empty_ns", &empty, "ns", "one core");
    report.derived(
        "hyperio.call_ratio",
        empty.median() / getpid.median(),
        "x",
        "empty ring / getppid",
    );
    frames(report, from, to);
    Ok(())
}

fn frames(report: &mut Report, from: &mut Port, to: &mut Port) {
    let rounds = report.effort(11, 3);
    let batches = [1usize, 8, 32, 64, 256];
    let mut rows = Vec::new();
    let mut series: Vec<Series> = batches
        .iter()
        .map(|batch| Series::new(format!("batch {batch}")))
        .collect();
    for len in [64usize, 256, 1024, 1514] {
        let mut row = vec![format!("{len} B")];
        for (batch, series) in batches.into_iter().zip(&mut series) {
            let calls = 200_000 / (batch + 3) / (1 + len / 500);
            let samples: Samples = (0..rounds)
                .map(|_| ns_per_frame(from, to, len, batch, calls))
                .collect();
            row.push(significant(samples.median()));
            series.push(len as f64, &samples);
            report.figure(
                format!("hyperio.{len}.batch{batch}_ns"),
                &samples,
                "ns/frame",
                "one core, sender fills in the length, receiver releases",
            );
        }
        rows.push(row);
    }
    table(
        "ns per frame, link, one core, 256 slots",
        &["size", "batch 1", "8", "32", "64", "256"],
        &rows,
    );
    report.plot(Plot {
        id: "hyperio.frames".to_owned(),
        title: "Forwarding in the sender's context, one core".to_owned(),
        x: Axis::log("frame size in bytes"),
        y: Axis::log("ns per frame"),
        series,
    });
}
