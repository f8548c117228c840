//! nfluid's firewall of a bridge, without the rest of Neutron: `integrations/openstack/lab/firewall.py`.

use super::OpenVSwitch;
use crate::json_process::JsonProcess;
use crate::{CannotRun, program};
use anyhow::Context;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The flows that Neutron's agent has around its firewall.
pub const AROUND: &str = "priority=0,actions=resubmit(,60)\ntable=60,priority=3,actions=normal\n";

/// The firewall, a process; killed when dropped. Its flows stay.
#[derive(Debug)]
pub struct Firewall(JsonProcess);

impl Firewall {
    /// Checks that it can be started here, and returns the Python for it.
    ///
    /// # Errors
    /// [`CannotRun`] if no Python has the packages os-ken and oslo.privsep.
    pub fn find() -> Result<PathBuf, CannotRun> {
        let has_it = |python: &Path| {
            let mut probe = Command::new(python);
            probe.args([
                "-c",
                "import oslo_privsep, os_ken.ofproto.ofproto_v1_4_parser",
            ]);
            probe.stderr(Stdio::null());
            probe.status().is_ok_and(|status| status.success())
        };
        // Where `cargo xtask deps` puts the tests' packages.
        let of_tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv/bin/python3");
        let mut found = program::find_all("python3").into_iter().chain([of_tests]);
        let why = || CannotRun(program::install("python3-os-ken python3-oslo.privsep"));
        found.find(|python| has_it(python)).ok_or_else(why)
    }

    /// Starts it on a bridge, with flows of this cookie. Flows with another cookie are an earlier run's. `user`: who it is, as an agent that
    /// is not root; absent: root.
    ///
    /// # Errors
    /// [`CannotRun`] as for [`find`](Self::find); the process does not start, or cannot reach the bridge.
    pub fn start(
        switch: &OpenVSwitch,
        bridge: &str,
        cookie: u32,
        user: Option<&str>,
    ) -> anyhow::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../integrations/openstack/lab/firewall.py");
        let mut command = Command::new(Self::find()?);
        let log = File::create(switch.folder.path("firewall.log"))?;
        command
            .arg("-B")
            .arg(script)
            .arg(switch.bridge_socket(bridge))
            .arg(cookie.to_string())
            .args(user)
            .stderr(log);
        let mut firewall = Firewall(JsonProcess::start(&mut command)?);
        let begun = firewall.change(&json!({}));
        begun.with_context(|| switch.firewall_log())?;
        Ok(firewall)
    }

    /// Has it apply changes, and returns how many seconds that took.
    ///
    /// # Errors
    /// The bridge refuses, or the process has ended.
    pub fn change(&mut self, changes: &Value) -> anyhow::Result<f64> {
        self.0.ask(changes)?.as_f64().context("seconds")
    }
}
