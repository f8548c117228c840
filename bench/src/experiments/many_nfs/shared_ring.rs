//! D3: one ring from all NFs to one I/O thread that runs the switch for them. The ring tells the thread which NFs have
//! frames; for comparison, the same thread alternately polls the rings of all NFs instead.
//!
//! NFs on core 0, the thread and the traffic's process on core 1.

use super::massive::host;
use super::massive::{Buffers, Cores, Offer, Plan, Population, Repetitions, WINDOW, Waiting};
use crate::host::cpu::process_seconds;
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep, line};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot};
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

/// The quantities with a number of NFs and a length.
const QUANTITIES: [Quantity; 11] = [
    Quantity::new(".gbps", "Gbit/s", &[("Gbit/s", Shown::Median)]),
    Quantity::MPPS,
    Quantity::new(".latency_ms", "ms", &[("mean ms", Shown::Median)]),
    Quantity::new(".p99_ms", "ms", &[("p99 ms", Shown::Median)]),
    Quantity::new(".cpu_percent", "%", &[("NFs' CPU", Shown::Percent)]),
    Quantity::new(
        ".thread_cpu_percent",
        "%",
        &[("thread's CPU", Shown::Percent)],
    ),
    Quantity::shown(&[("lost", Shown::Sum)]),
    Quantity::new(
        ".looking_mpps",
        "Mpps",
        &[
            ("Mpps by looking", Shown::Median),
            ("spread", Shown::Spread),
        ],
    )
    .meaning("the thread looks at all rings instead"),
    Quantity::shown(&[]),
    Quantity::shown(&[]),
    Quantity::new(".ring_vs_looking", "", &[]),
];
/// Their indices: of reading in the ring, and of looking.
const GBPS: [usize; 2] = [0, 8];
const MEAN_MS: [usize; 2] = [2, 9];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(vec![10, 40, 100, 400, 1000, 2000, 8000], vec![100]);
    let lens = report.choose(vec![LEN, 64, 1514], vec![LEN]);
    let (rounds, seconds) = report.effort((5, 1.0), (2, 0.2));
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut scratch = Scratch::new("d3")?;
    let mut sweep = Sweep::plain(&["NFs", "bytes"], QUANTITIES);
    for nfs in counts {
        match host::prepare(nfs) {
            Err(limit) if !sweep.rows().is_empty() => {
                println!("\nd3: {nfs} NFs left out: {limit:#}");
                break;
            }
            prepared => prepared?,
        }
        let lens = if nfs == most { &lens[..] } else { &lens[..1] };
        measure(&mut sweep, &mut scratch, nfs, lens, (rounds, seconds))?;
    }
    sweep.report_all(report);
    sweep.print("One ring of all NFs towards an I/O thread");
    plots(report, &sweep);
    Ok(())
}

fn measure(
    sweep: &mut Sweep<11>,
    scratch: &mut Scratch,
    nfs: u32,
    lens: &[usize],
    times: (usize, f64),
) -> anyhow::Result<()> {
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
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| serve(&mut worker, &memory, &mode));
        let measured = lens
            .iter()
            .try_for_each(|&len| rounds_of(sweep, &population, &mode, (nfs, len), times));
        mode.store(ENDS, Ordering::Relaxed);
        let served = thread.join();
        anyhow::ensure!(
            served.is_ok_and(|served| served.is_ok()),
            "the I/O thread has failed"
        );
        measured
    })?;
    drop(worker);
    population.end(scratch)
}

fn rounds_of(
    sweep: &mut Sweep<11>,
    population: &Population,
    mode: &AtomicU8,
    (nfs, len): (u32, usize),
    (rounds, seconds): (usize, f64),
) -> anyhow::Result<()> {
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
    let [ring, looking] = [ring, looking].map(|measured| Repetitions::of(&measured, len));
    let conditions = format!(
        "{nfs} NFs on core 0, {len} B, two NFs per frame, at most {WINDOW} frames under way per pair; the switch is \
         run by one polling I/O thread on core 1, which reads in one ring who has frames, and shares it with generator \
         and sink; {} lost, {} by looking",
        ring.lost, looking.lost
    );
    let id = match len {
        LEN => format!("d3.{nfs}"),
        len => format!("d3.{nfs}.{len}"),
    };
    let ratio = ring.mpps.median() / looking.mpps.median();
    let side = Side::new([nfs, len as u32].map(|it| it.to_string()), id, ());
    sweep.add(
        &side.under(&conditions).on(&len.to_string(), nfs),
        [
            ring.gbps,
            ring.mpps,
            ring.mean_ms,
            ring.p99_ms,
            ring.nf_percent,
            thread_percent,
            Samples::from(ring.lost as f64),
            looking.mpps,
            looking.gbps,
            looking.mean_ms,
            Samples::from(ratio),
        ],
    );
    Ok(())
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

fn plots(report: &mut Report, sweep: &Sweep<11>) {
    let len = LEN.to_string();
    let of = |name: &str, quantity| {
        let rows = sweep.rows().iter().filter(|row| row.line == len);
        line(name, rows, quantity)
    };
    for (what, unit, [ring, looking]) in [
        ("gbps", "Gbit/s", GBPS),
        ("latency", "mean latency, ms", MEAN_MS),
    ] {
        report.plot(Plot {
            id: format!("d3.{what}"),
            title: format!("One ring of all NFs towards an I/O thread, {LEN} B"),
            x: Axis::log("NFs"),
            y: Axis::linear(unit),
            series: vec![
                of("reading who has frames", ring),
                of("looking at all rings", looking),
            ],
        });
    }
}
