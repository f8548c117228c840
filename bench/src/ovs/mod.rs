//! Open vSwitch as a way of frames from port to port.

use crate::dpdk::hugepages::HugePages;
use crate::host::forwards::Forwards;
use nfluid_testbed::CannotRun;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::ovs::OpenVSwitch;
use std::path::Path;

/// Huge pages for DPDK: most of the memory is frames, as many as fit.
const MEGABYTES: usize = 256;
/// The bridge of every switch.
pub const BRIDGE: &str = "bridge0";

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

impl Ports {
    /// Returns the name for readers.
    pub fn name(self) -> &'static str {
        match self {
            Ports::Vhost => "vhost-user, polled",
            Ports::AfXdp => "AF_XDP, polled",
            Ports::AfPacket => "AF_PACKET",
        }
    }
}

/// A switch. It is declared before the resources that it uses, so that it ends first.
#[derive(Debug)]
pub struct Ovs {
    switch: OpenVSwitch,
    ports: Ports,
    _pages: Option<HugePages>,
    namespace: Namespace,
}

impl Ovs {
    /// Starts a database, and a switch whose forwarding thread has the core `core`.
    ///
    /// # Errors
    /// [`CannotRun`] when Open vSwitch is not installed or the host has no huge pages for its ports; otherwise its
    /// error text.
    pub fn start(ports: Ports, core: usize) -> anyhow::Result<Self> {
        OpenVSwitch::find()?;
        let pages = pages(ports)?;
        let namespace = Namespace::new()?;
        let mut config = vec![("pmd-cpu-mask", format!("{:#x}", 1 << core))];
        if ports == Ports::Vhost {
            config.extend([
                ("dpdk-init", "true".to_owned()),
                ("dpdk-socket-mem", MEGABYTES.to_string()),
                ("dpdk-socket-limit", MEGABYTES.to_string()),
                (
                    "dpdk-extra",
                    "--no-pci --in-memory --no-telemetry".to_owned(),
                ),
            ]);
        }
        // Without a polling thread only the main thread forwards: the whole process is pinned.
        let pinned = (ports == Ports::AfPacket).then_some(core);
        let ovs = Ovs {
            switch: OpenVSwitch::start(&namespace, &config, pinned)?,
            ports,
            _pages: pages,
            namespace,
        };
        ovs.done(ovs.switch.control.make_bridge(BRIDGE))?;
        Ok(ovs)
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
        self.done(self.switch.control.add_port(BRIDGE, port, &options))
    }

    /// Waits until the other side of a vhost-user port has started it.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn await_link(&self, port: &str) -> anyhow::Result<()> {
        let up = format!("wait-until Interface {port} link_state=up");
        self.switch.control.vsctl(&up).map(drop)
    }

    /// Adds an interface of the switch's namespace, with further options in the notation of `ovs-vsctl`.
    ///
    /// # Errors
    /// Open vSwitch's tools fail; the error has their output.
    pub fn add_interface(&mut self, interface: &str, options: &str) -> anyhow::Result<()> {
        let kind = match self.ports {
            Ports::AfXdp => "afxdp",
            Ports::AfPacket | Ports::Vhost => "system",
        };
        let options = format!("type={kind} {options}");
        self.done(self.switch.control.add_port(BRIDGE, interface, &options))
    }

    /// Returns the processes and their tools.
    pub fn switch(&self) -> &OpenVSwitch {
        &self.switch
    }

    /// Forwards frames of one port to the other by the cheapest kind of flow.
    ///
    /// # Errors
    /// Open vSwitch's tools fail; the error has their output.
    pub fn forward(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let flow = format!("in_port={from},actions=output:{to}");
        self.switch.control.add_flows(BRIDGE, &flow)
    }

    fn done(&self, result: anyhow::Result<()>) -> anyhow::Result<()> {
        result.map_err(|error| self.switch.explain(error))
    }
}

impl Forwards for Ovs {
    fn runs(&self, runs: bool) -> anyhow::Result<()> {
        self.switch.switch.runs(runs)
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.switch.switch.cpu_seconds()
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
