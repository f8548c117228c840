//! Open vSwitch with its switch in user space, as Debian ships it: a database and a switch of this run, with their sockets and files in their own
//! folder, and their interfaces in their own network namespace. The system's service, if there is one, is not touched.

mod control;
mod firewall;

pub use control::Control;
pub use firewall::{AROUND, Firewall};

use crate::CannotRun;
use crate::command::output;
use crate::directory::ScratchDirectory;
use crate::namespace::Namespace;
use crate::process::Service;
use crate::program::{find, install, need};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Debian's package, which depends on the others.
const PACKAGE: &str = "openvswitch-switch-dpdk";
/// The full path: the system may have selected the other switch as `ovs-vswitchd`.
const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const PATIENCE: Duration = Duration::from_secs(60);

/// A switch. A process is declared before the resources that it uses, so that it ends first.
#[derive(Debug)]
pub struct OpenVSwitch {
    /// The process that forwards.
    pub switch: Service,
    _database: Service,
    /// Its tools.
    pub control: Control,
    folder: ScratchDirectory,
}

impl OpenVSwitch {
    /// Checks that it can be started here.
    ///
    /// # Errors
    /// [`CannotRun`] if it is not installed.
    pub fn find() -> Result<(), CannotRun> {
        need(&[
            ("ovsdb-server", PACKAGE),
            ("ovsdb-tool", PACKAGE),
            ("ovs-vsctl", PACKAGE),
            ("ovs-ofctl", PACKAGE),
            ("ovs-appctl", PACKAGE),
            ("ip", "iproute2"),
            ("setpriv", "util-linux"),
            ("taskset", "util-linux"),
        ])?;
        match Path::new(PROGRAM).is_file() {
            true => Ok(()),
            false => Err(CannotRun(install(PACKAGE))),
        }
    }

    /// Starts a database, and a switch with this configuration, keys and values of `other_config`. `core`: the only one that the switch's process
    /// may use.
    ///
    /// # Errors
    /// [`CannotRun`] as for [`find`](Self::find); otherwise a process's last words.
    pub fn start(
        namespace: &Namespace,
        config: &[(&str, String)],
        core: Option<usize>,
    ) -> anyhow::Result<Self> {
        Self::find()?;
        let folder = ScratchDirectory::new()?;
        let control = Control::new(folder.as_ref());
        let database = database(&control, &folder)?;
        control.vsctl("--no-wait init")?;
        for (key, value) in config {
            control.set(key, value)?;
        }
        let mut command = namespace.command("setpriv");
        control.environment(&mut command);
        tied_to_this_process(&mut command);
        if let Some(core) = core {
            command.args(["taskset", "-c", &core.to_string()]);
        }
        command
            .arg(PROGRAM)
            .arg(control.database())
            .arg(format!("--unixctl={}", control.unixctl().display()))
            .args(QUIET);
        let switch = Service::start("ovs-vswitchd", &mut command, folder.path("switch.log"))?;
        Ok(OpenVSwitch {
            switch,
            _database: database,
            control,
            folder,
        })
    }

    /// The socket on which a bridge speaks OpenFlow.
    pub fn bridge_socket(&self, bridge: &str) -> PathBuf {
        self.folder.path(&format!("{bridge}.mgmt"))
    }

    /// Returns the log of the firewall.
    fn firewall_log(&self) -> String {
        std::fs::read_to_string(self.folder.path("firewall.log")).unwrap_or_default()
    }

    /// Adds the last output of the switch to an error.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let last = self.switch.last_log_line();
        error.context(format!("Open vSwitch said last: {last}"))
    }
}

fn database(control: &Control, folder: &ScratchDirectory) -> anyhow::Result<Service> {
    let file = folder.path("conf.db");
    let mut create = control.command("ovsdb-tool");
    output(create.arg("create").arg(&file).arg(SCHEMA))?;
    let mut command = control.command("setpriv");
    tied_to_this_process(&mut command)
        .arg(find("ovsdb-server").unwrap_or_default())
        .arg(&file)
        .arg(format!("--remote=p{}", control.database()))
        .arg(format!("--unixctl={}", folder.path("db.ctl").display()))
        .args(QUIET);
    let mut server = Service::start("ovsdb-server", &mut command, folder.path("db.log"))?;
    server.await_service(PATIENCE, || folder.path(control::DATABASE).exists())?;
    Ok(server)
}

/// Logging to standard error only.
const QUIET: [&str; 3] = ["-vconsole:warn", "-vsyslog:off", "-vfile:off"];

/// Makes a process end when this process ends.
fn tied_to_this_process(setpriv: &mut Command) -> &mut Command {
    setpriv.args(["--pdeathsig", "KILL"])
}
