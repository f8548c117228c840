//! Very many tiny NFs: what the experiments of rows D1 to D5 share.
//!
//! As in the literature: the switch forwards by hardware address, NFs are processes, consecutive
//! frames go to different NFs, every frame crosses two, and an NF signs the first 64 bytes. The
//! generator's and sink's process of each core shares it with its NFs.

pub mod crowd;
pub mod host;

use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, gbps, significant, table};
use crate::roles::Waits;
use crate::statistics::Samples;
use crowd::RING;
pub use crowd::{Cores, Crowd, Measured, Offer, Waiting};
use nfluid_ring::doorbell::AGEING_IDLE;
use nfluid_switch::scratch::Scratch;
use std::time::{Duration, Instant};

/// Frames under way for each pair of NFs when as many are sent as go: no ring is ever full.
pub const WINDOW: u32 = 32;
const _: () = assert!(WINDOW <= RING);
/// As many NFs cost something while they are idle.
const MANY: u32 = 1000;
/// Until their sleeps have the length that they keep.
const UNTIL_IDLE: Duration = Duration::from_secs(7);
/// Latency is measured at this part of the rate that was reached.
const MODERATE: f64 = 0.5;

/// An architecture.
pub struct Architecture {
    /// What its figures begin with.
    pub id: &'static str,
    pub title: &'static str,
    pub waiting: Waiting,
}

/// Numbers of NFs and frame lengths to measure.
pub struct Sweep {
    pub nfs: Vec<u32>,
    pub lens: Vec<usize>,
    pub rounds: usize,
    pub seconds: f64,
}

/// Repetitions of one measurement.
#[derive(Default)]
pub struct Cell {
    pub mpps: Samples,
    pub gbps: Samples,
    pub mean_ms: Samples,
    pub p99_ms: Samples,
    pub nf_percent: Samples,
    pub traffic_percent: Samples,
    pub lost: u64,
}

/// A number of NFs and a length.
struct Row {
    nfs: u32,
    len: usize,
    /// As much as goes.
    full: Cell,
    /// At [`MODERATE`] load.
    half: Cell,
    megabytes: f64,
}

impl Cell {
    pub fn of(measured: &[Measured], len: usize) -> Self {
        let mut cell = Cell::default();
        for one in measured {
            cell.mpps.push(one.mpps);
            cell.gbps.push(gbps(one.mpps, len));
            cell.mean_ms.push(one.mean_ms);
            cell.p99_ms.push(one.p99_ms);
            cell.nf_percent.push(one.nf_percent);
            cell.traffic_percent.push(one.traffic_percent);
            cell.lost += one.lost;
        }
        cell
    }
}

/// Measures an architecture with each number of NFs and each length; the first length is the one
/// whose figures carry no length in their ids.
pub fn measure(
    report: &mut Report,
    architecture: &Architecture,
    sweep: &Sweep,
) -> anyhow::Result<()> {
    let most = sweep.nfs.iter().copied().max().unwrap_or(0);
    host::prepare(most)?;
    let cores: Vec<_> = (0..host::cores())
        .map(|core| Cores {
            nfs: core,
            traffic: core,
        })
        .collect();
    let mut scratch = Scratch::new(architecture.id)?;
    let mut rows = Vec::new();
    for &nfs in &sweep.nfs {
        let crowd = Crowd::start(&mut scratch, nfs, architecture.waiting, &cores)?;
        if architecture.waiting.waits == Waits::Sleeping {
            idle(report, architecture, &crowd, nfs)?;
        }
        let lens = if nfs == most {
            &sweep.lens[..]
        } else {
            &sweep.lens[..1]
        };
        for &len in lens {
            report.settle();
            let row = row(&crowd, sweep, nfs, len)?;
            figures(report, architecture, &row, len == sweep.lens[0]);
            rows.push(row);
        }
        crowd.end(&scratch)?;
    }
    print(architecture, &rows);
    plots(report, architecture, &rows, sweep.lens[0]);
    Ok(())
}

/// CPU time of NFs that have nothing to do, over the longest sleep.
fn idle(
    report: &mut Report,
    architecture: &Architecture,
    crowd: &Crowd,
    nfs: u32,
) -> anyhow::Result<()> {
    if nfs >= MANY {
        std::thread::sleep(report.choose(UNTIL_IDLE, Duration::ZERO));
    }
    let time = report.choose(AGEING_IDLE, Duration::from_secs(1));
    let (start, before) = (Instant::now(), crowd.cpu_seconds()?);
    std::thread::sleep(time);
    let used = crowd.cpu_seconds()? - before;
    report.derived(
        format!("{}.{nfs}.idle_cpu_percent", architecture.id),
        used / start.elapsed().as_secs_f64() * 100.0,
        "%",
        &format!(
            "CPU time of {nfs} NFs without a frame, percent of one core; they sleep for 8 s at a time if they are many, and have slept for 2 and 4 s before"
        ),
    );
    Ok(())
}

