//! How long it takes until a new instance forwards: from the request to the daemon's API until a frame that a probe sends
//! again and again has come through the instance, beside so many idle ones. Beside it what else starts something isolated.

pub mod bed;
pub mod peers;

use super::phases::Phases;
use super::two_cores;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::statistics::Samples;
use bed::{Bed, Created, Way};
use nfluid_testbed::interrupt;
use peers::Peers;

/// Shells of the pool that many are taken from at a time.
const SHELLS: usize = 32;
const SHELLS_QUICK: usize = 16;
/// Shells of another's: one is taken once it is full, and some daemons take long to fill it.
const SHELLS_FEW: usize = 4;

/// One way to make an instance, beside so many others.
struct Lane {
    name: &'static str,
    idle: usize,
    first_packet_ms: Samples,
    answer_ms: Samples,
    end_ms: Samples,
    /// Parts of the time until the first frame.
    phases: Phases,
}

impl Lane {
    fn new(name: &'static str, idle: usize) -> Self {
        Lane {
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

/// What a daemon does without, which instances are made on it, and beside how many others at most: without batches
/// a thousand take a minute.
struct Stage {
    name: &'static str,
    without: &'static str,
    lanes: &'static [(&'static str, Way)],
    most: usize,
}

/// One mechanism after the other, as fig. 9 of LightVM has them. The last one has all.
const STAGES: [Stage; 3] = [
    Stage {
        name: "-lean",
        without: "batches,zygote",
        lanes: &[
            ("plain", Way::Whole),
            ("lean", Way::One),
            ("lean_pool", Way::Pool),
        ],
        most: 1000,
    },
    Stage {
        name: "-batched",
        without: "zygote",
        lanes: &[("batched", Way::One)],
        most: 1000,
    },
    Stage {
        name: "",
        without: "",
        lanes: &[("nopool", Way::One), ("pool", Way::Pool)],
        most: usize::MAX,
    },
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let numbers = report.choose(&[1, 100, 1000, 8000, 10_000][..], &[1, 20][..]);
    let (cycles, rounds) = report.effort((100, 30), (4, 2));
    let shells = report.choose(SHELLS, SHELLS_QUICK);
    let mut beds = start_all()?;
    let mut peers = Peers::new()?;
    let mut lanes = Vec::new();
    let (storms, storm) = report.effort((3, 500), (1, 100));
    let (mut rate, mut end_rate) = (Samples::default(), Samples::default());
    let mut measured = 0;
    for number in numbers {
        beds.retain(|(stage, _)| *number <= stage.most);
        let mut refused = None;
        for (_, bed) in &mut beds {
            refused = refused.or(bed.populate(*number).err());
            interrupt::check()?;
        }
        if let Some(why) = &refused {
            println!("{number} instances are not to be had here: {why:#}");
        }
        let Some((_, whole)) = beds.last() else { break };
        let number = whole.instances();
        if number == measured {
            break;
        }
        measured = number;
        lanes.extend(in_turn(&mut beds, number, cycles)?);
        // One after the other: a pool that is refilled, or taken down, would be in the way of another daemon. The one that
        // takes its down map by map comes last.
        for (stage, bed) in beds.iter_mut().rev() {
            let pooled = stage.lanes.iter().find(|(_, way)| *way == Way::Pool);
            let Some((name, way)) = pooled else { continue };
            let has_all = stage.without.is_empty();
            bed.pool(if has_all { shells } else { SHELLS_FEW })?;
            let mut lane = Lane::new(name, number);
            for _ in 0..cycles {
                lane.push(bed.cycle(*way)?);
            }
            lanes.push(lane);
            if has_all {
                for _ in 0..storms {
                    let (made, ended) = bed.storm(storm)?;
                    rate.push(made);
                    end_rate.push(ended);
                }
            }
            bed.pool(0)?;
        }
        if refused.is_some() {
            break;
        }
    }
    drop(beds);
    let mut number = 0;
    for _ in 0..rounds {
        interrupt::check()?;
        for peer in &mut peers.found {
            number += 1;
            peer.measure(number)?;
        }
    }
    show(report, &lanes);
    show_phases(report, &lanes);
    let conditions = format!(
        "{storm} instances over several connections at a time, with a pool of {shells} that is refilled meanwhile"
    );
    report.figure("l2.rate_per_s", &rate, "1/s", &conditions);
    report.figure("l2.end_rate_per_s", &end_rate, "1/s", &conditions);
    compare(report, &peers, measured);
    Ok(())
}

/// The platforms of all stages, started at the same time: most of a start is the kernel's, which looks through the switch.
fn start_all() -> anyhow::Result<Vec<(&'static Stage, Bed)>> {
    std::thread::scope(|scope| {
        let start = |stage: &'static Stage| {
            let bed = scope.spawn(|| Bed::lacking(stage.name, stage.without));
            (stage, bed)
        };
        let starting: Vec<_> = STAGES.iter().map(start).collect();
        let await_one = |(stage, bed): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            let bed: anyhow::Result<Bed> = bed
                .join()
                .map_err(|_| anyhow::anyhow!("the thread that starts a platform has failed"))?;
            Ok((stage, bed?))
        };
        starting.into_iter().map(await_one).collect()
    })
}

