//! Open vSwitch in user space: on DPDK, with the traffic of testpmd's set-ups; and between two veth pairs, with the
//! ends of the kernel's set-ups, on AF_XDP and AF_PACKET sockets.

use super::dpdk::virtio_user_device;
use super::polling::{BATCH, FORWARDING_CORE, Polling, RING_BITS, TRAFFIC};
use super::resources::Resources;
use super::veth::{self, Ends, GENERATOR_CORE};
use super::way::{Round, Way};
use crate::dpdk::{Dpdk, await_sockets};
use crate::host::cpu;
use crate::host::forwards::Forwards;
use crate::ovs::{Ovs, Ports};
use crate::peer::Peer;
use std::path::PathBuf;
use std::slice;
use std::time::Instant;

/// A switch between two veth pairs. A process is declared before its namespace, so that it ends first.
struct OnVeth {
    ports: Ports,
    _programs: Vec<Peer>,
    ends: Ends,
    ovs: Ovs,
    /// CPU time at the beginning of the idle time.
    idle_since: f64,
}

/// The switch has vhost-user ports, the traffic virtio-user ports, as a virtual machine has.
pub fn vhost(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    let ovs = Ovs::start(Ports::Vhost, FORWARDING_CORE)?;
    let dpdk = resources.dpdk()?;
    anyhow::ensure!(
        dpdk.has_huge_pages(),
        "virtio-user needs huge pages, of which this host has none to give"
    );
    connect(dpdk, ovs).map_err(|error| dpdk.explain(error))
}

fn connect(dpdk: &mut Dpdk, mut ovs: Ovs) -> anyhow::Result<Box<dyn Way>> {
    let (devices, sockets) = two_ports(dpdk);
    let mut traffic = dpdk.start(&TRAFFIC, &devices)?;
    let [from, to] = plug(&mut ovs, "t", &sockets, || traffic.is_running())?;
    ovs.forward(&from, &to)?;
    traffic.await_ready()?;
    let conditions = format!(
        "Open vSwitch on DPDK, vhost-user, one flow from port to port; its polling thread has core 0, \
         sender and receiver are one process with virtio-user on core 1, which polls; batch {BATCH}, \
         {} slots, {}; CPU time of all threads of ovs-vswitchd",
        1 << RING_BITS,
        dpdk.memory()
    );
    let forwarding = vec![Box::new(ovs) as _];
    Ok(Box::new(Polling::new(forwarding, traffic, conditions)?))
}

/// Returns the devices of a process, and their sockets.
pub fn two_ports(dpdk: &mut Dpdk) -> ([String; 2], [PathBuf; 2]) {
    let sockets = [dpdk.socket(), dpdk.socket()];
    let devices = [0, 1].map(|index| virtio_user_device(index, &sockets[index], true));
    (devices, sockets)
}

/// Connects a process's ports to the switch; returns their names there. A server waits for its client before it makes
/// the next port.
pub fn plug(
    ovs: &mut Ovs,
    name: &str,
    sockets: &[PathBuf; 2],
    mut lives: impl FnMut() -> bool,
) -> anyhow::Result<[String; 2]> {
    let names = [format!("{name}a"), format!("{name}b")];
    for (port, socket) in names.iter().zip(sockets) {
        await_sockets(slice::from_ref(socket), &mut lives)?;
        ovs.add_vhost(port, socket)?;
    }
    Ok(names)
}

pub fn af_xdp(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    on_veth(resources, Ports::AfXdp)
}

pub fn af_packet(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    on_veth(resources, Ports::AfPacket)
}

fn on_veth(resources: &mut Resources, ports: Ports) -> anyhow::Result<Box<dyn Way>> {
    let mut ovs = Ovs::start(ports, FORWARDING_CORE)?;
    let (entry, exit) = (veth::name(), veth::name());
    let middle = ovs.namespace();
    let ends = Ends::join(resources, (middle, &entry), (middle, &exit))?;
    let mut programs = Vec::new();
    if ports == Ports::AfPacket {
        let object = veth::programs(resources)?;
        programs.push(veth::take_xdp_frames(middle, &object, &entry)?);
    }
    for interface in [&entry, &exit] {
        ovs.add_interface(interface, "")?;
    }
    ovs.forward(&entry, &exit)?;
    ovs.runs(false)?;
    Ok(Box::new(OnVeth {
        ports,
        _programs: programs,
        ends,
        ovs,
        idle_since: 0.0,
    }))
}

impl OnVeth {
    /// Returns the CPU time of the switch, and of the soft interrupts that carry frames to it.
    fn cpu_seconds(&self) -> anyhow::Result<(f64, f64)> {
        let switch = self.ovs.cpu_seconds()?;
        Ok((switch, cpu::softirq_seconds_of(GENERATOR_CORE)?))
    }
}

impl Way for OnVeth {
    fn conditions(&self) -> String {
        let how = match self.ports {
            Ports::AfXdp => "AF_XDP sockets, native, copying; its polling thread has core 0",
            Ports::AfPacket | Ports::Vhost => {
                "AF_PACKET sockets; its main thread, on core 0, sleeps while nothing comes"
            }
        };
        format!(
            "Open vSwitch in user space, {how}; two veth pairs; one flow from port to port; live XDP \
             frames, generator on core 1; CPU time: all threads of ovs-vswitchd and the soft \
             interrupts of core 1, by /proc/stat, to 10 ms"
        )
    }

    fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<Round> {
        self.ovs.runs(true)?;
        let (start, before) = (Instant::now(), self.cpu_seconds()?);
        let (frames, outcome) = self.ends.send(len, seconds)?;
        let (time, after) = (start.elapsed(), self.cpu_seconds()?);
        self.ovs.runs(false)?;
        let (mut switch, softirq) = (after.0 - before.0, after.1 - before.1);
        if self.polls() {
            // Without the CPU time of polling while the generator starts.
            switch *= outcome.seconds / time.as_secs_f64();
        }
        Ok(Round {
            frames,
            seconds: outcome.seconds,
            forwarding_seconds: switch + softirq,
            // The CPU time of soft interrupts is charged to the generator.
            traffic_seconds: (outcome.cpu_seconds - softirq).max(0.0),
        })
    }

    fn polls(&self) -> bool {
        self.ports == Ports::AfXdp
    }

    fn idle_begin(&mut self, _seconds: f64) -> anyhow::Result<()> {
        self.ovs.runs(true)?;
        self.idle_since = self.ovs.cpu_seconds()?;
        Ok(())
    }

    fn idle_end(&mut self) -> anyhow::Result<f64> {
        let used = self.ovs.cpu_seconds()? - self.idle_since;
        self.ovs.runs(false)?;
        Ok(used)
    }
}
