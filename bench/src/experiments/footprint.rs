//! Memory and idle CPU of instances that do nothing: `nfluid-nf` with a bridge on rings of 64
//! slots. No sandbox: the daemon's namespaces and cgroups cost kernel memory that is not counted.

use crate::host::cpu;
use crate::host::program::beside_this_program;
use crate::report::{Report, significant, table};
use crate::statistics::Samples;
use anyhow::Context;
use nfluid_switch::scratch::{Scratch, ScratchInstance};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RING: u32 = 64;
const PROGRAM: &str = "nfluid-nf";
/// Kernel stack of a thread on x86-64 and arm64.
const KERNEL_STACK: u64 = 16 << 10;
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

/// What idle instances cost.
struct Cost {
    megabytes: Samples,
    cpu_percent: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let program = beside_this_program(PROGRAM, "nfluid-nf-host")?;
    let mut scratch = Scratch::new("footprint")?;
    let (rounds, seconds) = report.choose((5, 5.0), (3, 1.5));
    let mut idle = vec![start(&mut scratch, &program)?];
    let one = observe(&mut idle, rounds, seconds)?;
    while idle.len() < MANY {
        idle.push(start(&mut scratch, &program)?);
    }
    let many = observe(&mut idle, rounds, seconds)?;
    let row = |name: &str, cost: &Cost| {
        vec![
            name.to_owned(),
            significant(cost.megabytes.median()),
            significant(cost.cpu_percent.median()),
            format!("{:.0} %", cost.cpu_percent.spread_percent()),
        ]
    };
    table(
        "Idle instances: bridge, 2 ports, 64-slot rings, no sandbox",
        &["instances", "MB each", "CPU % of a core, all", "spread"],
        &[row("1", &one), row("100", &many)],
    );
    let memory = format!(
        "bridge, 2 ports, {RING} slots; proportional set size without the maps, maps, page tables \
         and kernel stack; no sandbox"
    );
    report.figure(
        "footprint.instance.mb",
        &one.megabytes,
        "MB",
        &format!("{memory}; the only instance: nothing is shared"),
    );
    report.figure(
        "footprint.instance100.mb",
        &many.megabytes,
        "MB",
        &format!("{memory}; each of {MANY}, which share the program"),
    );
    report.figure(
        "footprint.idle.cpu_percent",
        &many.cpu_percent,
        "%",
        &format!("{MANY} idle instances together, percent of one core, {RING} slots, no sandbox"),
    );
    Ok(())
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

fn observe(idle: &mut [Idle], rounds: usize, seconds: f64) -> anyhow::Result<Cost> {
    // They start, and stop spinning.
    std::thread::sleep(Duration::from_secs(1));
    let mut cost = Cost {
        megabytes: Samples::default(),
        cpu_percent: Samples::default(),
    };
    for _ in 0..rounds {
        let (start, before) = (Instant::now(), cpu_seconds(idle)?);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let used = cpu_seconds(idle)? - before;
        cost.cpu_percent
            .push(used / start.elapsed().as_secs_f64() * 100.0);
        let bytes = idle.iter().map(memory_bytes).sum::<anyhow::Result<u64>>()?;
        cost.megabytes.push(bytes as f64 / idle.len() as f64 / 1e6);
    }
    for one in idle {
        anyhow::ensure!(
            one.child.try_wait()?.is_none(),
            "an idle {PROGRAM} has ended; start it by hand to see why"
        );
    }
    Ok(cost)
}

/// CPU time of all instances in seconds.
fn cpu_seconds(idle: &[Idle]) -> anyhow::Result<f64> {
    let of = |one: &Idle| cpu::process_seconds(one.child.id());
    idle.iter().map(of).sum()
}

fn memory_bytes(one: &Idle) -> anyhow::Result<u64> {
    let read = |name: &str| {
        let path = format!("/proc/{}/{name}", one.child.id());
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    };
    let own = private_pss_kib(&read("smaps")?) << 10;
    let tables = field_kib(&read("status")?, "VmPTE:") << 10;
    Ok(own + tables + KERNEL_STACK + one.instance.memory.bytes() as u64)
}

/// Proportional set size in KiB of all mappings but those of BPF maps, which are counted whole.
fn private_pss_kib(smaps: &str) -> u64 {
    let (mut sum, mut of_map) = (0, false);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or("");
        if !first.ends_with(':') {
            of_map = line.contains("bpf-map");
        } else if first == "Pss:" && !of_map {
            sum += field_kib(line, "Pss:");
        }
    }
    sum
}

/// The number of the line that starts with `name`; 0 if there is none.
fn field_kib(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{field_kib, private_pss_kib};

    const SMAPS: &str = "\
5560-5570 r-xp 00000000 08:01 131 /usr/bin/nfluid-nf
Size:                 64 kB
Pss:                  12 kB
Pss_Dirty:             4 kB
7f00-7f10 rw-s 00000000 00:0e 13 anon_inode:bpf-map
Pss:                 256 kB
7ff0-7ff1 rw-p 00000000 00:00 0 [stack]
Pss:                   8 kB
";

    #[test]
    fn maps_are_left_out_of_the_set_size() {
        assert_eq!(private_pss_kib(SMAPS), 20);
        assert_eq!(field_kib("VmRSS:\t 9 kB\nVmPTE:\t  44 kB\n", "VmPTE:"), 44);
        assert_eq!(field_kib("", "VmPTE:"), 0);
    }
}
