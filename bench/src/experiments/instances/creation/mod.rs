//! Time until a new instance forwards: from the request to the daemon's API until a probe's frame has passed the
//! instance, with a number of idle instances running. Compared with other ways of starting something isolated.

pub mod peers;
pub mod setup;

use crate::host::cpu::require_two_cores;
use crate::phases::{PARTS, Phases};
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use peers::Peers;
use setup::{Created, Setup, Way};

/// Shells of the pool from which many instances are taken at a time.
const SHELLS: usize = 32;
const SHELLS_QUICK: usize = 16;
/// Shells of the pools of other stages: one is taken once the pool is full, and some daemons take long to fill it.
const SHELLS_FEW: usize = 4;

/// The quantities of one way of creating instances.
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        ".median_ms",
        "ms",
        &[("median", Shown::Median), ("p99", Shown::P99)],
    )
    .with_p99(".p99_ms")
    .meaning("from the request on an open connection to the first frame through the instance"),
    Quantity::shown(&[("answer", Shown::Median)]),
    Quantity::new(".end_ms", "ms", &[("end", Shown::Median)])
        .meaning("from the request to end the instance to the answer"),
];
/// The quantity of a peer.
const PEER: [Quantity; 1] = [Quantity::new(
    ".median_ms",
    "ms",
    &[("median", Shown::Median), ("p99", Shown::P99)],
)];

/// A way of creating an instance, with a number of idle instances.
struct Variant {
    name: &'static str,
    idle: usize,
    first_packet_ms: Samples,
    answer_ms: Samples,
    end_ms: Samples,
    /// Parts of the time until the first frame.
    phases: Phases,
}

impl Variant {
    fn new(name: &'static str, idle: usize) -> Self {
        Variant {
            name,
            idle,
            first_packet_ms: Samples::default(),
            answer_ms: Samples::default(),
            end_ms: Samples::default(),
            phases: Phases::default(),
        }
    }

    fn push(&mut self, created: Created) {
        self.first_packet_ms.push(created.first_packet_ms);
        self.answer_ms.push(created.answer_ms);
        self.end_ms.push(created.end_ms);
        self.phases.push(created.phases);
    }
}

/// A daemon without some mechanisms, the instances that are created on it, and the largest number of idle instances:
/// without batches a thousand take a minute.
struct Stage {
    name: &'static str,
    without: &'static str,
    variants: &'static [(&'static str, Way)],
    most: usize,
}

/// The stages, each with one mechanism more, as in fig. 9 of LightVM. The last stage has all.
const STAGES: [Stage; 3] = [
    Stage {
        name: "-lean",
        without: "batches,zygote",
        variants: &[
            ("plain", Way::Whole),
            ("lean", Way::One),
            ("lean_pool", Way::Pool),
        ],
        most: 1000,
    },
    Stage {
        name: "-batched",
        without: "zygote",
        variants: &[("batched", Way::One)],
        most: 1000,
    },
    Stage {
        name: "",
        without: "",
        variants: &[("nopool", Way::One), ("pool", Way::Pool)],
        most: usize::MAX,
    },
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let numbers = report.choose(&[1, 100, 1000, 8000, 10_000][..], &[1, 20][..]);
    let (cycles, rounds) = report.effort((100, 30), (4, 2));
    let shells = report.choose(SHELLS, SHELLS_QUICK);
    let mut setups = start_all()?;
    let mut peers = Peers::new()?;
    let mut variants = Vec::new();
    let (storms, storm) = report.effort((3, 500), (1, 100));
    let (mut rate, mut end_rate) = (Samples::default(), Samples::default());
    let mut measured = 0;
    for number in numbers {
        setups.retain(|(stage, _)| *number <= stage.most);
        let mut refused = None;
        for (_, setup) in &mut setups {
            refused = refused.or(setup.populate(*number).err());
            interrupt::check()?;
        }
        if let Some(why) = &refused {
            println!("{number} instances are not to be had here: {why:#}");
        }
        let Some((_, whole)) = setups.last() else {
            break;
        };
        let number = whole.instances();
        if number == measured {
            break;
        }
        measured = number;
        variants.extend(in_turn(&mut setups, number, cycles)?);
        // One stage at a time: a pool that is refilled or removed would disturb another daemon. The daemon that removes
        // its maps one by one comes last.
        for (stage, setup) in setups.iter_mut().rev() {
            let pooled = stage.variants.iter().find(|(_, way)| *way == Way::Pool);
            let Some((name, way)) = pooled else { continue };
            let has_all = stage.without.is_empty();
            setup.pool(if has_all { shells } else { SHELLS_FEW })?;
            let mut variant = Variant::new(name, number);
            for _ in 0..cycles {
                variant.push(setup.cycle(*way)?);
            }
            variants.push(variant);
            if has_all {
                for _ in 0..storms {
                    let (made, ended) = setup.storm(storm)?;
                    rate.push(made);
                    end_rate.push(ended);
                }
            }
            setup.pool(0)?;
        }
        if refused.is_some() {
            break;
        }
    }
    drop(setups);
    let mut number = 0;
    for _ in 0..rounds {
        interrupt::check()?;
        for peer in &mut peers.found {
            number += 1;
            peer.measure(number)?;
        }
    }
    show(report, &variants);
    show_phases(report, &variants);
    let conditions = format!(
        "{storm} instances over several connections at a time, with a pool of {shells} that is refilled meanwhile"
    );
    report.figure("l2.rate_per_s", &rate, "1/s", &conditions);
    report.figure("l2.end_rate_per_s", &end_rate, "1/s", &conditions);
    compare(report, &peers, measured);
    Ok(())
}

