//! D4: classification before the switch, directly into the ring of the first NF, against the same uplink on a switch
//! that looks up the hardware address. And the hybrid for a lack of queues: some NFs are reached directly, the others
//! by a bridge on a switch, as with software switching of all frames.
//!
//! The literature's classifier is a NIC's, with a queue for each NF. An uplink has a NIC classify by `steering: nic`;
//! here the uplink's XDP program classifies, whose table takes 16,384 rules. The option `--nic` tests whether a NIC can
//! classify.
//!
//! First the measurements of all architectures: very many NFs, two per frame, latency. The frames of each core come
//! from a veth; its generator sends out of the near end; the switch forwards to the second NF of a pair.
//!
//! Then the first hop alone, one NF per frame, so that its cost is not hidden by that of the processes: the wire (a
//! generator in the kernel) and the thread in which the kernel receives and runs the uplink's program have one core,
//! the NFs the other. Frames beyond the receive rate are lost before the uplink; the generator's CPU time is not
//! counted.

mod variant;

use super::massive::{Architecture, Buffers, Entry, Sizes, Waiting, measure};
use crate::host::compile;
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep, line, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_netdev::Steering;
use nfluid_switch::classifier::RULES_MAX;
use nfluid_testbed::CannotRun;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::scratch::Scratch;
use std::ops::Range;
use variant::{Shape, Variant, Way};

/// Number of NFs of the hybrid, and of the tables of many rules.
const HYBRID_NFS: u32 = 30;
const CONDITIONS: &str = "frames made in the kernel, veth, native XDP; generator and receive side (threaded NAPI) \
                          on core 0, NFs that count and sleep, and bridge on core 1; CPU time of receive side, \
                          uplink's thread, NFs and bridge";

const KEYS: [&str; 3] = ["way", "NFs", "directly"];
const QUANTITIES: [Quantity; 4] = [
    Quantity::MPPS,
    Quantity::new(".gbps", "Gbit/s", &[("Gbit/s", Shown::Median)]),
    Quantity::MPPS_PER_CPU,
    Quantity::new(".lost_percent", "%", &[("lost %", Shown::Median)]),
];
const MPPS: usize = 0;
const PER_CPU: usize = 2;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    refuse_nic(report.options().nic.as_deref())?;
    massive(report)?;
    let directory = ScratchDirectory::new()?;
    let object = compile::bpf(
        &directory,
        "xdp",
        include_str!("../../../../peers/xdp.bpf.c"),
    )?;
    let queues = report.options().queues.unwrap_or(RULES_MAX as u32);
    let lens = report.choose(vec![64, 700, 1514], vec![64]);
    let counts = report.choose(vec![1, 4, 30, 300], vec![1]);
    let mut bench = Bench {
        scratch: Scratch::new("d4")?,
        object,
        next_switch: 0,
    };
    for len in lens {
        by_number(report, &mut bench, &counts, len, queues)?;
        hybrid(report, &mut bench, len)?;
    }
    many_rules(report, &mut bench)
}

/// Measures two NFs per frame: the first is found by the uplink's classifier, or by the table of its switch.
fn massive(report: &mut Report) -> anyhow::Result<()> {
    let classified = Architecture {
        id: "d4",
        title: "from a wire by the uplink's classifier",
        waiting: Waiting::SLEEPING,
        buffers: Buffers::Isolated,
        entry: Entry::Classifier,
    };
    let switched = Architecture {
        id: "d4.switch",
        title: "from a wire by the uplink's switch",
        entry: Entry::Table,
        ..classified
    };
    measure(report, &[classified, switched], &Sizes::common(report))
}

/// Refuses steering by a NIC whose driver does not support it; the message names the missing feature and the
/// alternative.
fn refuse_nic(nic: Option<&str>) -> anyhow::Result<()> {
    let Some(nic) = nic else { return Ok(()) };
    let why = match Steering::of(nic) {
        Ok(steering) => format!(
            "{nic} can steer flows (it has {} rules now), and an uplink with 'steering: hybrid' has it do so, but this experiment's wire is a veth pair, whose other end sends: leave out --nic, and the uplink classifies by XDP",
            steering.rules
        ),
        Err(error) => format!("{error}; leave out --nic"),
    };
    Err(CannotRun(why).into())
}

struct Bench {
    scratch: Scratch,
    object: std::path::PathBuf,
    next_switch: u32,
}

impl Bench {
    fn side(&mut self, name: &str, id: String, shape: Shape) -> anyhow::Result<Side<Variant>> {
        self.next_switch += 1;
        let switch = self.next_switch;
        let variant = Variant::new(&mut self.scratch, &self.object, shape, switch)?;
        let (nfs, direct) = (shape.nfs, shape.direct());
        let key = [name.to_owned(), nfs.to_string(), direct.to_string()];
        let conditions = format!("{direct} of {nfs} NFs directly; {CONDITIONS}");
        Ok(Side::new(key, id, variant).under(&conditions))
    }

