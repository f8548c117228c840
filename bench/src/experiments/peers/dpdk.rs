//! DPDK's forwarder, testpmd, between two ports; what sends and receives is our own program on DPDK,
//! one process on the other core. All poll.

use super::Ground;
use super::way::{Round, Way};
use crate::CannotRun;
use crate::dpdk::endpoint::{Endpoint, Work};
use crate::dpdk::memif::device;
use crate::dpdk::testpmd::Testpmd;
use crate::dpdk::{Dpdk, await_sockets};
use crate::peer::Peer;
use std::path::{Path, PathBuf};

const FORWARDING_CORE: usize = 0;
const TRAFFIC_CORE: usize = 1;
const BATCH: usize = 32;
const RING_BITS: u32 = 10;
const WINDOW: u32 = 512;

/// A forwarder and its traffic; the forwarder ends first, because it polls what the traffic owns.
struct Forwarder {
    testpmd: Testpmd,
    traffic: Peer,
    conditions: String,
    idle_since: f64,
}

/// How the ports are made.
#[derive(Clone, Copy)]
enum Ports {
    Memif {
        zero_copy: bool,
    },
    /// The forwarder has virtio's side, as in a container; the traffic does the copying.
    VirtioUser,
    /// The forwarder has vhost's side, as a switch.
    Vhost,
}

pub fn memif_zero_copy(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Ports::Memif { zero_copy: true })
}

pub fn memif_copy(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Ports::Memif { zero_copy: false })
}

pub fn virtio_user(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Ports::VirtioUser)
}

pub fn vhost(ground: &mut Ground) -> anyhow::Result<Box<dyn Way>> {
    start(ground, Ports::Vhost)
}

fn start(ground: &mut Ground, ports: Ports) -> anyhow::Result<Box<dyn Way>> {
    let dpdk = match &mut ground.dpdk {
        Ok(dpdk) => dpdk,
        Err(why) => match why.downcast_ref::<CannotRun>() {
            Some(CannotRun(why)) => return Err(CannotRun(why.clone()).into()),
            None => anyhow::bail!("{why:#}"),
        },
    };
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
    let endpoint = Endpoint {
        work: Work::Around,
        core: TRAFFIC_CORE,
        batch: BATCH,
        window: WINDOW,
        yields: false,
    };
    // The side that makes the sockets comes first.
    let serves = ports.forwarder_serves();
    let (testpmd, mut traffic) = if serves {
        let mut testpmd = Testpmd::start(dpdk, FORWARDING_CORE, &devices(true))?;
        await_sockets(&sockets, || testpmd.lives())?;
        let traffic = dpdk.start(&endpoint, &devices(false))?;
        (testpmd, traffic)
    } else {
        let mut traffic = dpdk.start(&endpoint, &devices(true))?;
        await_sockets(&sockets, || traffic.lives())?;
        let testpmd = Testpmd::start(dpdk, FORWARDING_CORE, &devices(false))?;
        (testpmd, traffic)
    };
    traffic.await_ready()?;
    testpmd.polls(false)?;
    let conditions = format!(
        "{}; testpmd macswap on core 0, sender and receiver are one process on core 1, both poll; \
         batch {BATCH}, {} slots, {}; CPU time of testpmd",
        ports.name(),
        1 << RING_BITS,
        dpdk.memory()
    );
    Ok(Box::new(Forwarder {
        testpmd,
        traffic,
        conditions,
        idle_since: 0.0,
    }))
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

    /// The EAL argument of a port, for the side that makes the socket or the other one.
    fn device(self, index: usize, socket: &Path, serves: bool) -> String {
        let path = socket.display();
        match self {
            Ports::Memif { zero_copy } => {
                device(index, socket, !serves, zero_copy && !serves, RING_BITS)
            }
            Ports::VirtioUser | Ports::Vhost if serves => {
                format!("net_vhost{index},iface={path},queues=1")
            }
            Ports::VirtioUser | Ports::Vhost => {
                let size = 1 << RING_BITS;
                format!(
                    "net_virtio_user{index},path={path},queues=1,queue_size={size},mrg_rxbuf=0,in_order=1"
                )
            }
        }
    }
}

impl Way for Forwarder {
    fn conditions(&self) -> String {
        self.conditions.clone()
    }

    fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<Round> {
        self.testpmd.polls(true)?;
        let cpu = self.testpmd.cpu_seconds()?;
        self.traffic.tell(seconds, Some(len))?;
        let outcome = self.traffic.hear()?;
        let forwarding_seconds = self.testpmd.cpu_seconds()? - cpu;
        self.testpmd.polls(false)?;
        Ok(Round {
            frames: outcome.frames,
            seconds: outcome.seconds,
            forwarding_seconds,
            traffic_seconds: outcome.cpu_seconds,
        })
    }

    fn polls(&self) -> bool {
        true
    }

    fn idle_begin(&mut self, _seconds: f64) -> anyhow::Result<()> {
        self.testpmd.polls(true)?;
        self.idle_since = self.testpmd.cpu_seconds()?;
        Ok(())
    }

    fn idle_end(&mut self) -> anyhow::Result<f64> {
        let used = self.testpmd.cpu_seconds()? - self.idle_since;
        self.testpmd.polls(false)?;
        Ok(used)
    }
}
