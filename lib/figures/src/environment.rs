//! Where a figure comes from.

use serde::{Deserialize, Serialize};

/// The machine, as far as a reader needs it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Online cores.
    pub cores: usize,
    /// From core 0 to core 1, in nanoseconds, when the run began; nothing on a busy machine.
    pub core_to_core_ns: Option<f64>,
    /// Load average of the minute before.
    pub load: f64,
    /// True in a virtual machine.
    pub virtualised: bool,
    /// Version of nfluid.
    pub version: String,
    /// Commit that the program was built from. `None` if `make bench` did not start the program, and in
    /// results of earlier versions.
    #[serde(default)]
    pub commit: Option<String>,
    /// True if the program was built with optimisation.
    pub optimised: bool,
}

impl Environment {
    /// Returns the environment of a simulation, whose figures depend on its program and its seed alone.
    pub fn simulated(version: &str) -> Self {
        Environment {
            kernel: "none".to_owned(),
            cpu: "simulated".to_owned(),
            cores: 0,
            core_to_core_ns: None,
            load: 0.0,
            virtualised: false,
            version: version.to_owned(),
            commit: None,
            optimised: true,
        }
    }
}
