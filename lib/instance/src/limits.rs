//! The limits of an instance: weight, cap and memory of its cgroup, and the time slice of its threads.

use nfluid_control::group::{Groups, path, weight};
use nfluid_control::portion::Portion;
use nfluid_control::quantity::Micros;
use nfluid_control::spec::Resources;
use nfluid_lifecycle::machine;
use nfluid_ring::slice;
use nfluid_sandbox::cgroup::{Cgroup, CgroupError, Share};
use nfluid_sandbox::{Instance, InstanceError};
use std::time::Duration;

/// Processes and threads that an instance may have.
const PIDS_MAX: u32 = 256;

/// Sets weight, cap and memory of an instance's cgroup.
pub fn set_resources(
    cgroup: &Cgroup,
    groups: &Groups,
    resources: &Resources,
) -> anyhow::Result<()> {
    cgroup.set_cap(cap_of(groups, resources.group.as_deref(), resources.cap)?)?;
    limit_new(cgroup, resources)
}

/// Sets weight and memory of a new cgroup, which has no cap.
pub fn limit_new(cgroup: &Cgroup, resources: &Resources) -> anyhow::Result<()> {
    set_weight(cgroup, resources)?;
    cgroup.set_memory(resources.memory.0)?;
    cgroup.set_pids(PIDS_MAX)?;
    Ok(())
}

/// Sets the weight of an instance's cgroup.
pub fn set_weight(cgroup: &Cgroup, resources: &Resources) -> anyhow::Result<()> {
    let weight = weight(resources.share, resources.guarantee, machine::cpu_count());
    Ok(cgroup.set_weight(portion(weight)?)?)
}

/// Converts hundredths of a percent of a core to the cgroup's unit.
pub fn portion(hundredths: u64) -> Result<Share, CgroupError> {
    let per_mille = u32::try_from(hundredths.div_ceil(10)).unwrap_or(u32::MAX);
    Share::from_per_mille(per_mille.clamp(1, Share::MAX_PER_MILLE))
}

/// Returns the effective cap of an object in `group` with the cap `own`: at most the caps of the enclosing groups,
/// since cgroup v1 refuses a higher one.
pub fn cap_of(
    groups: &Groups,
    group: Option<&str>,
    own: Option<Portion>,
) -> Result<Option<Share>, CgroupError> {
    let cpus = machine::cpu_count();
    let Some(own) = own else { return Ok(None) };
    let around = path(groups, group).into_iter();
    let caps = around.filter_map(|name| groups.get(name)?.cap);
    let least = caps.chain([own]).map(|cap| cap.hundredths(cpus)).min();
    least.map(portion).transpose()
}

/// Gives the threads of a process the time slice that the operator has chosen. Without a choice, the threads have the
/// platform's slice, and may shorten it while they have little to do ([`nfluid_ring::slice`]). On kernels without
/// slices nothing is set.
///
/// # Errors
/// For a chosen slice, as [`Instance::set_slice`].
/// For a slice that was chosen, as [`Instance::set_slice`].
pub fn give_slice(process: &Instance, chosen: Option<Micros>) -> Result<(), InstanceError> {
    match chosen {
        Some(slice) => process.set_slice(Some(slice.duration())),
        None => {
            if let Err(error) = process.set_slice(Some(Duration::from_nanos(slice::PLATFORM))) {
                tracing::debug!(%error, "an instance keeps the kernel's time slice");
            }
            Ok(())
        }
    }
}

/// Pins a process to these CPUs; there is at least one.
///
/// # Errors
/// The process is gone, or none of the CPUs exists.
pub fn pin(process: &Instance, cpus: &[u32]) -> Result<(), InstanceError> {
    let cpus: Vec<usize> = cpus.iter().map(|cpu| *cpu as usize).collect();
    process.pin(&cpus)
}
