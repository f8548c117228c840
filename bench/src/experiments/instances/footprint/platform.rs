//! The same measurement on a platform: instances made by the daemon, with their sandboxes, for several numbers of them.

use crate::host::idle::Idle;
use crate::host::memory::{KERNEL_KINDS, available_bytes, kernel_bytes, map_bytes, own_bytes};
use crate::report::{Report, significant, table};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use std::time::Duration;

/// Number of instances whose memory is listed by kind.
const LOOKED_AT: usize = 50;
/// After the creation the kernel frees temporary memory for this time.
const SETTLES: Duration = Duration::from_secs(1);
/// With fewer instances, the kernel's part is smaller than the changes by the rest of the host.
const TELLING: usize = 50;

/// Memory per instance, in MB.
struct Each {
    count: usize,
    own: Samples,
    maps: Samples,
    /// The kernel's part by kind, and the host's decrease of available memory.
    shared: Option<([f64; KERNEL_KINDS.len()], f64)>,
    daemon: f64,
}

/// Runs this part.
///
/// # Errors
/// The daemon cannot make a single instance.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let numbers = report.choose(&[1, 1000, 8000][..], &[1, 100][..]);
    let mut idle = Idle::new()?;
    std::thread::sleep(SETTLES);
    let before = (kernel_bytes()?, available_bytes()?);
    let mut all = Vec::new();
    for number in numbers {
        let refused = idle.populate(*number).err();
        interrupt::check()?;
        if let Some(why) = &refused {
            println!("{number} instances are not to be had here: {why:#}");
        }
        anyhow::ensure!(idle.count() > 0, "not one instance could be made");
        std::thread::sleep(SETTLES);
        all.push(look(&mut idle, before)?);
        if refused.is_some() {
            break;
        }
    }
    show(report, &all);
    Ok(())
}

fn look(idle: &mut Idle, before: ([u64; KERNEL_KINDS.len()], u64)) -> anyhow::Result<Each> {
    let count = idle.count();
    let part = |bytes: u64| bytes as f64 / count as f64 / 1e6;
    let now = kernel_bytes()?;
    let kernel = std::array::from_fn(|kind| part(now[kind].saturating_sub(before.0[kind])));
    let host = part(before.1.saturating_sub(available_bytes()?));
    let mut each = Each {
        count,
        own: Samples::default(),
        maps: Samples::default(),
        shared: (count >= TELLING).then_some((kernel, host)),
        daemon: own_bytes(idle.daemon()?)? as f64 / 1e6,
    };
    for pid in idle.pids()?.iter().take(LOOKED_AT) {
        each.own.push(own_bytes(*pid)? as f64 / 1e6);
        each.maps.push(map_bytes(*pid)? as f64 / 1e6);
    }
    Ok(each)
}

fn show(report: &mut Report, all: &[Each]) {
    let mut rows = Vec::new();
    for each in all {
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), significant);
        rows.push(vec![
            each.count.to_string(),
            significant(each.own.median()),
            significant(each.maps.median()),
            cell(each.shared.map(|(kernel, _)| kernel.iter().sum())),
            cell(each.shared.map(|(_, host)| host)),
            significant(each.daemon),
        ]);
        let id = format!("footprint.{}", each.count);
        let beside = format!(
            "bridge, 2 ports of 64 slots, as the daemon makes it; {} of them",
            each.count
        );
        let pss = format!("{beside}: proportional set size without maps");
        report.figure(format!("{id}.pss_mb"), &each.own, "MB", &pss);
        let maps = format!("{beside}: ports' memory in the kernel");
        report.figure(format!("{id}.maps_mb"), &each.maps, "MB", &maps);
        if let Some((kernel, host)) = each.shared {
            let what = "slab, kernel stacks, page tables and per-CPU memory that are more than before, divided by the instances";
            let sum = kernel.iter().sum();
            report.derived(format!("{id}.kernel_mb"), sum, "MB", what);
            for ((kind, field), part) in KERNEL_KINDS.iter().zip(kernel) {
                let what = format!("of it, {field} of /proc/meminfo");
                report.derived(format!("{id}.kernel.{kind}_mb"), part, "MB", &what);
            }
            let what = "less of the host's available memory than before, divided by the instances";
            report.derived(format!("{id}.host_mb"), host, "MB", what);
        }
        let what = "proportional set size of the daemon";
        report.derived(format!("{id}.daemon_mb"), each.daemon, "MB", what);
    }
    table(
        "Idle instances of a platform, MB each; the last column is the daemon",
        &[
            "instances",
            "set size",
            "maps",
            "kernel",
            "of the host",
            "daemon",
        ],
        &rows,
    );
}
