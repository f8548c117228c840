//! H3: the synchronisation round trip, NF -> I/O thread -> NF, against a hyperio call (HyperNF,
//! SoCC '17: 26.3 us against 0.507 us).
//!
//! The NF hands over one frame and sleeps until the I/O thread has run the switch for the frame; the hyperio call does
//! the same work with the same frame. Both are timed by the NF's clock. The floors for comparison: a system call, a
//! hyperio call that does nothing, and a round trip of a byte between two processes.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::{Report, significant, table};
use crate::roles::{Role, Task};
use crate::setups::hyperio_call::ns_per_call;
use crate::setups::loopback::{self, Loopback};
use crate::setups::pipe_chain::PipeChain;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::time::Duration;

/// Pause between two frames after which the I/O thread sleeps on another core.
const PAUSE_US: u64 = 500;

/// A way to get a frame through the switch.
struct Variant {
    figure: &'static str,
    name: &'static str,
    conditions: &'static str,
    process: Loopback,
    median_us: Samples,
    p99_us: Samples,
    /// CPU time of both sides per round trip; empty where the NF pauses.
    cpu_us: Samples,
    pauses: bool,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut scratch = Scratch::new("h3")?;
    let mut variants = variants(&mut scratch)?;
    let mut token = PipeChain::start(1, Model::nf_core())?;
    let mut calls = Calls::new(&mut scratch)?;
    let mut floor = Samples::default();
    let (rounds, seconds) = report.effort((15, 0.5), (5, 0.2));
    for round in 0..=rounds {
        // The first round warms up.
        for variant in &mut variants {
            variant.measure(seconds, round > 0)?;
        }
        let trip = token.measure(Duration::from_secs_f64(seconds / 4.0))?;
        if round > 0 {
            floor.push(trip);
            calls.measure(report.effort(100_000, 20_000));
        }
    }
    figures(report, &variants, &calls, &floor);
    Ok(())
}

fn variants(scratch: &mut Scratch) -> anyhow::Result<Vec<Variant>> {
    let mut variant = |figure, model: Model, pause_us, name, conditions| {
        let role = Role {
            core: Model::nf_core(),
            task: Task::HandOver { pause_us },
        };
        anyhow::Ok(Variant {
            figure,
            name,
            conditions,
            process: Loopback::start(scratch, model, &[role])?,
            median_us: Samples::default(),
            p99_us: Samples::default(),
            cpu_us: Samples::default(),
            pauses: pause_us > 0,
        })
    };
    Ok(vec![
        variant(
            "hyperio_us",
            Model::Inline,
            0,
            "hyperio call",
            "one frame of 64 B, the NF's process runs the switch itself",
        )?,
        variant(
            "iothread_us",
            Model::Merge,
            0,
            "I/O thread, same core",
            "the same frame, an I/O thread of another process on the same core; both sleep in turn",
        )?,
        variant(
            "othercore_us",
            Model::Split { polls: false },
            PAUSE_US,
            "I/O thread, other core, asleep",
            "the same frame, an I/O thread of another process on another core, asleep when the frame comes",
        )?,
        variant(
            "polling_us",
            Model::Split { polls: true },
            0,
            "I/O thread, other core, polling",
            "the same frame, an I/O thread of another process that polls on another core, all of it",
        )?,
    ])
}

impl Variant {
    fn measure(&mut self, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let run = self.process.run(seconds)?;
        if counts {
            let process = run.processes[0];
            self.median_us.push(process.median_us);
            self.p99_us.push(process.p99_us);
            if !self.pauses {
                let cpu_us = run.cpu_seconds() * 1e6;
                self.cpu_us.push(cpu_us / process.frames.max(1) as f64);
            }
        }
        Ok(())
    }

    fn row(&self) -> Vec<String> {
        let cpu = if self.pauses {
            "-".to_owned()
        } else {
            significant(self.cpu_us.median())
        };
        vec![
            self.name.to_owned(),
            significant(self.median_us.median()),
            format!("{:.0} %", self.median_us.spread_percent()),
            significant(self.p99_us.median()),
            cpu,
        ]
    }
}

/// Calls without a frame, in CPU time.
struct Calls {
    attached: nfluid_ring::attach::Attached,
    getppid_ns: Samples,
    nop_us: Samples,
    empty_us: Samples,
    _instance: ScratchInstance,
}

