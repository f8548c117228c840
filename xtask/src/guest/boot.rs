//! Boots a guest and follows its serial console.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::time::Duration;

use anyhow::{Context, Result};

use super::Event;
use super::kernel::Kernel;
use super::report::Report;
use crate::session::{Outcome, Session, Watchdog};

/// TCG is ten to fifty times slower than the host; a machine shared with other jobs is slow as well.
const WATCHDOG: Watchdog = Watchdog {
    silence: Duration::from_secs(10 * 60),
    total: Duration::from_secs(40 * 60),
};

/// An oops panics and a panic resets, which ends QEMU. Kernel messages below an emergency would split test output; init
/// prints the important messages after all tests. A guest has no secrets: page tables that are isolated and thunks for
/// jumps would cost a fifth of the tests' time.
const COMMAND_LINE: &str = "console=ttyS0 quiet loglevel=1 oops=panic panic=-1 reboot=t \
    random.trust_cpu=on tsc=reliable mitigations=off rdinit=/init";
/// Without "enhanced rep movsb" the kernel copies and clears memory by words; TCG takes one step per iteration either
/// way. Tests cost a sixth less CPU time.
const CPU: &str = "max,-erms";
/// Frequency if the host does not report one. A wrong frequency changes the length of a guest's second, which affects
/// no test.
const TSC_KHZ_FALLBACK: u64 = 2_000_000;

/// Boots the kernel with its initramfs, waits until it powers off and returns the report of its tests. `on_event` gets
/// each console line for the reader, and each test that has ended. The whole console goes into the file console.log of
/// the kernel's folder.
///
/// # Errors
/// QEMU cannot start, or an interrupt. Failures in the guest are part of the report.
pub fn boot(
    session: &Session,
    kernel: &Kernel,
    memory_mib: u32,
    on_event: &mut impl FnMut(Event<'_>),
) -> Result<Report> {
    let log = kernel.folder().join("console.log");
    let mut qemu = session.command("qemu-system-x86_64");
    qemu.args([
        "-machine",
        "microvm,accel=tcg,pit=on,pic=on,rtc=on",
        "-cpu",
        CPU,
    ]);
    qemu.args(["-smp", "2", "-m", &format!("{memory_mib}M")]);
    qemu.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    qemu.args(["-display", "none", "-serial", "stdio"]);
    let command_line = format!("{COMMAND_LINE} tsc_early_khz={}", tsc_khz());
    qemu.args(["-append", &command_line]);
    qemu.arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(kernel.initramfs());
    let file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
    let mut copy = BufWriter::new(file);
    let mut report = Report::default();
    let outcome = session.stream(&mut qemu, Some(WATCHDOG), |line| {
        // The copy is for people; the report does not depend on it.
        let _ = writeln!(copy, "{line}");
        if let Some(case) = report.case(line) {
            on_event(Event::Case(case));
        }
        if let Some(text) = report.line(line) {
            on_event(Event::Line(text));
        }
    })?;
    copy.flush()
        .with_context(|| format!("writing {}", log.display()))?;
    match outcome {
        Outcome::Hung => report.broken("the guest hung and was killed"),
        Outcome::Exited(status) if !status.success() => report.broken(format!("QEMU: {status}")),
        Outcome::Exited(_) => {}
    }
    Ok(report)
}

/// Returns the frequency of the time-stamp counter, which TCG passes through from the host, in kHz. The kernel would
/// measure it against the machine's timer chip; on a busy host that fails, and a microvm without another clock then
/// hangs at boot.
fn tsc_khz() -> u64 {
    let base = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    let base = base.ok().and_then(|text| text.trim().parse().ok());
    base.or_else(|| current_khz(&fs::read_to_string("/proc/cpuinfo").ok()?))
        .unwrap_or(TSC_KHZ_FALLBACK)
}

/// `cpu MHz         : 2596.140`
fn current_khz(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    let (mega, fraction) = line.split_once(':')?.1.trim().split_once('.')?;
    let kilo = fraction.get(..3)?.parse::<u64>().ok()?;
    mega.parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(kilo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_is_read_from_cpuinfo() {
        let cpuinfo = "processor\t: 0\ncpu MHz\t\t: 2596.140\ncache size\t: 36608 KB\n";
        assert_eq!(current_khz(cpuinfo), Some(2_596_140));
        assert_eq!(current_khz("model name : x"), None);
        assert_eq!(current_khz("cpu MHz : fast"), None);
    }
}
