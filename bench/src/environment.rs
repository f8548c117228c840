//! Where a figure was measured.

use serde::Serialize;
use std::fs;

/// The machine, as far as a reader needs it.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Online cores.
    pub cores: usize,
    /// Hypervisor, if any.
    pub virtualised: bool,
    /// Version of nfluid.
    pub version: &'static str,
    /// Built with optimisation?
    pub optimised: bool,
}

impl Environment {
    /// Reads it from the running system.
    pub fn read() -> Self {
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
            virtualised: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
            version: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
        }
    }
}
