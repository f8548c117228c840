//! Figures, tables and plots of architectures.

use super::architecture::{Architecture, MODERATE, Sizes};
use super::core_traffic::WINDOW;
use super::host;
use super::population::RING;
use super::repetitions::Row;
use super::wired_entry::Entry;
use crate::report::{Report, significant, table};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;

/// Selects the samples of a row that a figure or a line shows.
type Of = fn(&Row) -> &Samples;

pub fn figures(report: &mut Report, architecture: &Architecture, row: &Row, is_short: bool) {
    let Row { nfs, len, .. } = row;
    let shared = format!(
        "{nfs} NFs, {}, {len} B, two NFs per frame, {RING} slots; NFs, generator and sink{} together on all {} cores",
        architecture.title,
        match architecture.entry {
            Entry::Port => "",
            Entry::Table | Entry::Classifier => ", a veth per core and its receive side",
        },
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
    let id = |what: &str| id(architecture, row, is_short, what);
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

fn id(architecture: &Architecture, row: &Row, is_short: bool, what: &str) -> String {
    let Row { nfs, len, .. } = row;
    match is_short {
        true => format!("{}.{nfs}.{what}", architecture.id),
        false => format!("{}.{nfs}.{len}.{what}", architecture.id),
    }
}

/// Compares the first architecture with each other one, which is named by the part of its id after the last dot.
pub fn compare(
    report: &mut Report,
    architectures: &[Architecture],
    rows: &[Vec<Row>],
    sizes: &Sizes,
) {
    const COMPARED: [(&str, Of); 2] = [
        ("mpps", |row| &row.full.mpps),
        ("latency", |row| &row.half.mean_ms),
    ];
    let [(first, first_rows), others @ ..] =
        &architectures.iter().zip(rows).collect::<Vec<_>>()[..]
    else {
        return;
    };
    for (other, other_rows) in others {
        let name = other.id.rsplit('.').next().unwrap_or(other.id);
        for (row, other_row) in first_rows.iter().zip(other_rows.iter()) {
            for (what, of) in COMPARED {
                let what = format!("{what}_vs_{name}");
                report.figure(
                    id(first, row, row.len == sizes.lens[0], &what),
                    &of(row).ratios(of(other_row)),
                    "ratio",
                    &format!(
                        "{} over {}, in turn; throughput of as much as goes, mean latency at half of that",
                        first.title, other.title
                    ),
                );
            }
        }
    }
}

pub fn print(architecture: &Architecture, rows: &[Row]) {
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
        "lost",
        "MB each",
    ];
    let repetitions = |row: &Row| {
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
            row.half.lost.to_string(),
            significant(row.megabytes),
        ]
    };
    let rows: Vec<_> = rows.iter().map(repetitions).collect();
    let title = format!("{}, two NFs per frame", architecture.title);
    table(&title, &header, &rows);
}

/// Plots over the number of NFs, as in the literature: throughput with each length; for the first length latency, CPU
/// time of the NFs, and memory.
pub fn plots(
    report: &mut Report,
    architectures: &[Architecture],
    rows: &[Vec<Row>],
    lens: &[usize],
) {
    let Some((experiment, &len)) = architectures.first().zip(lens.first()) else {
        return;
    };
    let name = |architecture: &Architecture, what: &str| match architectures {
        [_] => what.to_owned(),
        _ => format!("{}, {what}", architecture.title),
    };
    let lines = |len: usize, shown: &[(&str, Of)]| {
        let mut series = Vec::new();
        for (architecture, rows) in architectures.iter().zip(rows) {
            for (what, of) in shown {
                let mut line = Series::new(name(architecture, what));
                for row in rows.iter().filter(|row| row.len == len) {
                    line.push(f64::from(row.nfs), of(row));
                }
                series.push(line);
            }
        }
        series
    };
    let mut plot = |what: &str, unit: &str, series: Vec<Series>| {
        let title = match architectures {
            [only] => only.title,
            _ => "Ways of one experiment",
        };
        report.plot(Plot {
            id: format!("{}.{what}", experiment.id),
            title: format!("{title}, two NFs per frame"),
            x: Axis::log("NFs"),
            y: Axis::linear(unit),
            series,
        });
    };
    for len in lens {
        let lines = lines(*len, &[(&format!("{len} B"), |row| &row.full.gbps)]);
        plot("gbps", "Gbit/s", lines);
    }
    let latency: [(&str, Of); 3] = [
        ("mean, as much as goes", |row| &row.full.mean_ms),
        ("mean, half of it", |row| &row.half.mean_ms),
        ("99 %, half of it", |row| &row.half.p99_ms),
    ];
    plot(
        "latency",
        &format!("latency, ms, {len} B"),
        lines(len, &latency),
    );
    let cpu: [(&str, Of); 2] = [
        ("as much as goes", |row| &row.full.nf_percent),
        ("half of it", |row| &row.half.nf_percent),
    ];
    plot(
        "cpu",
        &format!("CPU time of the NFs, percent of a core, {len} B"),
        lines(len, &cpu),
    );
}
