//! H3: the synchronisation round trip, NF -> I/O thread -> NF, against a hyperio call (HyperNF,
//! SoCC '17: 26.3 us against 0.507 us).
//!
//! The NF hands over one frame and sleeps until the I/O thread has run the switch for the frame; the hyperio call does
//! the same work with the same frame. Both are timed by the NF's clock. The floors for comparison: a system call, a
//! hyperio call that does nothing, and a round trip of a byte between two processes.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::Report;
use crate::roles::{Role, Task};
use crate::setups::hyperio_call::ns_per_call;
use crate::setups::loopback::{self, Loopback};
use crate::setups::pipe_chain::PipeChain;
use crate::sweep::{Quantity, Shown, Side, Sweep, line};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_testbed::scratch::Scratch;
use std::time::Duration;

/// Pause between two frames after which the I/O thread sleeps on another core.
const PAUSE_US: u64 = 500;

/// Ways to get a frame through the switch: name in figures, who runs the switch, microseconds between two frames,
/// name in the table, conditions.
const WAYS: [(&str, Model, u64, &str, &str); 4] = [
    (
        "hyperio",
        Model::Inline,
        0,
        "hyperio call",
        "one frame of 64 B, the NF's process runs the switch itself",
    ),
    (
        "iothread",
        Model::Merge,
        0,
        "I/O thread, same core",
        "the same frame, an I/O thread of another process on the same core; both sleep in turn",
    ),
    (
        "othercore",
        Model::Split { polls: false },
        PAUSE_US,
        "I/O thread, other core, asleep",
        "the same frame, an I/O thread of another process on another core, asleep when the frame comes",
    ),
    (
        "polling",
        Model::Split { polls: true },
        0,
        "I/O thread, other core, polling",
        "the same frame, an I/O thread of another process that polls on another core, all of it",
    ),
];

/// The quantities of a way, and of a floor.
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        "_us",
        "us",
        &[("us", Shown::Median), ("spread", Shown::Spread)],
    ),
    Quantity::shown(&[("p99 us", Shown::Median)]),
    Quantity::shown(&[("CPU us of both sides", Shown::Median)]),
];

/// Returns the quantities of a run.
type Measure<'a> = Box<dyn FnMut() -> anyhow::Result<[f64; 3]> + 'a>;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut scratch = Scratch::new("h3")?;
    let (rounds, seconds) = report.effort((15, 0.5), (5, 0.2));
    let calls = report.effort(100_000, 20_000);
    let instance = scratch.instance(1, loopback::RING, 64)?;
    let attached = instance.attach()?;
    let port = &attached.ports[0];
    let mut sides = Vec::new();
    for (at, (id, model, pause_us, name, conditions)) in WAYS.into_iter().enumerate() {
        let way = through_switch(&mut scratch, model, pause_us, seconds)?;
        sides.push(side(name, id, way).under(conditions).on("", at as f64));
    }
    let nop = move || ns_per_call(calls, || drop(port.nop()));
    let empty = move || ns_per_call(calls, || drop(port.call_empty()));
    let getppid = move || {
        ns_per_call(calls, || {
            std::hint::black_box(rustix::process::getppid());
        })
    };
    let mut token = PipeChain::start(1, Model::nf_core())?;
    let time = Duration::from_secs_f64(seconds / 4.0);
    let pipes = move || Ok([token.measure(time)?, f64::NAN, f64::NAN]);
    sides.extend([
        side("hyperio call, no ring looked at", "hyperio_nop", call(nop))
            .under("no ring looked at"),
        side("hyperio call, empty ring", "hyperio_empty", call(empty)).under("an empty ring"),
        side(
            "a byte to another process and back",
            "pipes",
            Box::new(pipes),
        )
        .under("a byte to another process and back by pipes, same core: no frame, no switch"),
        side("getppid", "syscall", call(getppid)),
    ]);
    let mut sweep = Sweep::new(&["round trip"], QUANTITIES);
    sweep.settles = false;
    let rows = sweep.run(report, rounds, &mut sides, |measure, _| measure())?;
    sweep.print("One frame through the switch, and floors");
    // The last one's unit is another.
    sweep.report(report, rows.start..rows.end - 1);
    figures(report, &sweep);
    Ok(())
}

fn side<'a>(name: &str, id: &str, measure: Measure<'a>) -> Side<Measure<'a>> {
    Side::new([name.to_owned()], format!("h3.{id}"), measure)
}

/// An NF that hands frames over. Where it pauses, its CPU time says nothing.
fn through_switch(
    scratch: &mut Scratch,
    model: Model,
    pause_us: u64,
    seconds: f64,
) -> anyhow::Result<Measure<'static>> {
    let role = Role {
        core: Model::nf_core(),
        task: Task::HandOver { pause_us },
    };
    let mut process = Loopback::start(scratch, model, &[role])?;
    Ok(Box::new(move || {
        let run = process.run(seconds)?;
        let nf = run.processes[0];
        let cpu_us = match pause_us {
            0 => run.cpu_seconds() * 1e6 / nf.frames.max(1) as f64,
            _ => f64::NAN,
        };
        Ok([nf.median_us, nf.p99_us, cpu_us])
    }))
}

/// Calls without a frame, in CPU time.
fn call<'a>(ns: impl Fn() -> f64 + 'a) -> Measure<'a> {
    Box::new(move || {
        let us = ns() / 1e3;
        Ok([us, f64::NAN, us])
    })
}

fn figures(report: &mut Report, sweep: &Sweep<3>) {
    let [inline, same, other, polling, _, empty, _, getppid] = sweep.rows() else {
        return;
    };
    let ns = getppid.samples[0].values().iter().map(|us| us * 1e3);
    report.figure("h3.syscall_ns", &ns.collect(), "ns", "getppid");
    for (id, slow, fast, conditions) in [
        (
            "h3.roundtrip_ratio",
            same,
            inline,
            "I/O thread on the same core against a hyperio call with the same frame",
        ),
        (
            "h3.roundtrip_empty_ratio",
            same,
            empty,
            "I/O thread on the same core against a hyperio call with an empty ring",
        ),
        (
            "h3.othercore_ratio",
            other,
            inline,
            "sleeping I/O thread on another core against a hyperio call with the same frame",
        ),
    ] {
        let ratios = slow.samples[0].ratios(&fast.samples[0]);
        report.figure(id, &ratios, "ratio", conditions);
    }
    let of = |name, quantity| line(name, [inline, same, other, polling], quantity);
    report.plot(Plot {
        id: "h3.roundtrip".to_owned(),
        title: "One frame: NF, whoever runs the switch, NF".to_owned(),
        x: Axis::categories("who runs the switch", WAYS.map(|(id, ..)| id)),
        y: Axis::log("us"),
        series: vec![of("median", 0), of("p99", 1)],
    });
}
