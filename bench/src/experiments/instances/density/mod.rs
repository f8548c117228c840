//! Number of instances that can be idle at the same time, memory of each, and CPU time of all of them with the daemon;
//! also for idle instances with states.
//!
//! Memory is the host's decrease of available memory divided by the number of instances: everything counts, including
//! the kernel's. For some instances the memory is listed by kind.

mod stateful;

use crate::host::cpu::process_seconds;
use crate::host::idle::Idle;
use crate::host::memory::{available_bytes, map_bytes, process_bytes};
use crate::report::{Report, significant, table};
use crate::roles::pump;
use nfluid_figures::statistics::Samples;
use nfluid_ring::doorbell::AGEING_IDLE;
use nfluid_testbed::interrupt;
use std::time::{Duration, Instant};

/// Number of instances whose memory is listed by kind.
const LOOKED_AT: usize = 50;
/// Number of the instances with states.
const CLONES: usize = 1000;
const CLONES_QUICK: usize = 50;
/// After the creation the kernel frees temporary memory for this time.
const SETTLES: Duration = Duration::from_secs(1);

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let wanted = report.choose(10_000, 100);
    // Measured over the longest sleep, after waiting as long.
    let (rounds, length) = report.effort((2, AGEING_IDLE), (1, Duration::from_secs(1)));
    let mut idle = Idle::new()?;
    std::thread::sleep(SETTLES);
    let before = available_bytes()?;
    if let Err(why) = idle.populate(wanted) {
        interrupt::check()?;
        println!("{wanted} instances are not to be had here: {why:#}");
    }
    let count = idle.count();
    anyhow::ensure!(count > 0, "not one instance could be made");
    std::thread::sleep(SETTLES);
    let each = before.saturating_sub(available_bytes()?) as f64 / count as f64 / 1e6;
    let pids = idle.pids()?;
    let (mut own, mut maps) = (Samples::default(), Samples::default());
    for pid in pids.iter().take(LOOKED_AT) {
        own.push(process_bytes(*pid)? as f64 / 1e6);
        maps.push(map_bytes(*pid)? as f64 / 1e6);
    }
    let daemon = idle.daemon()?;
    std::thread::sleep(report.choose(AGEING_IDLE, Duration::ZERO));
    let percent = busy_percent(&pids, daemon, rounds, length)?;
    drop(idle);
    let clones = report.choose(CLONES, CLONES_QUICK);
    let stateful = stateful::percent(clones, rounds, length)?;
    let lines = [
        ("instances", count as f64),
        ("MB each, of the host's memory", each),
        ("- its process without maps", own.median()),
        ("- its maps", maps.median()),
        ("CPU of all and the daemon, % of a core", percent.median()),
        ("firewalls with states", clones as f64),
        (
            "CPU of those and the daemon, % of a core",
            stateful.median(),
        ),
    ];
    let rows = lines.map(|(what, value)| vec![what.to_owned(), significant(value)]);
    table(
        "Alive and idle: bridge, 2 ports, 64-slot rings",
        &["", ""],
        &rows,
    );
    report.derived(
        "l6.instances",
        count as f64,
        "",
        "alive and idle at once; bridge, 2 ports",
    );
    let memory = "less of the host's available memory than before, divided by the instances";
    report.derived("l6.instance_mb", each, "MB", memory);
    let process = "proportional set size without maps, page tables and kernel stack";
    report.figure("l6.process_mb", &own, "MB", process);
    report.figure("l6.maps_mb", &maps, "MB", "ports' memory in the kernel");
    let conditions = format!("{count} idle instances and the daemon, percent of one core");
    report.figure("l6.idle_cpu_percent", &percent, "%", &conditions);
    let conditions = format!(
        "{clones} idle firewalls of {} states each and the daemon, percent of one core",
        pump::FLOWS
    );
    report.figure("l6.idle_stateful_cpu_percent", &stateful, "%", &conditions);
    Ok(())
}

/// Returns the CPU time of instances and the daemon in `rounds` rounds of this length, in percent of one core.
fn busy_percent(
    pids: &[u32],
    daemon: u32,
    rounds: usize,
    length: Duration,
) -> anyhow::Result<Samples> {
    let mut percent = Samples::default();
    for _ in 0..rounds {
        interrupt::check()?;
        let (start, first) = (Instant::now(), used(pids, daemon)?);
        std::thread::sleep(length);
        percent.push((used(pids, daemon)? - first) / start.elapsed().as_secs_f64() * 100.0);
    }
    Ok(percent)
}

/// Returns the CPU time of instances and the daemon so far, in seconds.
fn used(pids: &[u32], daemon: u32) -> anyhow::Result<f64> {
    let all = pids.iter().chain([&daemon]);
    all.map(|pid| process_seconds(*pid)).sum()
}
