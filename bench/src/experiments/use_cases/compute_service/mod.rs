//! A compute service: programs arrive in an open loop, each runs once in isolation, and its result is awaited. As in
//! LightVM's use case the program approximates e; the load is first half of the machine's capacity, and then slightly
//! more than the capacity (there: 0.8 s of work every 250 ms for three cores, 107 %).

mod work;

use crate::host::cpu::busy_seconds;
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep, lines};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use std::thread;
use std::time::{Duration, Instant};
use work::{Way, Ways, e};

/// The load: arriving programs in percent of the rate that the cores sustain with fork and exec alone.
const LOADS: [u32; 2] = [50, 107];

/// The quantities of a way to run the programs, at one load.
const QUANTITIES: [Quantity; 4] = [
    Quantity::new(
        ".median_ms",
        "ms",
        &[("median", Shown::Median), ("p99", Shown::P99)],
    )
    .with_p99(".p99_ms"),
    Quantity::new(".rate_per_s", "1/s", &[("per second", Shown::Median)]),
    Quantity::new(".cpu_ms", "ms", &[("CPU ms each", Shown::Median)])
        .meaning("of the whole machine, per program"),
    Quantity::new(".created_ms", "ms", &[("created", Shown::Median)])
        .with_p99(".created_p99_ms")
        .meaning("in the daemon, from its turn to the exec"),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let decimals = report.effort(20_000, 3_000);
    let counts = report.effort([300, 1000], [12, 20]);
    let ways = Ways::new(decimals)?;
    let expected = e(decimals)?;
    let alone = alone(&ways, &expected, report.effort(20, 5))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let program = format!("Python, e to {decimals} decimals");
    let mut sweep = Sweep::plain(&["", "load"], QUANTITIES);
    for (load, count) in LOADS.into_iter().zip(counts) {
        let interval = alone.median() / 1e3 / cores as f64 * 100.0 / f64::from(load);
        for way in &ways.found {
            let arrivals = Arrivals {
                count,
                interval: Duration::from_secs_f64(interval),
            };
            let conditions =
                format!("{program}; {count} arrivals, evenly, {load} % of what the cores can do");
            let key = [way.name.to_owned(), format!("{load} %")];
            let side = Side::new(key, format!("l13.{}.{load}", way.name), ());
            let side = side.under(&conditions).on(way.name, load);
            sweep.add(&side, serve(way, arrivals, &expected)?);
        }
    }
    sweep.print(&format!(
        "Python computes e to {decimals} decimals: from arrival to result, ms"
    ));
    let conditions = format!("{program}, nothing else runs");
    report.figure("l13.alone_ms", &alone, "ms", &conditions);
    sweep.report_all(report);
    report.plot(Plot {
        id: "l13.service".to_owned(),
        title: "A program's result, from its arrival".to_owned(),
        x: Axis::linear("load, % of what the cores can do"),
        y: Axis::linear("ms"),
        series: lines(sweep.rows(), 0),
    });
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

/// Starts each program when it arrives, whatever became of those before. The first samples are the times from the
/// moment at which it should arrive to its result.
fn serve(way: &Way, arrivals: Arrivals, expected: &str) -> anyhow::Result<[Samples; 4]> {
    let [mut service, mut created] = <[Samples; 2]>::default();
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
        service.push(service_ms);
        if let Some(ms) = created_ms {
            created.push(ms);
        }
    }
    let cpu_ms = (busy_seconds()? - busy) * 1e3 / arrivals.count as f64;
    let per_s = arrivals.count as f64 / took;
    Ok([service, per_s.into(), cpu_ms.into(), created])
}