/// Makes instances in all ways that need no pool, one after the other, so many times.
fn in_turn(beds: &mut [(&Stage, Bed)], number: usize, cycles: usize) -> anyhow::Result<Vec<Lane>> {
    let ways = beds.iter().enumerate().flat_map(|(bed, (stage, _))| {
        let lanes = stage.lanes.iter().filter(|(_, way)| *way != Way::Pool);
        lanes.map(move |(name, way)| (bed, *way, Lane::new(name, number)))
    });
    let mut lanes: Vec<_> = ways.collect();
    for _ in 0..cycles {
        for (bed, way, lane) in &mut lanes {
            lane.push(beds[*bed].1.cycle(*way)?);
        }
    }
    Ok(lanes.into_iter().map(|(_, _, lane)| lane).collect())
}

fn show(report: &mut Report, lanes: &[Lane]) {
    let row = |lane: &Lane| {
        vec![
            lane.name.to_owned(),
            lane.idle.to_string(),
            significant(lane.first_packet_ms.median()),
            significant(lane.first_packet_ms.p99()),
            significant(lane.answer_ms.median()),
            significant(lane.end_ms.median()),
        ]
    };
    let rows: Vec<_> = lanes.iter().map(row).collect();
    table(
        "Create -> first packet forwarded (bridge, 2 ports of 64 slots), ms",
        &["", "beside", "median", "p99", "answer", "end"],
        &rows,
    );
    let mut series: Vec<Series> = Vec::new();
    for lane in lanes {
        let id = format!("l2.{}.{}", lane.name, lane.idle);
        let conditions = format!(
            "from the request on an open connection to the first frame through the instance; beside {} instances",
            lane.idle
        );
        report.figure(
            format!("{id}.median_ms"),
            &lane.first_packet_ms,
            "ms",
            &conditions,
        );
        let p99 = lane.first_packet_ms.p99();
        report.derived(format!("{id}.p99_ms"), p99, "ms", &conditions);
        report.figure(
            format!("{id}.end_ms"),
            &lane.end_ms,
            "ms",
            "from the request to end it to the answer",
        );
        if series.iter().all(|known| known.name != lane.name) {
            series.push(Series::new(lane.name));
        }
        if let Some(line) = series.iter_mut().find(|known| known.name == lane.name) {
            line.push(lane.idle as f64, &lane.first_packet_ms);
        }
    }
    let pool = lanes.iter().filter(|lane| lane.name == "pool");
    let medians: Vec<f64> = pool.map(|lane| lane.first_packet_ms.median()).collect();
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
        series,
    });
}

/// Where the time went, of those who are made by themselves.
fn show_phases(report: &mut Report, lanes: &[Lane]) {
    let mut rows = Vec::new();
    for lane in lanes.iter().filter(|lane| lane.name != "plain") {
        let what =
            "a part of the time until the first frame; 'names' and 'connect' are beside 'start'";
        let prefix = format!("l2.{}.{}", lane.name, lane.idle);
        for mut row in lane.phases.report(report, &prefix, what) {
            row.insert(0, format!("{} {}", lane.name, lane.idle));
            rows.push(row);
        }
    }
    table(
        "Where the time goes, ms (names, connect: beside start)",
        &["", "phase", "median", "p99"],
        &rows,
    );
}

fn compare(report: &mut Report, peers: &Peers, idle: usize) {
    let rows: Vec<_> = peers
        .found
        .iter()
        .map(|peer| {
            vec![
                peer.name.to_owned(),
                significant(peer.ms.median()),
                significant(peer.ms.p99()),
                peer.what.to_owned(),
            ]
        })
        .collect();
    table(
        "What else starts a program that does nothing, until it has ended, ms",
        &["", "median", "p99", "what"],
        &rows,
    );
    for peer in &peers.found {
        let conditions = format!("{}, until it has ended; beside {idle} instances", peer.what);
        report.figure(
            format!("l2.{}.median_ms", peer.name),
            &peer.ms,
            "ms",
            &conditions,
        );
    }
    for (name, why) in &peers.left_out {
        println!("{name} left out: {why}");
    }
}
