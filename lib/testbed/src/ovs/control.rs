//! Open vSwitch's own tools, for one database and switch.

use crate::command::{output, output_of};
use crate::program::find;
use anyhow::ensure;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The database's socket.
pub const DATABASE: &str = "db.sock";
/// Timeout of a tool, in seconds; includes the start of DPDK.
const TIMEOUT: u32 = 20;
/// Environment variables of the folders in which programs and tools look for, or leave, sockets and files.
const FOLDERS: [&str; 4] = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"];

/// The tools.
#[derive(Debug)]
pub struct Control {
    folder: PathBuf,
}

impl Control {
    /// Makes the tools of a database and a switch whose sockets are in `folder`.
    pub fn new(folder: &Path) -> Self {
        Control {
            folder: folder.to_owned(),
        }
    }

    /// Returns the database's address in Open vSwitch's notation.
    pub fn database(&self) -> String {
        format!("unix:{}", self.folder.join(DATABASE).display())
    }

    /// Makes a program use the folder.
    pub fn environment(&self, command: &mut Command) {
        for name in FOLDERS {
            command.env(name, &self.folder);
        }
    }

    /// Returns the command of a program that uses the folder.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
        self.environment(&mut command);
        command
    }

    /// Runs `ovs-vsctl`; words are separated by spaces.
    ///
    /// # Errors
    /// When the tool fails, or the switch does not carry out the request in time.
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

    /// Sets a key of the switch's configuration, before the switch runs, to a value with spaces.
    ///
    /// # Errors
    /// When `ovs-vsctl` fails.
    pub fn set(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let mut command = self.vsctl_command();
        command.args(["--no-wait", "set", "Open_vSwitch", "."]);
        output(command.arg(format!("other_config:{key}=\"{value}\"")))?;
        Ok(())
    }

    /// Makes a bridge, which forwards nothing yet; the switch must run.
    ///
    /// # Errors
    /// As for [`Control::vsctl`].
    pub fn make_bridge(&self, bridge: &str) -> anyhow::Result<()> {
        self.vsctl(&format!(
            "add-br {bridge} -- set bridge {bridge} datapath_type=netdev fail_mode=secure protocols=OpenFlow10,OpenFlow13,OpenFlow14"
        ))?;
        Ok(())
    }

    /// Adds a port.
    ///
    /// # Errors
    /// When the switch could not open the port.
    pub fn add_port(&self, bridge: &str, port: &str, options: &str) -> anyhow::Result<()> {
        self.vsctl(&format!(
            "add-port {bridge} {port} -- set Interface {port} {options}"
        ))?;
        let why = self.vsctl(&format!("get Interface {port} error"))?;
        ensure!(why.trim() == "[]", "port {port}: {}", why.trim());
        Ok(())
    }

    /// Adds flows, in the notation of `ovs-ofctl`, one in a line.
    ///
    /// # Errors
    /// When `ovs-ofctl` fails.
    pub fn add_flows(&self, bridge: &str, flows: &str) -> anyhow::Result<()> {
        output_of(self.ofctl("add-flows", bridge).arg("-"), flows).map(drop)
    }

    /// Returns the flows of a bridge that match, one in a line: `table=82`, or all with an empty text.
    ///
    /// # Errors
    /// When `ovs-ofctl` fails.
    pub fn flows(&self, bridge: &str, matching: &str) -> anyhow::Result<Vec<String>> {
        let mut command = self.ofctl("dump-flows", bridge);
        let text = output(command.arg(matching))?;
        let flows = text.lines().filter(|line| line.contains("actions="));
        Ok(flows.map(str::to_owned).collect())
    }

    /// Takes flows away.
    ///
    /// # Errors
    /// When `ovs-ofctl` fails.
    pub fn delete_flows(&self, bridge: &str, matching: &str) -> anyhow::Result<()> {
        output(self.ofctl("del-flows", bridge).arg(matching)).map(drop)
    }

    fn ofctl(&self, verb: &str, bridge: &str) -> Command {
        let socket = self.folder.join(format!("{bridge}.mgmt"));
        let mut command = self.command("ovs-ofctl");
        command
            .args(["--protocols=OpenFlow14", verb])
            .arg(format!("unix:{}", socket.display()));
        command
    }

    /// The socket of `ovs-appctl`.
    pub fn unixctl(&self) -> PathBuf {
        self.folder.join("ovs-vswitchd.ctl")
    }

    /// Runs `ovs-appctl`; words are separated by spaces.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn appctl(&self, line: &str) -> anyhow::Result<String> {
        let mut command = self.command("ovs-appctl");
        command.arg("--target").arg(self.unixctl());
        output(command.args(line.split_whitespace()))
    }
}
