//! DPDK's forwarder, testpmd, between two ports; our own DPDK program on the other core sends and receives. All poll.

use super::polling::{BATCH, FORWARDING_CORE, Polling, RING_BITS, TRAFFIC};
use super::resources::Resources;
use super::way::Way;
use crate::dpdk::endpoint::Endpoint;
use crate::dpdk::memif::device;
use crate::dpdk::testpmd::{Mode, Testpmd};
use crate::dpdk::{Dpdk, await_sockets, driver};
use crate::peer::Peer;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::path::{Path, PathBuf};

/// Slots of a ring, nfluid's and the peers'.
const RING: u32 = 1 << RING_BITS;
/// Slots in which a port sends, as the daemon gives them.
const TX_SLOTS: u32 = 64;
/// Length of the frames by which a set-up shows that it forwards.
const FIRST_LEN: usize = 64;

/// Types of the ports.
#[derive(Clone, Copy)]
pub enum Ports {
    Memif {
        zero_copy: bool,
    },
    /// The forwarder has virtio's side, as in a container; the traffic's process copies.
    VirtioUser,
    /// The forwarder has vhost's side, as a switch.
    Vhost,
    /// Both are instances of nfluid, by nfluid's driver.
    Nfluid {
        /// No driver copies a frame.
        zero_copy: bool,
    },
}

pub fn memif_zero_copy(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Ports::Memif { zero_copy: true })
}

pub fn memif_copy(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Ports::Memif { zero_copy: false })
}

pub fn virtio_user(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Ports::VirtioUser)
}

pub fn vhost(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Ports::Vhost)
}

fn start(resources: &mut Resources, ports: Ports) -> anyhow::Result<Box<dyn Way>> {
    start_with(resources, ports, &TRAFFIC)
}

/// Starts a forwarder, and the process that sends and receives.
///
/// # Errors
/// When this host cannot run such ports, or a process does not start.
pub fn start_with(
    resources: &mut Resources,
    ports: Ports,
    traffic: &Endpoint,
) -> anyhow::Result<Box<dyn Way>> {
    let instances = match ports {
        Ports::Nfluid { .. } => Some(linked(&mut resources.scratch)?),
        _ => None,
    };
    let dpdk = resources.dpdk()?;
    anyhow::ensure!(
        dpdk.has_huge_pages() || !ports.shares_memory(),
        "{} needs huge pages, of which this host has none to give",
        ports.name()
    );
    let connected = match instances {
        Some(instances) => attach(dpdk, ports, instances, traffic),
        None => connect(dpdk, ports, traffic),
    };
    let measured = connected.and_then(|(testpmd, mut sends, instances)| {
        sends.await_ready()?;
        let conditions = ports.conditions(traffic, dpdk);
        let forwarding = vec![Box::new(testpmd) as _];
        let mut polling = Polling::new(forwarding, sends, conditions)?.with(instances);
        polling.await_forwarding(FIRST_LEN)?;
        Ok(Box::new(polling) as _)
    });
    measured.map_err(|error| dpdk.explain(error))
}

/// The forwarder, the process that sends and receives, and the instances that they are.
type Connected = (Testpmd, Peer, Vec<ScratchInstance>);

/// The instances of the forwarder and of the traffic, whose ports of the same number are linked.
fn linked(scratch: &mut Scratch) -> anyhow::Result<[ScratchInstance; 2]> {
    let mut forwarder = scratch.instance(2, RING, TX_SLOTS)?;
    let mut traffic = scratch.instance(2, RING, TX_SLOTS)?;
    for port in 0..2 {
        scratch.link((&mut forwarder, port), (&mut traffic, port))?;
    }
    Ok([forwarder, traffic])
}

fn attach(
    dpdk: &mut Dpdk,
    ports: Ports,
    instances: [ScratchInstance; 2],
    traffic: &Endpoint,
) -> anyhow::Result<Connected> {
    dpdk.load(driver::build()?);
    let devices = [0, 1].map(|index| ports.device(index, Path::new(""), false));
    let [forwarder, other] = &instances;
    let testpmd = Testpmd::start_in(forwarder, dpdk, Mode::Macswap, FORWARDING_CORE, &devices)?;
    let sends = dpdk.start_in(other, traffic, &devices)?;
    Ok((testpmd, sends, instances.into()))
}

