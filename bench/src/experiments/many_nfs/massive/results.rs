//! Figures, tables and plots of architectures.

use super::architecture::{Architecture, MODERATE, Sizes};
use super::core_traffic::WINDOW;
use super::host;
use super::population::RING;
use super::repetitions::Row;
use super::wired_entry::Entry;
use crate::report::{Report, significant};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;

/// Selects the samples of a row that a figure or a line shows.
type Of = fn(&Row) -> &Samples;

/// The quantities of a row: of as much as goes, then at half load.
const QUANTITIES: [Quantity; 12] = [
    Quantity::new(
        ".gbps",
        "Gbit/s",
        &[("Gbit/s", Shown::Median), ("spread", Shown::Spread)],
    ),
    Quantity::new(".mpps", "Mpps", &[("Mpps", Shown::Median)]),
    Quantity::new(".full_latency_ms", "ms", &[("mean ms", Shown::Median)]),
    Quantity::new(".full_p99_ms", "ms", &[("p99 ms", Shown::Median)]),
    Quantity::new(".cpu_percent", "%", &[("NFs' CPU", Shown::Percent)]),
    Quantity::new(
        ".traffic_cpu_percent",
        "%",
        &[("traffic's CPU", Shown::Percent)],
    ),
    Quantity::shown(&[("lost", Shown::Sum)]),
    Quantity::new(
        ".latency_ms",
        "ms",
        &[("half load: mean ms", Shown::Median)],
    )
    .meaning(HALF),
    Quantity::new(".p99_ms", "ms", &[("p99 ms", Shown::Median)]).meaning(HALF),
    Quantity::new(".half_cpu_percent", "%", &[("NFs' CPU", Shown::Percent)]).meaning(HALF),
    Quantity::shown(&[("lost", Shown::Sum)]),
    Quantity::new(".mb", "MB", &[("MB each", Shown::Median)])
        .meaning("one NF's process, page tables, kernel stack and maps"),
];
const HALF: &str = "at half load";

fn id(architecture: &Architecture, row: &Row, is_short: bool) -> String {
    let Row { nfs, len, .. } = row;
    match is_short {
        true => format!("{}.{nfs}", architecture.id),
        false => format!("{}.{nfs}.{len}", architecture.id),
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
                let id = id(first, row, row.len == sizes.lens[0]);
                report.figure(
                    format!("{id}.{what}_vs_{name}"),
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

/// Prints the table of an architecture and hands in its figures. Of lengths other than `short` their ids have the
/// length.
pub fn show(report: &mut Report, architecture: &Architecture, rows: &[Row], short: usize) {
    let mut sweep = Sweep::plain(&["NFs", "bytes"], QUANTITIES);
    for row in rows {
        let (Row { nfs, len, .. }, full, half) = (row, &row.full, &row.half);
        let conditions = format!(
            "{nfs} NFs, {}, {len} B, two NFs per frame, {RING} slots; NFs, generator and sink{} together on all {} \
             cores; at most {WINDOW} frames under way per pair of NFs, {} lost; half load: {:.0} % of what went, {} \
             Mpps, {} lost",
            architecture.title,
            match architecture.entry {
                Entry::Port => "",
                Entry::Table | Entry::Classifier => ", a veth per core and its receive side",
            },
            host::cores(),
            full.lost,
            MODERATE * 100.0,
            significant(half.mpps.median()),
            half.lost
        );
        let key = [nfs.to_string(), len.to_string()];
        let side = Side::new(key, id(architecture, row, *len == short), ());
        sweep.add(
            &side.under(&conditions),
            [
                full.gbps.clone(),
                full.mpps.clone(),
                full.mean_ms.clone(),
                full.p99_ms.clone(),
                full.nf_percent.clone(),
                full.traffic_percent.clone(),
                Samples::from(full.lost as f64),
                half.mean_ms.clone(),
                half.p99_ms.clone(),
                half.nf_percent.clone(),
                Samples::from(half.lost as f64),
                Samples::from(row.megabytes),
            ],
        );
    }
    sweep.print(&format!("{}, two NFs per frame", architecture.title));
    sweep.report_all(report);
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
