//! D3: one ring from all NFs to one I/O thread that runs the switch for them. The ring tells the thread which NFs have
//! frames; for comparison, the same thread alternately polls the rings of all NFs instead.
//!
//! NFs on core 0, the thread and the traffic's process on core 1.

use super::massive::host;
use super::massive::{Buffers, Cores, Offer, Plan, Population, Repetitions, WINDOW, Waiting};
use crate::host::cpu::process_seconds;
use crate::host::cpu::require_two_cores;
use crate::report::{Report, significant, table};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_io::{Idle, Worker};
use nfluid_ring::memory::MpscMemory;
use nfluid_testbed::scratch::Scratch;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// Length of the frames whose figure ids omit the length.
const LEN: usize = 700;
const CORES: Cores = Cores { nfs: 0, traffic: 1 };
/// The task of the I/O thread.
const BY_RING: u8 = 0;
const BY_LOOKING: u8 = 1;
const ENDS: u8 = 2;

/// A number of NFs and a length.
struct Row {
    nfs: u32,
    len: usize,
    ring: Repetitions,
    looking: Repetitions,
    /// CPU time of the thread, in percent of its core.
    thread_percent: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(vec![10, 40, 100, 400, 1000, 2000, 8000], vec![100]);
    let lens = report.choose(vec![LEN, 64, 1514], vec![LEN]);
    let (rounds, seconds) = report.effort((5, 1.0), (2, 0.2));
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut scratch = Scratch::new("d3")?;
    let mut rows = Vec::new();
    for nfs in counts {
        match host::prepare(nfs) {
            Err(limit) if !rows.is_empty() => {
                println!("\nd3: {nfs} NFs left out: {limit:#}");
                break;
            }
            prepared => prepared?,
        }
        let lens = if nfs == most { &lens[..] } else { &lens[..1] };
        for row in measure(&mut scratch, nfs, lens, (rounds, seconds))? {
            figures(report, &row);
            rows.push(row);
        }
    }
    print(&rows);
    plots(report, &rows);
    Ok(())
}

fn measure(
    scratch: &mut Scratch,
    nfs: u32,
    lens: &[usize],
    times: (usize, f64),
) -> anyhow::Result<Vec<Row>> {
    let memory = MpscMemory::create()?;
    // The NFs inherit the descriptor.
    fcntl_setfd(memory.fd(), FdFlags::empty()).context("handing the ring on")?;
    let plan = Plan {
        nfs,
        waiting: Waiting {
            list: Some(memory.fd().as_raw_fd()),
            ..Waiting::SLEEPING
        },
        buffers: Buffers::Isolated,
        is_wired: false,
        first_switch: 0,
    };
    let mut population = Population::start(scratch, &plan, &[CORES])?;
    let mut worker = Worker::new(scratch.switch.serve()?, Idle::Poll, None)?;
    for duty in population.take_duties() {
        worker.add(duty).context("serving a port")?;
    }
    let mode = AtomicU8::new(BY_RING);
    let rows = std::thread::scope(|scope| {
        let thread = scope.spawn(|| serve(&mut worker, &memory, &mode));
        let rows = lens
            .iter()
            .map(|&len| rounds_of(&population, &mode, (nfs, len), times))
            .collect();
        mode.store(ENDS, Ordering::Relaxed);
        let served = thread.join();
        anyhow::ensure!(
            served.is_ok_and(|served| served.is_ok()),
            "the I/O thread has failed"
        );
        rows
    })?;
    drop(worker);
    population.end(scratch)?;
    Ok(rows)
}

fn rounds_of(
    population: &Population,
    mode: &AtomicU8,
    (nfs, len): (u32, usize),
    (rounds, seconds): (usize, f64),
) -> anyhow::Result<Row> {
    let offer = Offer {
        len,
        window: WINDOW,
        mpps: 0.0,
    };
    let (mut ring, mut looking) = (Vec::new(), Vec::new());
    let mut thread_percent = Samples::default();
    for _ in 0..rounds {
        mode.store(BY_LOOKING, Ordering::Relaxed);
        looking.extend(population.run(&offer, 1, seconds)?);
        mode.store(BY_RING, Ordering::Relaxed);
        let (start, before) = (Instant::now(), process_seconds(std::process::id())?);
        ring.extend(population.run(&offer, 1, seconds)?);
        let used = process_seconds(std::process::id())? - before;
        thread_percent.push(used / start.elapsed().as_secs_f64() * 100.0);
    }
    Ok(Row {
        nfs,
        len,
        ring: Repetitions::of(&ring, len),
        looking: Repetitions::of(&looking, len),
        thread_percent,
    })
}

