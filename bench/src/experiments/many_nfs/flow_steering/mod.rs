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
use crate::report::{Report, gbps, significant, table};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_netdev::Steering;
use nfluid_switch::classifier::RULES_MAX;
use nfluid_testbed::CannotRun;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::scratch::Scratch;
use variant::{Shape, Variant, Way};

/// Number of NFs of the hybrid, and of the tables of many rules.
const HYBRID_NFS: u32 = 30;
const CONDITIONS: &str = "frames made in the kernel, veth, native XDP; generator and receive side (threaded NAPI) \
                          on core 0, NFs that count and sleep, and bridge on core 1; CPU time of receive side, \
                          uplink's thread, NFs and bridge";

/// Selects the samples of a variant that the table shows.
type Of = fn(&Variant) -> &Samples;

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
    /// Measures variants alternately.
    fn measure(&mut self, report: &mut Report, shapes: &[Shape]) -> anyhow::Result<Vec<Variant>> {
        let (rounds, seconds) = report.effort((5, 0.5), (2, 0.1));
        let mut variants = Vec::new();
        for shape in shapes {
            self.next_switch += 1;
            let switch = self.next_switch;
            variants.push(Variant::new(
                &mut self.scratch,
                &self.object,
                *shape,
                switch,
            )?);
        }
        for round in 0..=rounds {
            for variant in &mut variants {
                report.settle();
                // The first round warms up.
                variant.measure(&self.scratch.switch, seconds, round > 0)?;
            }
        }
        Ok(variants)
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
    let mut plotted: Vec<Series> = ["classified", "switch"].map(Series::new).into();
    let mut rows = Vec::new();
    for &nfs in counts {
        let shape = |way| Shape {
            way,
            nfs,
            len,
            idle_rules: 0,
        };
        let ways = [Way::Classified(queues.min(nfs)), Way::Switch];
        let variants = bench.measure(report, &ways.map(shape))?;
        for ((series, variant), name) in plotted
            .iter_mut()
            .zip(&variants)
            .zip(["classified", "switch"])
        {
            series.push(f64::from(nfs), &variant.per_cpu);
            figures(report, &format!("d4.one.{name}.{nfs}.{len}"), variant);
            rows.push(row(name, variant));
        }
        if let [classified, switch] = &variants[..] {
            for (what, of) in OF {
                let ratios = of(classified).ratios(of(switch));
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
        series: plotted,
    });
    print(
        &format!("By the uplink's classifier or by a switch, one NF per frame, {len} B"),
        &rows,
    );
    Ok(())
}

/// The comparison of two variants.
const OF: [(&str, Of); 2] = [
    ("mpps", |variant| &variant.mpps),
    ("mpps_per_cpu", |variant| &variant.per_cpu),
];

/// Measures NFs of which a growing number is reached directly.
fn hybrid(report: &mut Report, bench: &mut Bench, len: usize) -> anyhow::Result<()> {
    let percents = report.choose(vec![0, 25, 50, 75, 100], vec![0, 50, 100]);
    let shape = |percent: &u32| Shape {
        way: Way::Classified(HYBRID_NFS * percent / 100),
        nfs: HYBRID_NFS,
        len,
        idle_rules: 0,
    };
    let shapes: Vec<Shape> = percents.iter().map(shape).collect();
    let variants = bench.measure(report, &shapes)?;
    let mut plotted = [Series::new("Mpps"), Series::new("Mpps per CPU-second")];
    let mut rows = Vec::new();
    for (percent, variant) in percents.iter().zip(&variants) {
        for (series, (_, of)) in plotted.iter_mut().zip(OF) {
            series.push(f64::from(*percent), of(variant));
        }
        figures(report, &format!("d4.hybrid.{percent}.{len}"), variant);
        rows.push(row("hybrid", variant));
    }
    report.plot(Plot {
        id: format!("d4.hybrid.{len}"),
        title: format!("{HYBRID_NFS} NFs, some reached directly, the others by a bridge, {len} B"),
        x: Axis::linear("percent of the NFs reached directly"),
        y: Axis::linear("Mpps"),
        series: plotted.into(),
    });
    print(
        &format!("Queues for some of {HYBRID_NFS} NFs, {len} B"),
        &rows,
    );
    Ok(())
}

/// Measures a table up to its limit, of which only the last rules match.
fn many_rules(report: &mut Report, bench: &mut Bench) -> anyhow::Result<()> {
    let most = RULES_MAX as u32;
    let tables = report.choose(vec![HYBRID_NFS, 1000, most], vec![most]);
    let shape = |rules: &u32| Shape {
        way: Way::Classified(HYBRID_NFS),
        nfs: HYBRID_NFS,
        len: 64,
        idle_rules: rules - HYBRID_NFS,
    };
    let shapes: Vec<Shape> = tables.iter().map(shape).collect();
    let variants = bench.measure(report, &shapes)?;
    let mut rows = Vec::new();
    for (rules, variant) in tables.iter().zip(&variants) {
        figures(report, &format!("d4.rules.{rules}"), variant);
        rows.push(row(&format!("{rules} rules"), variant));
    }
    print("A classifier of many rules, 64 B", &rows);
    Ok(())
}

fn figures(report: &mut Report, id: &str, variant: &Variant) {
    let shape = &variant.shape;
    let conditions = format!(
        "{} of {} NFs directly; {CONDITIONS}",
        shape.direct(),
        shape.nfs
    );
    let gbps: Samples = variant
        .mpps
        .values()
        .iter()
        .map(|mpps| gbps(*mpps, shape.len))
        .collect();
    report.figure(format!("{id}.mpps"), &variant.mpps, "Mpps", &conditions);
    report.figure(format!("{id}.gbps"), &gbps, "Gbit/s", &conditions);
    report.figure(
        format!("{id}.mpps_per_cpu"),
        &variant.per_cpu,
        "Mpps",
        &conditions,
    );
    report.figure(
        format!("{id}.lost_percent"),
        &variant.lost_percent,
        "%",
        &conditions,
    );
}

fn row(name: &str, variant: &Variant) -> Vec<String> {
    let spread = |samples: &Samples| format!("{:.0} %", samples.spread_percent());
    vec![
        name.to_owned(),
        variant.shape.nfs.to_string(),
        variant.shape.direct().to_string(),
        significant(variant.mpps.median()),
        spread(&variant.mpps),
        significant(gbps(variant.mpps.median(), variant.shape.len)),
        significant(variant.per_cpu.median()),
        spread(&variant.per_cpu),
        significant(variant.lost_percent.median()),
    ]
}

fn print(title: &str, rows: &[Vec<String>]) {
    let header = [
        "way",
        "NFs",
        "directly",
        "Mpps",
        "spread",
        "Gbit/s",
        "Mpps per CPU-second",
        "spread",
        "lost %",
    ];
    table(title, &header, rows);
}
