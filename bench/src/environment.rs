//! Machine, kernel and commit of a measurement.

use crate::host::distance::core_to_core_ns;
use nfluid_figures::environment::Environment;
use std::fs;

/// Environment variable in which `make bench` passes the commit of this program.
const COMMIT_ENV: &str = "NFLUID_COMMIT";

/// Reads the environment of this run from the running system.
pub fn read() -> Environment {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
    };
    Environment {
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        cpu: field("model name").unwrap_or_else(|| "unknown".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        core_to_core_ns: core_to_core_ns([0, 1]),
        load: load(),
        virtualised: field("flags")
            .is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: std::env::var(COMMIT_ENV).ok(),
        optimised: !cfg!(debug_assertions),
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
