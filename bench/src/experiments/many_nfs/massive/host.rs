//! Limits that the host must raise for thousands of processes.

use anyhow::Context;
use nfluid_testbed::CannotRun;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Descriptors that this process may need: those of a group of NFs, those of all NFs in an I/O thread, and its own.
const DESCRIPTORS: u64 = 18_432;
/// Processes that other programs of the host may have.
const OTHERS: u64 = 2000;
/// Upper bound of the memory of an NF with all its objects: 8000 NFs took 650 KiB each.
const NF_KIB: u64 = 800;

/// Returns the number of cores to use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises this process's limits, and checks that the host has room for this many NFs.
///
/// # Errors
/// [`CannotRun`] with the limit to raise.
pub fn prepare(nfs: u32) -> anyhow::Result<()> {
    raise_descriptors()?;
    for limit in ["kernel/pid_max", "kernel/threads-max"] {
        let path = format!("/proc/sys/{limit}");
        let value = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let value: u64 = value.trim().parse().with_context(|| path.clone())?;
        room(u64::from(nfs) + OTHERS, value, || {
            format!("sysctl -w {}=65536", limit.replace('/', "."))
        })?;
    }
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let available = crate::host::memory::field_kib(&text, "MemAvailable:");
    room(u64::from(nfs) * NF_KIB, available, || {
        format!("free {} MiB of memory", u64::from(nfs) * NF_KIB / 1024)
    })?;
    Ok(())
}

fn raise_descriptors() -> Result<(), CannotRun> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= DESCRIPTORS) {
        return Ok(());
    }
    let wanted = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: limit.maximum.map(|most| most.max(DESCRIPTORS)),
    };
    setrlimit(Resource::Nofile, wanted).map_err(|_| {
        CannotRun(format!(
            "it needs {DESCRIPTORS} open files and may not raise its limit: run 'ulimit -n {DESCRIPTORS}' first"
        ))
    })
}

fn room(needed: u64, there: u64, remedy: impl FnOnce() -> String) -> Result<(), CannotRun> {
    if there >= needed {
        return Ok(());
    }
    Err(CannotRun(format!(
        "so many processes do not fit ({there} where {needed} are needed): {}",
        remedy()
    )))
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn a_host_that_is_too_small_hears_what_to_do() {
        assert!(room(10, 10, String::new).is_ok());
        let error = room(11, 10, || "sysctl -w x=1".to_owned()).expect_err("too small");
        assert!(error.to_string().ends_with("sysctl -w x=1"), "{error}");
    }
}