fn connect(dpdk: &mut Dpdk, ports: Ports, endpoint: &Endpoint) -> anyhow::Result<Connected> {
    let sockets = [dpdk.socket(), dpdk.socket()];
    let devices = |serves| -> Vec<String> {
        let device = |(index, socket): (usize, &PathBuf)| ports.device(index, socket, serves);
        sockets.iter().enumerate().map(device).collect()
    };
    // The side that makes the sockets starts first.
    let serves = ports.forwarder_serves();
    let start = |dpdk: &Dpdk, serves| {
        Testpmd::start(dpdk, Mode::Macswap, FORWARDING_CORE, &devices(serves))
    };
    let (testpmd, traffic) = if serves {
        let mut testpmd = start(dpdk, true)?;
        await_sockets(&sockets, || testpmd.is_running())?;
        let traffic = dpdk.start(endpoint, &devices(false))?;
        (testpmd, traffic)
    } else {
        let mut traffic = dpdk.start(endpoint, &devices(true))?;
        await_sockets(&sockets, || traffic.is_running())?;
        let testpmd = start(dpdk, false)?;
        (testpmd, traffic)
    };
    Ok((testpmd, traffic, Vec::new()))
}

impl Ports {
    fn name(self) -> &'static str {
        match self {
            Ports::Memif { zero_copy: true } => "memif, zero-copy in the forwarder",
            Ports::Memif { zero_copy: false } => "memif, copies on both sides",
            Ports::VirtioUser => "virtio-user in the forwarder, vhost-user in the traffic",
            Ports::Vhost => "vhost-user in the forwarder, virtio-user in the traffic",
            Ports::Nfluid { zero_copy: true } => {
                "nfluid's driver on both sides, zero-copy on both, the switch between them"
            }
            Ports::Nfluid { zero_copy: false } => {
                "nfluid's driver on both sides, copies on both, the switch between them"
            }
        }
    }

    fn shares_memory(self) -> bool {
        !matches!(
            self,
            Ports::Memif { zero_copy: false } | Ports::Nfluid { .. }
        )
    }

    fn conditions(self, traffic: &Endpoint, dpdk: &Dpdk) -> String {
        format!(
            "{}; testpmd macswap on core {FORWARDING_CORE}, which polls; sender and receiver are one process on \
             core {}, which {}; batch {BATCH}, {RING} slots, {}; CPU time of testpmd",
            self.name(),
            traffic.core,
            if traffic.yields {
                "yields when it has nothing to do"
            } else {
                "polls"
            },
            dpdk.memory()
        )
    }

    fn forwarder_serves(self) -> bool {
        matches!(self, Ports::Vhost)
    }

    /// Returns the EAL argument of a port, for the side that makes the socket or for the other side.
    fn device(self, index: usize, socket: &Path, serves: bool) -> String {
        let path = socket.display();
        match self {
            Ports::Memif { zero_copy } => {
                device(index, socket, !serves, zero_copy && !serves, RING_BITS)
            }
            Ports::VirtioUser | Ports::Vhost if serves => {
                format!("net_vhost{index},iface={path},queues=1")
            }
            Ports::Nfluid { zero_copy } => driver::device(index, zero_copy),
            Ports::VirtioUser | Ports::Vhost => virtio_user_device(index, socket, false),
        }
    }
}

/// Returns the EAL argument of a virtio-user port, which makes its socket if `serves`.
pub fn virtio_user_device(index: usize, socket: &Path, serves: bool) -> String {
    let path = socket.display();
    let size = 1 << RING_BITS;
    let serves = if serves { ",server=1" } else { "" };
    format!(
        "net_virtio_user{index},path={path}{serves},queues=1,queue_size={size},mrg_rxbuf=0,in_order=1"
    )
}