/// The I/O thread.
fn serve(worker: &mut Worker, memory: &MpscMemory, mode: &AtomicU8) -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(CORES.traffic);
    sched_setaffinity(None, &cpus).context("pinning the I/O thread")?;
    let ring = memory.ring();
    loop {
        let frames = match mode.load(Ordering::Relaxed) {
            ENDS => return Ok(()),
            // When the ring was full, the thread polls all rings to find the NFs that it refused.
            BY_RING if ring.overflowed() => worker.turn(),
            BY_RING => worker.turn_of(|| ring.pop()),
            _ => {
                while ring.pop().is_some() {}
                worker.turn()
            }
        };
        if frames == 0 {
            sched_yield();
        }
    }
}

fn figures(report: &mut Report, row: &Row) {
    let conditions = |who: &str, lost| {
        format!(
            "{} NFs on core 0, {} B, two NFs per frame, at most {WINDOW} frames under way per pair; the \
             switch is run by one polling I/O thread on core 1, which {who}, and shares it with generator \
             and sink; {lost} lost",
            row.nfs, row.len
        )
    };
    let ring = conditions("reads in one ring who has frames", row.ring.lost);
    let looking = conditions("looks at all rings", row.looking.lost);
    let prefix = match row.len {
        LEN => format!("d3.{}", row.nfs),
        len => format!("d3.{}.{len}", row.nfs),
    };
    let id = |what: &str| format!("{prefix}.{what}");
    report.figure(id("gbps"), &row.ring.gbps, "Gbit/s", &ring);
    report.figure(id("mpps"), &row.ring.mpps, "Mpps", &ring);
    report.figure(id("latency_ms"), &row.ring.mean_ms, "ms", &ring);
    report.figure(id("p99_ms"), &row.ring.p99_ms, "ms", &ring);
    report.figure(id("cpu_percent"), &row.ring.nf_percent, "%", &ring);
    report.figure(id("thread_cpu_percent"), &row.thread_percent, "%", &ring);
    report.figure(id("looking_mpps"), &row.looking.mpps, "Mpps", &looking);
    let ratio = row.ring.mpps.median() / row.looking.mpps.median();
    report.derived(id("ring_vs_looking"), ratio, "", &ring);
}

fn print(rows: &[Row]) {
    let header = [
        "NFs",
        "bytes",
        "Gbit/s",
        "Mpps",
        "spread",
        "mean ms",
        "p99 ms",
        "NFs' CPU",
        "thread's CPU",
        "lost",
        "Mpps by looking",
        "spread",
    ];
    let cells = |row: &Row| {
        vec![
            row.nfs.to_string(),
            row.len.to_string(),
            significant(row.ring.gbps.median()),
            significant(row.ring.mpps.median()),
            format!("{:.0} %", row.ring.mpps.spread_percent()),
            significant(row.ring.mean_ms.median()),
            significant(row.ring.p99_ms.median()),
            format!("{:.0} %", row.ring.nf_percent.median()),
            format!("{:.0} %", row.thread_percent.median()),
            row.ring.lost.to_string(),
            significant(row.looking.mpps.median()),
            format!("{:.0} %", row.looking.mpps.spread_percent()),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table("One ring of all NFs towards an I/O thread", &header, &rows);
}

fn plots(report: &mut Report, rows: &[Row]) {
    let rows: Vec<_> = rows.iter().filter(|row| row.len == LEN).collect();
    let line = |name: &str, of: fn(&Row) -> &Samples| {
        let mut series = Series::new(name);
        for row in &rows {
            series.push(f64::from(row.nfs), of(row));
        }
        series
    };
    let mut plot = |what: &str, unit: &str, series| {
        report.plot(Plot {
            id: format!("d3.{what}"),
            title: format!("One ring of all NFs towards an I/O thread, {LEN} B"),
            x: Axis::log("NFs"),
            y: Axis::linear(unit),
            series,
        });
    };
    let ring = line("reading who has frames", |row| &row.ring.gbps);
    let looking = line("looking at all rings", |row| &row.looking.gbps);
    plot("gbps", "Gbit/s", vec![ring, looking]);
    let ring = line("reading who has frames", |row| &row.ring.mean_ms);
    let looking = line("looking at all rings", |row| &row.looking.mean_ms);
    plot("latency", "mean latency, ms", vec![ring, looking]);
}
