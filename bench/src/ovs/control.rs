//! Open vSwitch's own tools, told which database and switch are meant.

use anyhow::ensure;
use nfluid_testbed::command::output;
use nfluid_testbed::program::find;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The database's socket.
pub const DATABASE: &str = "db.sock";
const BRIDGE: &str = "bridge0";
/// How long a tool may wait, in seconds; starting DPDK is part of it.
const TIMEOUT: u32 = 20;
/// Where programs and tools would otherwise look for, or leave, sockets and files.
const FOLDERS: [&str; 4] = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"];

/// The tools.
#[derive(Debug)]
pub struct Control {
    folder: PathBuf,
}

impl Control {
    /// For a database and a switch whose sockets are in `folder`.
    pub fn new(folder: &Path) -> Self {
        Control {
            folder: folder.to_owned(),
        }
    }

    /// Where the database answers, as Open vSwitch writes it.
    pub fn database(&self) -> String {
        format!("unix:{}", self.folder.join(DATABASE).display())
    }

    /// Makes a program use the folder.
    pub fn environment(&self, command: &mut Command) {
        for name in FOLDERS {
            command.env(name, &self.folder);
        }
    }

    /// A program that uses the folder.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
        self.environment(&mut command);
        command
    }

    /// Runs `ovs-vsctl`; words are separated by spaces.
    ///
    /// # Errors
    /// When it fails, or the switch does not do what was asked for in time.
    pub fn vsctl(&self, line: &str) -> anyhow::Result<String> {
        let mut command = self.vsctl_command();
        output(command.args(line.split_whitespace()))
    }

    fn vsctl_command(&self) -> Command {
        let mut command = self.command("ovs-vsctl");
        command
            .arg(format!("--db={}", self.database()))
            .arg(format!("--timeout={TIMEOUT}"));
        command
    }

    /// Sets a key of the switch's configuration, before it runs, to a value with spaces.
    ///
    /// # Errors
    /// When `ovs-vsctl` fails.
    pub fn set(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let mut command = self.vsctl_command();
        command.args(["--no-wait", "set", "Open_vSwitch", "."]);
        output(command.arg(format!("other_config:{key}=\"{value}\"")))?;
        Ok(())
    }

    /// Makes the bridge, which forwards nothing yet; the switch runs then.
    ///
    /// # Errors
    /// As for [`Control::vsctl`].
    pub fn make_bridge(&self) -> anyhow::Result<()> {
        self.vsctl(&format!(
            "add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev fail_mode=secure"
        ))?;
        Ok(())
    }

    /// Adds a port.
    ///
    /// # Errors
    /// When the switch could not open it.
    pub fn add_port(&self, port: &str, options: &str) -> anyhow::Result<()> {
        self.vsctl(&format!(
            "add-port {BRIDGE} {port} -- set Interface {port} {options}"
        ))?;
        let why = self.vsctl(&format!("get Interface {port} error"))?;
        ensure!(why.trim() == "[]", "port {port}: {}", why.trim());
        Ok(())
    }

    /// Sends what comes from one port to another one.
    ///
    /// # Errors
    /// When `ovs-ofctl` fails.
    pub fn add_flow(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let socket = self.folder.join(format!("{BRIDGE}.mgmt"));
        let mut command = self.command("ovs-ofctl");
        command
            .arg("add-flow")
            .arg(format!("unix:{}", socket.display()))
            .arg(format!("in_port={from},actions=output:{to}"));
        output(&mut command)?;
        Ok(())
    }
}