/// Starts the platforms of all stages in parallel: most of a start is the kernel's verification of the switch.
fn start_all() -> anyhow::Result<Vec<(&'static Stage, Setup)>> {
    std::thread::scope(|scope| {
        let start = |stage: &'static Stage| {
            let setup = scope.spawn(|| Setup::lacking(stage.name, stage.without));
            (stage, setup)
        };
        let starting: Vec<_> = STAGES.iter().map(start).collect();
        let await_one = |(stage, setup): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            let setup: anyhow::Result<Setup> = setup
                .join()
                .map_err(|_| anyhow::anyhow!("the thread that starts a platform has failed"))?;
            Ok((stage, setup?))
        };
        starting.into_iter().map(await_one).collect()
    })
}

/// Creates instances in all ways without a pool alternately, in a number of rounds.
fn in_turn(
    setups: &mut [(&Stage, Setup)],
    number: usize,
    cycles: usize,
) -> anyhow::Result<Vec<Variant>> {
    let ways = setups.iter().enumerate().flat_map(|(setup, (stage, _))| {
        let variants = stage.variants.iter().filter(|(_, way)| *way != Way::Pool);
        variants.map(move |(name, way)| (setup, *way, Variant::new(name, number)))
    });
    let mut variants: Vec<_> = ways.collect();
    for _ in 0..cycles {
        for (setup, way, variant) in &mut variants {
            variant.push(setups[*setup].1.cycle(*way)?);
        }
    }
    Ok(variants
        .into_iter()
        .map(|(_, _, variant)| variant)
        .collect())
}

fn show(report: &mut Report, variants: &[Variant]) {
    let mut sweep = Sweep::plain(&["", "beside"], QUANTITIES);
    for variant in variants {
        let (name, idle) = (variant.name, variant.idle);
        let side = Side::new(
            [name.to_owned(), idle.to_string()],
            format!("l2.{name}.{idle}"),
            (),
        );
        let samples = [
            &variant.first_packet_ms,
            &variant.answer_ms,
            &variant.end_ms,
        ];
        let side = side.under(&format!("beside {idle} instances"));
        sweep.add(&side.on(name, idle as f64), samples.map(Samples::clone));
    }
    sweep.print("Create -> first packet forwarded (bridge, 2 ports of 64 slots), ms");
    sweep.report_all(report);
    let pool = variants.iter().filter(|variant| variant.name == "pool");
    let medians: Vec<f64> = pool
        .map(|variant| variant.first_packet_ms.median())
        .collect();
    if let (Some(first), Some(last)) = (medians.first(), medians.last()) {
        let percent = (last / first - 1.0) * 100.0;
        let what = "what the median beside most instances is more than beside none";
        report.derived("l2.pool.growth_percent", percent, "%", what);
    }
    report.plot(Plot {
        id: "l2.first_packet".to_owned(),
        title: "Create -> first packet forwarded".to_owned(),
        x: Axis::linear("instances that are there already"),
        y: Axis::linear("ms"),
        series: lines(sweep.rows(), 0),
    });
}

/// Prints the phases of the creation of single instances.
fn show_phases(report: &mut Report, variants: &[Variant]) {
    let mut parts = Sweep::plain(&["", "phase"], PARTS);
    let what = "a part of the time until the first frame; 'names' and 'connect' are beside 'start'";
    for variant in variants.iter().filter(|variant| variant.name != "plain") {
        let (name, idle) = (variant.name, variant.idle);
        let key = format!("{name} {idle}");
        let prefix = format!("l2.{name}.{idle}");
        variant.phases.add_to(&mut parts, &[&key], &prefix, what);
    }
    parts.report_all(report);
    parts.print("Where the time goes, ms (names, connect: beside start)");
}

fn compare(report: &mut Report, peers: &Peers, idle: usize) {
    let mut sweep = Sweep::plain(&[""], PEER);
    sweep.notes = &["what"];
    for peer in &peers.found {
        let conditions = format!("{}, until it has ended; beside {idle} instances", peer.what);
        let side = Side::new([peer.name.to_owned()], format!("l2.{}", peer.name), ());
        sweep.add(&side.under(&conditions), [peer.ms.clone()]);
    }
    for (row, peer) in sweep.rows_mut().iter_mut().zip(&peers.found) {
        row.notes.push(peer.what.to_owned());
    }
    sweep.print("What else starts a program that does nothing, until it has ended, ms");
    sweep.report_all(report);
    for (name, why) in &peers.left_out {
        println!("{name} left out: {why}");
    }
}
