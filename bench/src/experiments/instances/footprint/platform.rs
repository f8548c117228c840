//! The same measurement on a platform: instances made by the daemon, with their sandboxes, for several numbers of them.

use crate::host::idle::Idle;
use crate::host::memory::{KERNEL_KINDS, available_bytes, kernel_bytes, map_bytes, own_bytes};
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use std::time::Duration;

/// Number of instances whose memory is listed by kind.
const LOOKED_AT: usize = 50;
/// After the creation the kernel frees temporary memory for this time.
const SETTLES: Duration = Duration::from_secs(1);
/// With fewer instances, the kernel's part is smaller than the changes by the rest of the host.
const TELLING: usize = 50;

/// Memory of each instance; the last quantity is the daemon.
const MEMORY: [Quantity; 5] = [
    Quantity::new(".pss_mb", "MB", &[("set size", Shown::Median)])
        .meaning("proportional set size without maps"),
    Quantity::new(".maps_mb", "MB", &[("maps", Shown::Median)])
        .meaning("ports' memory in the kernel"),
    Quantity::new(".kernel_mb", "MB", &[("kernel", Shown::Median)]).meaning(
        "slab, kernel stacks, page tables and per-CPU memory that are more than before, divided by the instances",
    ),
    Quantity::new(".host_mb", "MB", &[("of the host", Shown::Median)])
        .meaning("less of the host's available memory than before, divided by the instances"),
    Quantity::new(".daemon_mb", "MB", &[("daemon", Shown::Median)])
        .meaning("proportional set size of the daemon"),
];

/// Runs this part.
///
/// # Errors
/// The daemon cannot make a single instance.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let numbers = report.choose(&[1, 1000, 8000][..], &[1, 100][..]);
    let mut idle = Idle::new()?;
    std::thread::sleep(SETTLES);
    let before = (kernel_bytes()?, available_bytes()?);
    let mut sweep = Sweep::plain(&["instances"], MEMORY);
    for number in numbers {
        let refused = idle.populate(*number).err();
        interrupt::check()?;
        if let Some(why) = &refused {
            println!("{number} instances are not to be had here: {why:#}");
        }
        anyhow::ensure!(idle.count() > 0, "not one instance could be made");
        std::thread::sleep(SETTLES);
        look(report, &mut sweep, &mut idle, before)?;
        if refused.is_some() {
            break;
        }
    }
    sweep.print("Idle instances of a platform, MB each; the last column is the daemon");
    sweep.report_all(report);
    Ok(())
}

/// Adds a row: with few instances it has nothing of what all share.
fn look(
    report: &mut Report,
    sweep: &mut Sweep<5>,
    idle: &mut Idle,
    before: ([u64; KERNEL_KINDS.len()], u64),
) -> anyhow::Result<()> {
    let count = idle.count();
    let part = |bytes: u64| bytes as f64 / count as f64 / 1e6;
    let now = kernel_bytes()?;
    let kernel: [f64; KERNEL_KINDS.len()] =
        std::array::from_fn(|kind| part(now[kind].saturating_sub(before.0[kind])));
    let host = part(before.1.saturating_sub(available_bytes()?));
    let [mut own, mut maps, mut in_kernel, mut of_host] = <[Samples; 4]>::default();
    let id = format!("footprint.{count}");
    if count >= TELLING {
        in_kernel.push(kernel.iter().sum());
        of_host.push(host);
        for ((kind, field), part) in KERNEL_KINDS.iter().zip(kernel) {
            let what = format!("of the kernel's memory, {field} of /proc/meminfo");
            report.derived(format!("{id}.kernel.{kind}_mb"), part, "MB", &what);
        }
    }
    let daemon = Samples::from(own_bytes(idle.daemon()?)? as f64 / 1e6);
    for pid in idle.pids()?.iter().take(LOOKED_AT) {
        own.push(own_bytes(*pid)? as f64 / 1e6);
        maps.push(map_bytes(*pid)? as f64 / 1e6);
    }
    let conditions =
        format!("bridge, 2 ports of 64 slots, as the daemon makes it; {count} of them");
    let side = Side::new([count.to_string()], id, ()).under(&conditions);
    sweep.add(&side, [own, maps, in_kernel, of_host, daemon]);
    Ok(())
}
