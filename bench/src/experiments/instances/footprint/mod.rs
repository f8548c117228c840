//! Memory and idle CPU time of idle instances: `nfluid-nf` with a bridge on rings of 64 slots. The first part has no
//! sandbox: the daemon's namespaces and cgroups cost kernel memory that is not counted.

mod platform;

use crate::host::cpu;
use crate::host::memory::process_bytes;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::program::built;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RING: u32 = 64;
const PROGRAM: &str = "nfluid-nf";
const MANY: usize = 100;

/// An instance with its program; ended when dropped.
struct Idle {
    child: Child,
    instance: ScratchInstance,
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory and CPU time of idle instances.
const COST: [Quantity; 2] = [
    Quantity::new(".mb", "MB", &[("MB each", Shown::Median)]).meaning(
        "bridge, 2 ports, 64 slots; proportional set size without the maps, maps, page tables and kernel stack; no \
         sandbox",
    ),
    Quantity::shown(&[
        ("CPU % of a core, all", Shown::Median),
        ("spread", Shown::Spread),
    ]),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let program = built(PROGRAM, "nfluid-nf-host")?;
    let mut scratch = Scratch::new("footprint")?;
    let (rounds, seconds) = report.effort((5, 5.0), (3, 1.5));
    let mut idle = Vec::new();
    let mut sweep = Sweep::plain(&["instances"], COST);
    for (count, id, conditions) in [
        (
            1,
            "footprint.instance",
            "the only instance: nothing is shared",
        ),
        (
            MANY,
            "footprint.instance100",
            "each of 100, which share the program",
        ),
    ] {
        while idle.len() < count {
            idle.push(start(&mut scratch, &program)?);
        }
        let side = Side::new([count.to_string()], id, ()).under(conditions);
        sweep.add(&side, observe(&mut idle, rounds, seconds)?);
    }
    sweep.print("Idle instances: bridge, 2 ports, 64-slot rings, no sandbox");
    sweep.report_all(report);
    report.figure(
        "footprint.idle.cpu_percent",
        &sweep.rows()[1].samples[1],
        "%",
        &format!("{MANY} idle instances together, percent of one core, {RING} slots, no sandbox"),
    );
    drop(idle);
    platform::run(report)
}

fn start(scratch: &mut Scratch, program: &Path) -> anyhow::Result<Idle> {
    let instance = scratch.instance(2, RING, RING)?;
    let mut command = Command::new(program);
    command
        .env("NFLUID_NF", "bridge")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = instance.spawn(&mut command)?;
    Ok(Idle { child, instance })
}

fn observe(idle: &mut [Idle], rounds: usize, seconds: f64) -> anyhow::Result<[Samples; 2]> {
    // By now the instances have started, and stopped spinning.
    std::thread::sleep(Duration::from_secs(1));
    let [mut megabytes, mut cpu_percent] = <[Samples; 2]>::default();
    for _ in 0..rounds {
        let (start, before) = (Instant::now(), cpu_seconds(idle)?);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let used = cpu_seconds(idle)? - before;
        cpu_percent.push(used / start.elapsed().as_secs_f64() * 100.0);
        let bytes = idle.iter().map(memory_bytes).sum::<anyhow::Result<u64>>()?;
        megabytes.push(bytes as f64 / idle.len() as f64 / 1e6);
    }
    for one in idle {
        anyhow::ensure!(
            one.child.try_wait()?.is_none(),
            "an idle {PROGRAM} has ended; start it by hand to see why"
        );
    }
    Ok([megabytes, cpu_percent])
}

/// CPU time of all instances in seconds.
fn cpu_seconds(idle: &[Idle]) -> anyhow::Result<f64> {
    let of = |one: &Idle| cpu::process_seconds(one.child.id());
    idle.iter().map(of).sum()
}

fn memory_bytes(one: &Idle) -> anyhow::Result<u64> {
    Ok(process_bytes(one.child.id())? + one.instance.memory.bytes() as u64)
}