fn row(crowd: &Crowd, sweep: &Sweep, nfs: u32, len: usize) -> anyhow::Result<Row> {
    let mut offer = Offer {
        len,
        window: WINDOW,
        mpps: 0.0,
    };
    let full = Cell::of(&crowd.run(&offer, sweep.rounds, sweep.seconds)?, len);
    offer.mpps = full.mpps.median() * MODERATE;
    let half = Cell::of(&crowd.run(&offer, sweep.rounds, sweep.seconds)?, len);
    Ok(Row {
        nfs,
        len,
        full,
        half,
        megabytes: crowd.bytes_each()? / 1e6,
    })
}

fn figures(report: &mut Report, architecture: &Architecture, row: &Row, short: bool) {
    let Row { nfs, len, .. } = row;
    let prefix = match short {
        true => format!("{}.{nfs}", architecture.id),
        false => format!("{}.{nfs}.{len}", architecture.id),
    };
    let shared = format!(
        "{nfs} NFs, {}, {len} B, two NFs per frame, {RING} slots; NFs, generator and sink together \
         on all {} cores",
        architecture.title,
        host::cores()
    );
    let full = format!(
        "{shared}; at most {WINDOW} frames under way per pair of NFs; {} lost",
        row.full.lost
    );
    let half = format!(
        "{shared}; offered {:.0} % of what went, {} Mpps; {} lost",
        MODERATE * 100.0,
        significant(row.half.mpps.median()),
        row.half.lost
    );
    let id = |what: &str| format!("{prefix}.{what}");
    report.figure(id("gbps"), &row.full.gbps, "Gbit/s", &full);
    report.figure(id("mpps"), &row.full.mpps, "Mpps", &full);
    report.figure(id("full_latency_ms"), &row.full.mean_ms, "ms", &full);
    report.figure(id("full_p99_ms"), &row.full.p99_ms, "ms", &full);
    report.figure(id("cpu_percent"), &row.full.nf_percent, "%", &full);
    report.figure(
        id("traffic_cpu_percent"),
        &row.full.traffic_percent,
        "%",
        &full,
    );
    report.figure(id("latency_ms"), &row.half.mean_ms, "ms", &half);
    report.figure(id("p99_ms"), &row.half.p99_ms, "ms", &half);
    report.figure(id("half_cpu_percent"), &row.half.nf_percent, "%", &half);
    let memory = format!("{shared}; one NF's process, page tables, kernel stack and maps");
    report.derived(id("mb"), row.megabytes, "MB", &memory);
}

fn print(architecture: &Architecture, rows: &[Row]) {
    let header = [
        "NFs",
        "bytes",
        "Gbit/s",
        "spread",
        "Mpps",
        "mean ms",
        "p99 ms",
        "NFs' CPU",
        "traffic's CPU",
        "lost",
        "half load: mean ms",
        "p99 ms",
        "NFs' CPU",
        "MB each",
    ];
    let cells = |row: &Row| {
        let percent = |samples: &Samples| format!("{:.0} %", samples.median());
        vec![
            row.nfs.to_string(),
            row.len.to_string(),
            significant(row.full.gbps.median()),
            format!("{:.0} %", row.full.gbps.spread_percent()),
            significant(row.full.mpps.median()),
            significant(row.full.mean_ms.median()),
            significant(row.full.p99_ms.median()),
            percent(&row.full.nf_percent),
            percent(&row.full.traffic_percent),
            row.full.lost.to_string(),
            significant(row.half.mean_ms.median()),
            significant(row.half.p99_ms.median()),
            percent(&row.half.nf_percent),
            significant(row.megabytes),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    let title = format!("{}, two NFs per frame", architecture.title);
    table(&title, &header, &rows);
}

fn plots(report: &mut Report, architecture: &Architecture, rows: &[Row], len: usize) {
    let line = |name: &str, of: fn(&Row) -> &Samples| {
        let mut series = Series::new(name);
        for row in rows.iter().filter(|row| row.len == len) {
            series.push(f64::from(row.nfs), of(row));
        }
        series
    };
    let mut plot = |what: &str, unit: &str, series: Vec<Series>| {
        report.plot(Plot {
            id: format!("{}.{what}", architecture.id),
            title: format!("{}, {len} B, two NFs per frame", architecture.title),
            x: Axis::log("NFs"),
            y: Axis::linear(unit),
            series,
        });
    };
    let full = line("as much as goes", |row| &row.full.gbps);
    plot("gbps", "Gbit/s", vec![full]);
    let full = line("as much as goes", |row| &row.full.mean_ms);
    let half = line("half of it", |row| &row.half.mean_ms);
    plot("latency", "mean latency, ms", vec![full, half]);
}
