//! Boots a guest and follows its serial console.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::kernel::Kernel;
use super::report::Report;
use crate::session::{Outcome, Session, Watchdog};

/// TCG is ten to fifty times slower than the host, and so is a machine that other jobs share.
const WATCHDOG: Watchdog = Watchdog {
    silence: Duration::from_secs(10 * 60),
    total: Duration::from_secs(40 * 60),
};

/// An oops panics and a panic resets, which ends QEMU. Messages below an emergency would cut test output in pieces;
/// init prints those that matter when all tests have run.
const COMMAND_LINE: &str = "console=ttyS0 quiet loglevel=1 oops=panic panic=-1 reboot=t \
    random.trust_cpu=on rdinit=/init";

/// Boots the kernel with the image, waits until it powers off and returns what its tests said. The whole console goes
/// into the file `log`.
///
/// # Errors
/// QEMU cannot start, or an interrupt. What goes wrong in the guest is part of the report.
pub fn boot(session: &Session, kernel: &Kernel, image: &Path, log: &Path) -> Result<Report> {
    let mut qemu = session.command("qemu-system-x86_64");
    qemu.args([
        "-machine",
        "microvm,accel=tcg,pit=on,pic=on,rtc=on",
        "-cpu",
        "max",
    ]);
    qemu.args([
        "-smp",
        "2",
        "-m",
        "1G",
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
    ]);
    qemu.args([
        "-display",
        "none",
        "-serial",
        "stdio",
        "-append",
        COMMAND_LINE,
    ]);
    qemu.arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(image);
    let file = File::create(log).with_context(|| format!("writing {}", log.display()))?;
    let mut copy = BufWriter::new(file);
    let mut report = Report::default();
    let outcome = session.stream(&mut qemu, Some(WATCHDOG), |line| {
        // The copy is for people; the report does not depend on it.
        let _ = writeln!(copy, "{line}");
        if let Some(text) = report.line(line) {
            println!("{text}");
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
