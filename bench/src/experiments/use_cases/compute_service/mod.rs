//! A compute service: programs arrive in an open loop, each runs once in isolation, and its result is awaited. As in
//! LightVM's use case the program approximates e; the load is first half of the machine's capacity, and then slightly
//! more than the capacity (there: 0.8 s of work every 250 ms for three cores, 107 %).

mod work;

use crate::host::cpu::busy_seconds;
use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use std::thread;
use std::time::{Duration, Instant};
use work::{Way, Ways, e};

/// The load: arriving programs in percent of the rate that the cores sustain with fork and exec alone.
const LOADS: [u32; 2] = [50, 107];

/// A way to run the programs, at one load.
struct Variant {
    name: &'static str,
    load: u32,
    /// From the scheduled arrival to the result.
    service_ms: Samples,
    /// Time in the daemon until the program is executed.
    created_ms: Samples,
    /// CPU time of the whole machine per program.
    cpu_ms: f64,
    per_s: f64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let decimals = report.effort(20_000, 3_000);
    let counts = report.effort([300, 1000], [12, 20]);
    let ways = Ways::new(decimals)?;
    let expected = e(decimals)?;
    let alone = alone(&ways, &expected, report.effort(20, 5))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut variants = Vec::new();
    for (load, count) in LOADS.into_iter().zip(counts) {
        let interval = alone.median() / 1e3 / cores as f64 * 100.0 / f64::from(load);
        for way in &ways.found {
            let arrivals = Arrivals {
                count,
                interval: Duration::from_secs_f64(interval),
            };
            variants.push(serve(way, load, arrivals, &expected)?);
        }
    }
    show(report, &variants, &alone, decimals, counts);
    for (name, why) in &ways.left_out {
        println!("{name} left out: {why}");
    }
    Ok(())
}

/// Returns the run times of the program alone, in milliseconds.
fn alone(ways: &Ways, expected: &str, rounds: usize) -> anyhow::Result<Samples> {
    let way = ways.found.first().context("not even a process starts")?;
    let mut ms = Samples::default();
    for number in 0..rounds {
        let begun = Instant::now();
        way.run(number, expected)?;
        ms.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(ms)
}

/// Arrival times of programs.
#[derive(Clone, Copy)]
struct Arrivals {
    count: usize,
    interval: Duration,
}

/// Starts each program at its arrival time, independently of the earlier programs.
fn serve(way: &Way, load: u32, arrivals: Arrivals, expected: &str) -> anyhow::Result<Variant> {
    let mut variant = Variant {
        name: way.name,
        load,
        service_ms: Samples::default(),
        created_ms: Samples::default(),
        cpu_ms: 0.0,
        per_s: 0.0,
    };
    let busy = busy_seconds()?;
    let begun = Instant::now();
    let results = thread::scope(|scope| {
        let mut running = Vec::with_capacity(arrivals.count);
        for number in 0..arrivals.count {
            let arrival = begun + arrivals.interval * u32::try_from(number).unwrap_or(u32::MAX);
            thread::sleep(arrival.saturating_duration_since(Instant::now()));
            if interrupt::check().is_err() {
                break;
            }
            running.push(scope.spawn(move || {
                let created = way.run(number, expected)?;
                anyhow::Ok((arrival.elapsed().as_secs_f64() * 1e3, created))
            }));
        }
        let joined = running.into_iter().map(thread::ScopedJoinHandle::join);
        joined.collect::<Vec<_>>()
    });
    let took = begun.elapsed().as_secs_f64();
    interrupt::check()?;
    for result in results {
        let result = result.map_err(|_| anyhow::anyhow!("a client panicked"))?;
        let (service_ms, created_ms) = result.with_context(|| way.name)?;
        variant.service_ms.push(service_ms);
        if let Some(ms) = created_ms {
            variant.created_ms.push(ms);
        }
    }
    variant.cpu_ms = (busy_seconds()? - busy) * 1e3 / arrivals.count as f64;
    variant.per_s = arrivals.count as f64 / took;
    Ok(variant)
}

fn show(
    report: &mut Report,
    variants: &[Variant],
    alone: &Samples,
    decimals: usize,
    counts: [usize; 2],
) {
    let row = |variant: &Variant| {
        vec![
            variant.name.to_owned(),
            format!("{} %", variant.load),
            significant(variant.service_ms.median()),
            significant(variant.service_ms.p99()),
            significant(variant.per_s),
            significant(variant.cpu_ms),
        ]
    };
    let rows: Vec<_> = variants.iter().map(row).collect();
    let title = format!("Python computes e to {decimals} decimals: from arrival to result, ms");
    table(
        &title,
        &["", "load", "median", "p99", "per second", "CPU ms each"],
        &rows,
    );
    let program = format!("Python, e to {decimals} decimals");
    report.figure(
        "l13.alone_ms",
        alone,
        "ms",
        &format!("{program}, nothing else runs"),
    );
    let mut series: Vec<Series> = Vec::new();
    for variant in variants {
        let id = format!("l13.{}.{}", variant.name, variant.load);
        let count = counts[usize::from(variant.load > 100)];
        let conditions = format!(
            "{program}; {count} arrivals, evenly, {} % of what the cores can do",
            variant.load
        );
        report.figure(
            format!("{id}.median_ms"),
            &variant.service_ms,
            "ms",
            &conditions,
        );
        let p99 = variant.service_ms.p99();
        report.derived(format!("{id}.p99_ms"), p99, "ms", &conditions);
        report.derived(
            format!("{id}.rate_per_s"),
            variant.per_s,
            "1/s",
            &conditions,
        );
        let machine = format!("{conditions}; of the whole machine, per program");
        report.derived(format!("{id}.cpu_ms"), variant.cpu_ms, "ms", &machine);
        if !variant.created_ms.values().is_empty() {
            let created = format!("{conditions}; in the daemon, from its turn to the exec");
            report.figure(
                format!("{id}.created_ms"),
                &variant.created_ms,
                "ms",
                &created,
            );
            let p99 = variant.created_ms.p99();
            report.derived(format!("{id}.created_p99_ms"), p99, "ms", &created);
        }
        if series.iter().all(|known| known.name != variant.name) {
            series.push(Series::new(variant.name));
        }
        if let Some(line) = series.iter_mut().find(|known| known.name == variant.name) {
            line.push(f64::from(variant.load), &variant.service_ms);
        }
    }
    report.plot(Plot {
        id: "l13.service".to_owned(),
        title: "A program's result, from its arrival".to_owned(),
        x: Axis::linear("load, % of what the cores can do"),
        y: Axis::linear("ms"),
        series,
    });
}
