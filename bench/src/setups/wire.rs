//! A wire between two network namespaces, and uplinks at its ends.

use crate::host::cpu;
use anyhow::Context;
use nfluid_switch::Destination;
use nfluid_testbed::scratch::Scratch;
use nfluid_testbed::{namespace::Namespace, unique_number};
use nfluid_uplink::{Uplink, UplinkSpec};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::path::Path;

/// Slots of the uplink's ring: the product's default for uplinks.
const UPLINK_RING: u32 = 1024;

/// A veth link between two namespaces. Without an uplink at the far end the kernel of the far end drops the frames.
pub struct Wire {
    near: End,
    far: End,
}

/// An end of a wire: an interface in its own namespace.
pub struct End {
    namespace: Namespace,
    interface: String,
}

impl Wire {
    /// Makes two namespaces and joins them.
    pub fn new() -> anyhow::Result<Self> {
        let (near, far) = (End::new()?, End::new()?);
        let ends = [&near, &far].map(|end| (&end.namespace, end.interface.as_str()));
        Namespace::join(ends[0], ends[1])?;
        Ok(Wire { near, far })
    }

    /// Returns the end of the senders.
    pub fn near(&self) -> &End {
        &self.near
    }

    /// Returns the end at which frames from the near end arrive.
    pub fn far(&self) -> &End {
        &self.far
    }
}

impl End {
    /// The name of an uplink's thread contains the name of its interface.
    fn new() -> anyhow::Result<Self> {
        Ok(End {
            namespace: Namespace::new()?,
            interface: format!("up{}", unique_number()),
        })
    }

    /// Returns the namespace of the interface.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

/// Makes an uplink on the wire, with port `sender` leading to it, and moves its thread to `core`; returns both.
pub fn uplink(
    scratch: &mut Scratch,
    sender: u32,
    wire: &Wire,
    core: usize,
) -> anyhow::Result<(Uplink, u32)> {
    let (uplink, thread) = uplink_at(scratch, &wire.near, core, None)?;
    let port = uplink.spec().port;
    scratch.switch.connect(sender, Destination::Link(port))?;
    Ok((uplink, thread))
}

/// Makes an unconnected uplink at an end of a wire, with a record in `records`, and moves its thread to `core`; returns
/// both.
pub fn uplink_at(
    scratch: &mut Scratch,
    end: &End,
    core: usize,
    records: Option<&Path>,
) -> anyhow::Result<(Uplink, u32)> {
    let (port, pool) = (scratch.port_ids(1), scratch.pool_id());
    let mut spec = UplinkSpec::new(&end.interface, &end.interface, port, pool);
    spec.netns = Some(end.namespace.path());
    spec.ring_slots = UPLINK_RING;
    spec.state_dir = records.map(Path::to_path_buf);
    let uplink = Uplink::open(&scratch.switch, spec)?;
    let thread = cpu::own_thread(&format!("uplink-{}", end.interface))?;
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(Pid::from_raw(thread.cast_signed()), &cores)
        .context("moving the uplink's thread")?;
    Ok((uplink, thread))
}
