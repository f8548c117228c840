//! DPDK's forwarder, testpmd, between two ports; our own DPDK program on the other core sends and receives. All poll.

use super::polling::{BATCH, FORWARDING_CORE, Polling, RING_BITS, TRAFFIC};
use super::resources::Resources;
use super::way::Way;
use crate::dpdk::memif::device;
use crate::dpdk::testpmd::{Mode, Testpmd};
use crate::dpdk::{Dpdk, await_sockets};
use std::path::{Path, PathBuf};

/// Types of the ports.
#[derive(Clone, Copy)]
enum Ports {
    Memif {
        zero_copy: bool,
    },
    /// The forwarder has virtio's side, as in a container; the traffic's process copies.
    VirtioUser,
    /// The forwarder has vhost's side, as a switch.
    Vhost,
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
    let dpdk = resources.dpdk()?;
    anyhow::ensure!(
        dpdk.has_huge_pages() || matches!(ports, Ports::Memif { zero_copy: false }),
        "{} needs huge pages, of which this host has none to give",
        ports.name()
    );
    connect(dpdk, ports).map_err(|error| dpdk.explain(error))
}

fn connect(dpdk: &mut Dpdk, ports: Ports) -> anyhow::Result<Box<dyn Way>> {
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
    let (testpmd, mut traffic) = if serves {
        let mut testpmd = start(dpdk, true)?;
        await_sockets(&sockets, || testpmd.is_running())?;
        let traffic = dpdk.start(&TRAFFIC, &devices(false))?;
        (testpmd, traffic)
    } else {
        let mut traffic = dpdk.start(&TRAFFIC, &devices(true))?;
        await_sockets(&sockets, || traffic.is_running())?;
        let testpmd = start(dpdk, false)?;
        (testpmd, traffic)
    };
    traffic.await_ready()?;
    let conditions = format!(
        "{}; testpmd macswap on core 0, sender and receiver are one process on core 1, both poll; \
         batch {BATCH}, {} slots, {}; CPU time of testpmd",
        ports.name(),
        1 << RING_BITS,
        dpdk.memory()
    );
    let forwarding = vec![Box::new(testpmd) as _];
    Ok(Box::new(Polling::new(forwarding, traffic, conditions)?))
}

impl Ports {
    fn name(self) -> &'static str {
        match self {
            Ports::Memif { zero_copy: true } => "memif, zero-copy in the forwarder",
            Ports::Memif { zero_copy: false } => "memif, copies on both sides",
            Ports::VirtioUser => "virtio-user in the forwarder, vhost-user in the traffic",
            Ports::Vhost => "vhost-user in the forwarder, virtio-user in the traffic",
        }
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
