//! Adoption of an instance that an earlier daemon has left running.

use super::succession::settled;
use super::{Parts, Process};
use crate::doorbell;
use crate::maker::Maker;
use crate::numbers::InUse;
use crate::port_specs::port_specs;
use anyhow::{Context, bail};
use nfluid_control::spec::InstanceSpec;
use nfluid_lifecycle::record::Record;
use nfluid_lifecycle::runtime::Adopted;
use nfluid_lifecycle::workload::Workload as _;
use nfluid_switch::InstanceMemory;
use std::sync::Arc;

/// Adopts the instance `name`, which must match `spec`.
///
/// # Errors
/// The instance does not exist, or does not match.
pub fn adopt(maker: &Arc<Maker>, name: &str, spec: &InstanceSpec) -> anyhow::Result<Adopted> {
    let paths = &maker.paths;
    let mut record: Record =
        nfluid_records::load(&paths.record(name)).context("reading its record")?;
    if record.spec != serde_json::to_string(spec)? {
        bail!("it was made from another specification");
    }
    let successor = record.successor.clone();
    let process = settled(&mut record)?;
    let specs = port_specs(&record.made_of(spec), record.first_port, record.tx_slots);
    let group = spec.trust.as_ref().map(|trust| {
        let id = maker.switch.group_of(record.first_port);
        maker.groups.adopt(trust, id)
    });
    let group = group.transpose().context("its trust group")?;
    let pins = paths.instance_pins(name);
    let (memory, maps) = InstanceMemory::reopen(&maker.switch, &pins, &specs, group)?;
    let lost = maker.switch.fill_gaps(&memory, &maps)?;
    let own = record.cgroup.clone();
    let own = own.unwrap_or_else(|| crate::cgroups::cgroup_name(name));
    let cgroup = crate::cgroups::cgroup_of(&maker.cgroups, &own, process.pid())
        .context("it is in no cgroup of the platform")?;
    let io_doorbell = record
        .io_doorbell
        .filter(|_| record.io.has_threads())
        .map(|number| doorbell::take_io(&process, number));
    let io_doorbell = io_doorbell.transpose().unwrap_or_else(|why| {
        tracing::warn!(instance = name, "{why:#}; its I/O model cannot be changed");
        None
    });
    if let Some(successor) = successor {
        let next = paths.next_control(name);
        // The successor listens there until it has the ports. A successor without the ports has left only the file.
        let _none = if *process.identity() == successor {
            std::fs::rename(next, paths.control(name))
        } else {
            std::fs::remove_file(next)
        };
        nfluid_records::save(&record, &paths.record(name))?;
    }
    maker.make_pipes(name)?;
    maker.numbers.mark(&InUse {
        first_port: record.first_port,
        ports: record.ports,
        pool: record.pool,
        user: record.user,
    });
    let parts = Parts {
        memory,
        cgroup,
        memory_limit: spec.resources.memory.0,
        process,
        io_doorbell,
        record,
        pinned: None,
        slice: None,
    };
    let mut process = Process::new(maker, name, parts);
    process.known_oom_kills = process.oom_kills();
    // A daemon that was killed in the middle of a change may have made the change without recording it.
    process.set_wake(spec.wake)?;
    let workload = Box::new(process);
    Ok(Adopted { workload, lost })
}
