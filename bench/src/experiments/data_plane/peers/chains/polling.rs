//! Polling hops: testpmd, one process each.

use crate::dpdk::memif::device;
use crate::dpdk::testpmd::{Mode, Testpmd};
use crate::dpdk::{Dpdk, await_sockets};
use crate::experiments::data_plane::peers::ovs::{plug, two_ports};
use crate::experiments::data_plane::peers::polling::{
    BATCH, FORWARDING_CORE, Polling, RING_BITS, TRAFFIC, TRAFFIC_CORE,
};
use crate::experiments::data_plane::peers::resources::Resources;
use crate::experiments::data_plane::peers::way::Way;
use crate::host::forwards::Forwards;
use crate::ovs::{Ovs, Ports};
use crate::peer::Peer;
use std::path::PathBuf;
use std::slice;

/// Hops joined by memif; the traffic has its own core.
pub fn memif(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    memif_chain(resources, hops, |_| FORWARDING_CORE, "hops on core 0")
}

/// The same, with the second half of the hops on the traffic's core.
pub fn memif_halves(resources: &mut Resources, hops: usize) -> anyhow::Result<Box<dyn Way>> {
    let core = |index| {
        if 2 * index >= hops {
            TRAFFIC_CORE
        } else {
            FORWARDING_CORE
        }
    };
    memif_chain(
        resources,
        hops,
        core,
        "half of the hops on core 0, half on core 1",
    )
}

/// Open vSwitch's polling thread has its own core.
pub fn ovs_hops_beside_traffic(
    resources: &mut Resources,
    hops: usize,
) -> anyhow::Result<Box<dyn Way>> {
    ovs_chain(resources, hops, TRAFFIC_CORE)
}

/// The traffic has its own core.
pub fn ovs_hops_beside_switch(
    resources: &mut Resources,
    hops: usize,
) -> anyhow::Result<Box<dyn Way>> {
    ovs_chain(resources, hops, FORWARDING_CORE)
}

/// Returns DPDK with huge pages.
fn dpdk(resources: &mut Resources) -> anyhow::Result<&mut Dpdk> {
    let dpdk = resources.dpdk()?;
    anyhow::ensure!(
        dpdk.has_huge_pages(),
        "its processes need huge pages, of which this host has none to give"
    );
    Ok(dpdk)
}

fn memif_chain(
    resources: &mut Resources,
    hops: usize,
    core: impl Fn(usize) -> usize,
    where_: &str,
) -> anyhow::Result<Box<dyn Way>> {
    let dpdk = dpdk(resources)?;
    let connected = connect_memif(dpdk, hops, core);
    let (forwarding, traffic) = connected.map_err(|error| dpdk.explain(error))?;
    let conditions = format!(
        "{hops} testpmd, mac, joined by memif, {}; {where_}, sender and receiver are one process on \
         core 1; all poll; batch {BATCH}, {} slots; CPU time of testpmd",
        if hops == 1 {
            "zero-copy in the forwarder"
        } else {
            "copies on both sides"
        },
        1 << RING_BITS
    );
    Ok(Box::new(Polling::new(forwarding, traffic, conditions)?))
}

/// The forwarding processes, and the traffic's process.
type Connected = (Vec<Box<dyn Forwards>>, Peer);

/// Connects the hops. Each socket is made by the side that sends, or by the traffic. A chain of several hops copies on
/// both sides of each memif: with zero-copy, DPDK 22.11's driver crashes between two forwarders.
fn connect_memif(
    dpdk: &mut Dpdk,
    hops: usize,
    core: impl Fn(usize) -> usize,
) -> anyhow::Result<Connected> {
    let sockets: Vec<PathBuf> = (0..=hops).map(|_| dpdk.socket()).collect();
    let ends = [&sockets[0], &sockets[hops]];
    let devices = [0, 1].map(|index| device(index, ends[index], false, false, RING_BITS));
    let mut traffic = dpdk.start(&TRAFFIC, &devices)?;
    for socket in ends {
        await_sockets(slice::from_ref(socket), || traffic.is_running())?;
    }
    let zero_copy = hops == 1;
    let mut forwarding: Vec<Box<dyn Forwards>> = Vec::with_capacity(hops);
    for index in 0..hops {
        let is_last = index + 1 == hops;
        let devices = [
            device(0, &sockets[index], true, zero_copy, RING_BITS),
            device(1, &sockets[index + 1], is_last, zero_copy, RING_BITS),
        ];
        let mut hop = Testpmd::start(dpdk, Mode::Mac, core(index), &devices)?;
        if !is_last {
            await_sockets(slice::from_ref(&sockets[index + 1]), || hop.is_running())?;
        }
        forwarding.push(Box::new(hop));
    }
    traffic.await_ready()?;
    Ok((forwarding, traffic))
}

fn ovs_chain(resources: &mut Resources, hops: usize, core: usize) -> anyhow::Result<Box<dyn Way>> {
    let ovs = Ovs::start(Ports::Vhost, FORWARDING_CORE)?;
    let dpdk = dpdk(resources)?;
    let connected = connect_ovs(dpdk, ovs, hops, core);
    let (forwarding, traffic) = connected.map_err(|error| dpdk.explain(error))?;
    let conditions = format!(
        "{hops} testpmd, mac, on core {core}, between ports of Open vSwitch on DPDK, whose polling \
         thread has core 0, one flow from port to port; vhost-user, virtio-user; sender and receiver \
         are one process on core 1; all poll; batch {BATCH}, {} slots; CPU time of testpmd and all \
         threads of ovs-vswitchd",
        1 << RING_BITS
    );
    Ok(Box::new(Polling::new(forwarding, traffic, conditions)?))
}

fn connect_ovs(
    dpdk: &mut Dpdk,
    mut ovs: Ovs,
    hops: usize,
    core: usize,
) -> anyhow::Result<Connected> {
    let (devices, ports) = two_ports(dpdk);
    let mut traffic = dpdk.start(&TRAFFIC, &devices)?;
    let [mut from, to] = plug(&mut ovs, "t", &ports, || traffic.is_running())?;
    let mut forwarding: Vec<Box<dyn Forwards>> = Vec::with_capacity(hops + 1);
    for index in 0..hops {
        let (devices, ports) = two_ports(dpdk);
        let mut hop = Testpmd::start(dpdk, Mode::Mac, core, &devices)?;
        let [entry, exit] = plug(&mut ovs, &format!("h{index}"), &ports, || hop.is_running())?;
        ovs.forward(&from, &entry)?;
        for port in [&entry, &exit] {
            ovs.await_link(port)?;
        }
        // The forwarder polls, and the next forwarder needs the core to start.
        hop.runs(false)?;
        from = exit;
        forwarding.push(Box::new(hop));
    }
    ovs.forward(&from, &to)?;
    traffic.await_ready()?;
    forwarding.push(Box::new(ovs));
    Ok((forwarding, traffic))
}