impl Calls {
    fn new(scratch: &mut Scratch) -> anyhow::Result<Self> {
        let instance = scratch.instance(1, loopback::RING, 64)?;
        Ok(Calls {
            attached: instance.attach()?,
            getppid_ns: Samples::default(),
            nop_us: Samples::default(),
            empty_us: Samples::default(),
            _instance: instance,
        })
    }

    fn measure(&mut self, calls: usize) {
        let port = &self.attached.ports[0];
        self.getppid_ns.push(ns_per_call(calls, || {
            std::hint::black_box(rustix::process::getppid());
        }));
        self.nop_us
            .push(ns_per_call(calls, || drop(port.nop())) / 1000.0);
        self.empty_us
            .push(ns_per_call(calls, || drop(port.call_empty())) / 1000.0);
    }
}

fn figures(report: &mut Report, variants: &[Variant], calls: &Calls, floor: &Samples) {
    let mut rows: Vec<_> = variants.iter().map(Variant::row).collect();
    let one = |name: &str, samples: &Samples| {
        let median = significant(samples.median());
        let spread = format!("{:.0} %", samples.spread_percent());
        vec![
            name.to_owned(),
            median.clone(),
            spread,
            "-".to_owned(),
            median,
        ]
    };
    let getppid_us: Samples = calls
        .getppid_ns
        .values()
        .iter()
        .map(|ns| ns / 1e3)
        .collect();
    rows.push(one("getppid", &getppid_us));
    rows.push(one("hyperio call, no ring looked at", &calls.nop_us));
    rows.push(one("hyperio call, empty ring", &calls.empty_us));
    rows.push(vec![
        "a byte to another process and back".to_owned(),
        significant(floor.median()),
        format!("{:.0} %", floor.spread_percent()),
        "-".to_owned(),
        "-".to_owned(),
    ]);
    let header = [
        "round trip",
        "us",
        "spread",
        "p99 us",
        "CPU us of both sides",
    ];
    table("One frame through the switch, and floors", &header, &rows);
    for variant in variants {
        report.figure(
            format!("h3.{}", variant.figure),
            &variant.median_us,
            "us",
            variant.conditions,
        );
    }
    report.figure(
        "h3.hyperio_nop_us",
        &calls.nop_us,
        "us",
        "no ring looked at",
    );
    report.figure(
        "h3.hyperio_empty_us",
        &calls.empty_us,
        "us",
        "an empty ring",
    );
    report.figure("h3.syscall_ns", &calls.getppid_ns, "ns", "getppid");
    let pipes = "a byte to another process and back by pipes, same core: no frame, no switch";
    report.figure("h3.pipes_us", floor, "us", pipes);
    ratios(report, variants, calls);
    report.plot(plot(variants));
}

fn ratios(report: &mut Report, variants: &[Variant], calls: &Calls) {
    let [inline, same, other, ..] = variants else {
        return;
    };
    let mut add = |id: &str, slow: &Samples, fast: &Samples, conditions: &str| {
        report.figure(id, &slow.ratios(fast), "ratio", conditions);
    };
    let conditions = "I/O thread on the same core against a hyperio call with the same frame";
    add(
        "h3.roundtrip_ratio",
        &same.median_us,
        &inline.median_us,
        conditions,
    );
    let conditions = "I/O thread on the same core against a hyperio call with an empty ring";
    add(
        "h3.roundtrip_empty_ratio",
        &same.median_us,
        &calls.empty_us,
        conditions,
    );
    let conditions =
        "sleeping I/O thread on another core against a hyperio call with the same frame";
    add(
        "h3.othercore_ratio",
        &other.median_us,
        &inline.median_us,
        conditions,
    );
}

fn plot(variants: &[Variant]) -> Plot {
    let mut series = Series::new("median");
    let mut p99 = Series::new("p99");
    for (index, variant) in variants.iter().enumerate() {
        series.push(index as f64, &variant.median_us);
        p99.push(index as f64, &variant.p99_us);
    }
    let names = variants
        .iter()
        .map(|variant| variant.figure.replace("_us", ""));
    Plot {
        id: "h3.roundtrip".to_owned(),
        title: "One frame: NF, whoever runs the switch, NF".to_owned(),
        x: Axis::categories("who runs the switch", names),
        y: Axis::log("us"),
        series: vec![series, p99],
    }
}
