//! Open vSwitch with its switch in user space, as Debian ships it: a database and a switch of this run, with their
//! sockets and files in their own folder, and their interfaces in their own network namespace. The system's service, if
//! there is one, is not touched.

mod control;

use crate::dpdk::hugepages::HugePages;
use crate::host::forwards::Forwards;
use control::Control;
use nfluid_testbed::CannotRun;
use nfluid_testbed::command::output;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Service;
use nfluid_testbed::program::{find, install, need};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Debian's package, which depends on the others.
const PACKAGE: &str = "openvswitch-switch-dpdk";
/// The full path: the system may have selected the other switch as `ovs-vswitchd`.
const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Huge pages for DPDK: most of the memory is frames, as many as fit.
const MEGABYTES: usize = 256;
const PATIENCE: Duration = Duration::from_secs(60);

/// Kind of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// vhost-user, with the switch as the client: DPDK, whose thread polls.
    Vhost,
    /// AF_XDP sockets on interfaces; a thread polls.
    AfXdp,
    /// AF_PACKET sockets on interfaces; the switch's main thread sleeps while no frame arrives.
    AfPacket,
}

/// A switch. A process is declared before the resources that it uses, so that it ends first.
#[derive(Debug)]
pub struct Ovs {
    switch: Service,
    _database: Service,
    control: Control,
    ports: Ports,
    _pages: Option<HugePages>,
    namespace: Namespace,
    _folder: ScratchDirectory,
}

impl Ovs {
    /// Starts a database, and a switch whose forwarding thread has the core `core`.
    ///
    /// # Errors
    /// [`CannotRun`] when Open vSwitch is not installed or the host has no huge pages for its ports; otherwise its
    /// error text.
    pub fn start(ports: Ports, core: usize) -> anyhow::Result<Self> {
        need(&[
            ("ovsdb-server", PACKAGE),
            ("ovsdb-tool", PACKAGE),
            ("ovs-vsctl", PACKAGE),
            ("ovs-ofctl", PACKAGE),
            ("ip", "iproute2"),
            ("setpriv", "util-linux"),
            ("taskset", "util-linux"),
        ])?;
        if !Path::new(PROGRAM).is_file() {
            return Err(CannotRun(install(PACKAGE)).into());
        }
        let pages = pages(ports)?;
        let folder = ScratchDirectory::new()?;
        let namespace = Namespace::new()?;
        let control = Control::new(folder.as_ref());
        let database = database(&control, &folder)?;
        control.vsctl("--no-wait init")?;
        control.vsctl(&format!(
            "--no-wait set Open_vSwitch . other_config:pmd-cpu-mask={:#x}",
            1 << core
        ))?;
        if ports == Ports::Vhost {
            control.vsctl(&format!(
                "--no-wait set Open_vSwitch . other_config:dpdk-init=true \
                 other_config:dpdk-socket-mem={MEGABYTES} \
                 other_config:dpdk-socket-limit={MEGABYTES}"
            ))?;
            control.set("dpdk-extra", "--no-pci --in-memory --no-telemetry")?;
        }
        let switch = switch(&control, &folder, &namespace, ports, core)?;
        let mut ovs = Ovs {
            switch,
            _database: database,
            control,
            ports,
            _pages: pages,
            namespace,
            _folder: folder,
        };
        ovs.make_bridge()?;
        Ok(ovs)
    }

    fn make_bridge(&mut self) -> anyhow::Result<()> {
        let made = self.control.make_bridge();
        made.map_err(|error| self.explain(error))
    }

    /// Returns the namespace of its interfaces.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Adds a port that is a client of the vhost-user server at `socket`.
    ///
    /// # Errors
    /// Open vSwitch's tools fail; the error has their output.
    pub fn add_vhost(&mut self, port: &str, socket: &Path) -> anyhow::Result<()> {
        let options = format!(
            "type=dpdkvhostuserclient options:vhost-server-path={}",
            socket.display()
        );
        let added = self.control.add_port(port, &options);
        added.map_err(|error| self.explain(error))
    }

    /// Waits until the other side of a vhost-user port has started it.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn await_link(&self, port: &str) -> anyhow::Result<()> {
        let up = format!("wait-until Interface {port} link_state=up");
        self.control.vsctl(&up).map(drop)
    }

    /// Adds an interface of the switch's namespace.
    ///
    /// # Errors
    /// Open vSwitch's tools fail; the error has their output.
    pub fn add_interface(&mut self, interface: &str) -> anyhow::Result<()> {
        let kind = match self.ports {
            Ports::AfXdp => "type=afxdp",
            Ports::AfPacket | Ports::Vhost => "type=system",
        };
        let added = self.control.add_port(interface, kind);
        added.map_err(|error| self.explain(error))
    }

    /// Forwards frames of one port to the other by the cheapest kind of flow.
    ///
    /// # Errors
    /// Open vSwitch's tools fail; the error has their output.
    pub fn forward(&self, from: &str, to: &str) -> anyhow::Result<()> {
        self.control.add_flow(from, to)
    }

    /// Adds the last output of the switch to an error.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let last = self.switch.last_log_line();
        error.context(format!("Open vSwitch said last: {last}"))
    }
}

impl Forwards for Ovs {
    fn runs(&self, runs: bool) -> anyhow::Result<()> {
        self.switch.runs(runs)
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.switch.cpu_seconds()
    }
}

fn pages(ports: Ports) -> anyhow::Result<Option<HugePages>> {
    if ports != Ports::Vhost {
        return Ok(None);
    }
    let pages = HugePages::take(MEGABYTES);
    if pages.is_none() {
        let why =
            format!("its ports need {MEGABYTES} MB of huge pages; this host has none to give");
        return Err(CannotRun(why).into());
    }
    Ok(pages)
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

fn switch(
    control: &Control,
    folder: &ScratchDirectory,
    namespace: &Namespace,
    ports: Ports,
    core: usize,
) -> anyhow::Result<Service> {
    let mut command = namespace.command("setpriv");
    control.environment(&mut command);
    tied_to_this_process(&mut command);
    if ports == Ports::AfPacket {
        // Only the main thread forwards: the whole process is pinned.
        command.args(["taskset", "-c", &core.to_string()]);
    }
    command
        .arg(PROGRAM)
        .arg(control.database())
        .arg(format!("--unixctl={}", folder.path("switch.ctl").display()))
        .args(QUIET);
    Service::start("ovs-vswitchd", &mut command, folder.path("switch.log"))
}

/// Makes a process end when this process ends.
fn tied_to_this_process(setpriv: &mut Command) -> &mut Command {
    setpriv.args(["--pdeathsig", "KILL"])
}