    /// Measures variants in turn.
    fn measure(
        &self,
        report: &mut Report,
        sweep: &mut Sweep<4>,
        mut sides: Vec<Side<Variant>>,
    ) -> anyhow::Result<Range<usize>> {
        let (rounds, seconds) = report.effort((5, 0.5), (2, 0.1));
        sweep.run(report, rounds, &mut sides, |variant, _| {
            variant.measure(&self.scratch.switch, seconds)
        })
    }
}

/// Measures 1 NF and more, the uplink's classifier against a switch; with more NFs than queues, also a hybrid.
fn by_number(
    report: &mut Report,
    bench: &mut Bench,
    counts: &[u32],
    len: usize,
    queues: u32,
) -> anyhow::Result<()> {
    let mut sweep = Sweep::new(&KEYS, QUANTITIES);
    for &nfs in counts {
        let ways = [
            ("classified", Way::Classified(queues.min(nfs))),
            ("switch", Way::Switch),
        ];
        let mut sides = Vec::new();
        for (name, way) in ways {
            let shape = Shape {
                way,
                nfs,
                len,
                idle_rules: 0,
            };
            let side = bench.side(name, format!("d4.one.{name}.{nfs}.{len}"), shape)?;
            sides.push(side.on(name, nfs));
        }
        let rows = bench.measure(report, &mut sweep, sides)?;
        if let [classified, switch] = &sweep.rows()[rows] {
            for (what, of) in [("mpps", MPPS), ("mpps_per_cpu", PER_CPU)] {
                let ratios = classified.samples[of].ratios(&switch.samples[of]);
                let id = format!("d4.one.{nfs}.{len}.{what}_vs_switch");
                report.figure(id, &ratios, "ratio", CONDITIONS);
            }
        }
    }
    report.plot(Plot {
        id: format!("d4.one.{len}"),
        title: format!("From a wire into an NF's ring, one NF per frame, {len} B"),
        x: Axis::log("NFs"),
        y: Axis::linear("Mpps per CPU-second"),
        series: lines(sweep.rows(), PER_CPU),
    });
    sweep.report_all(report);
    sweep.print(&format!(
        "By the uplink's classifier or by a switch, one NF per frame, {len} B"
    ));
    Ok(())
}

/// So many of the same NFs are reached directly.
fn hybrid(report: &mut Report, bench: &mut Bench, len: usize) -> anyhow::Result<()> {
    let percents = report.choose(vec![0, 25, 50, 75, 100], vec![0, 50, 100]);
    let mut sides = Vec::new();
    for percent in percents {
        let shape = Shape {
            way: Way::Classified(HYBRID_NFS * percent / 100),
            nfs: HYBRID_NFS,
            len,
            idle_rules: 0,
        };
        let side = bench.side("hybrid", format!("d4.hybrid.{percent}.{len}"), shape)?;
        sides.push(side.on("", percent));
    }
    let mut sweep = Sweep::new(&KEYS, QUANTITIES);
    bench.measure(report, &mut sweep, sides)?;
    report.plot(Plot {
        id: format!("d4.hybrid.{len}"),
        title: format!("{HYBRID_NFS} NFs, some reached directly, the others by a bridge, {len} B"),
        x: Axis::linear("percent of the NFs reached directly"),
        y: Axis::linear("Mpps"),
        series: vec![
            line("Mpps", sweep.rows(), MPPS),
            line("Mpps per CPU-second", sweep.rows(), PER_CPU),
        ],
    });
    sweep.report_all(report);
    sweep.print(&format!("Queues for some of {HYBRID_NFS} NFs, {len} B"));
    Ok(())
}

/// Measures a table up to its limit, of which only the last rules match.
fn many_rules(report: &mut Report, bench: &mut Bench) -> anyhow::Result<()> {
    let most = RULES_MAX as u32;
    let mut sides = Vec::new();
    for rules in report.choose(vec![HYBRID_NFS, 1000, most], vec![most]) {
        let shape = Shape {
            way: Way::Classified(HYBRID_NFS),
            nfs: HYBRID_NFS,
            len: 64,
            idle_rules: rules - HYBRID_NFS,
        };
        sides.push(bench.side(
            &format!("{rules} rules"),
            format!("d4.rules.{rules}"),
            shape,
        )?);
    }
    let mut sweep = Sweep::new(&KEYS, QUANTITIES);
    bench.measure(report, &mut sweep, sides)?;
    sweep.report_all(report);
    sweep.print("A classifier of many rules, 64 B");
    Ok(())
}
