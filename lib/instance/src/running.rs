//! A running instance, as the daemon knows it.

use crate::cores::Load;
use crate::paths::Paths;
use crate::record::Record;
use crate::{doorbell, machine};
use anyhow::Context;
use nfluid_api::types::InstanceState;
use nfluid_control::group::{Groups, path, weight};
use nfluid_control::host::{TX_SLOTS, TX_SLOTS_BUILT_IN};
use nfluid_control::model::Program;
use nfluid_control::portion::Portion;
use nfluid_control::quantity::{Micros, Millis};
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_control::supervise::Supervisor;
use nfluid_ring::slice;
use nfluid_sandbox::cgroup::{Cgroup, CgroupError, Share};
use nfluid_sandbox::{Ended, Instance, InstanceError};
use nfluid_switch::{InstanceMemory, Maps, PortSpec, Switch, SwitchError, Wake};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Processes and threads that an instance may have.
const PIDS_MAX: u32 = 256;

/// What looks at an instance have found, for those who ask.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// Why it is not well, if it is not.
    pub unhealthy: Option<String>,
    /// How often it was found unhealthy, since this daemon looks after it.
    pub times: u64,
}

/// An instance of the platform.
pub struct Running {
    /// What it was made from.
    pub spec: InstanceSpec,
    /// Its ports; their maps are pinned.
    pub memory: InstanceMemory,
    /// Who pays.
    pub cgroup: Cgroup,
    /// Its process; absent between an end and a restart.
    pub process: Option<Instance>,
    /// What it wakes its I/O thread with, while it has one.
    pub io_bell: Option<OwnedFd>,
    /// Whether and when it is started again.
    pub supervisor: Supervisor,
    /// The core that its placement has put it on.
    pub core: Option<u32>,
    /// The CPUs that its threads were pinned to, empty for all; unknown after an adoption.
    pub pinned: Option<Vec<u32>>,
    /// The time slice that its threads were given.
    pub sliced: Option<Micros>,
    /// What it would use of a core by itself.
    pub load: Load,
    /// When it was put on its core, on the supervisor's clock.
    pub moved_at: Millis,
    /// Where it is in its life.
    pub state: InstanceState,
    /// What was found of its health.
    pub condition: Condition,
    /// How it ended last.
    pub last_exit: Option<String>,
    /// When its process started, or was adopted.
    pub since: Instant,
    /// What is kept on disk about it.
    pub record: Record,
}

/// The cgroup of instance `name`: a prefix keeps it apart from the daemon's own.
pub fn cgroup_name(name: &str) -> String {
    format!("i-{name}")
}

/// TX slots of each port of an instance that is made now. An I/O thread gives them back late: then there are more.
pub fn tx_slots(spec: &InstanceSpec) -> u32 {
    let is_built_in = matches!(spec.program, Program::BuiltIn { .. });
    if is_built_in && spec.trust.is_none() && !spec.io.has_threads() {
        TX_SLOTS_BUILT_IN
    } else {
        TX_SLOTS
    }
}

/// The ports of an instance, every queue one of its own, with ids from `first_id` and so many TX slots each.
pub fn port_specs(spec: &InstanceSpec, first_id: u32, tx_slots: u32) -> Vec<PortSpec> {
    let queues = spec
        .ports
        .iter()
        .flat_map(|port| (0..port.queues).map(move |queue| (port, queue)));
    (first_id..)
        .zip(queues)
        .map(|(id, (port, queue))| {
            let mut made = PortSpec::new(id, &port.name, port.mac.0, spec.ring);
            made.mtu = port.mtu;
            made.tx_slots = tx_slots;
            made.queue = (queue, port.queues);
            // Its queues' threads share one pipe, which a link's sender rings once for all of them.
            made.kernel_doorbell = port.queues > 1;
            made.wake = wake_of(spec.wake);
            made
        })
        .collect()
}

/// As the switch has it.
fn wake_of(wake: Option<nfluid_control::wake::Wake>) -> Wake {
    wake.map_or(Wake::AT_ONCE, |wake| Wake {
        frames: wake.frames,
        after: wake.after.duration(),
    })
}

impl Running {
    /// Changes when it is woken if it sleeps.
    ///
    /// # Errors
    /// When the switch refuses it for a port.
    pub fn set_wake(
        &self,
        switch: &Switch,
        wake: Option<nfluid_control::wake::Wake>,
    ) -> anyhow::Result<()> {
        for part in &self.memory.ports {
            switch.set_wake(part.spec.id, wake_of(wake))?;
        }
        Ok(())
    }

    /// Gives its threads the time slice of `resources`, or the platform's.
    ///
    /// # Errors
    /// The kernel has none.
    pub fn slice(&mut self, resources: &Resources) -> anyhow::Result<()> {
        if self.sliced != resources.slice {
            if let Some(process) = &self.process {
                give_slice(process, resources.slice)?;
            }
            self.sliced = resources.slice;
        }
        Ok(())
    }

    /// The maps of its ports, which the daemon does not keep open.
    ///
    /// # Errors
    /// Somebody has removed their pins, or no descriptor is left.
    pub fn maps(&self, paths: &Paths, name: &str) -> Result<Maps, SwitchError> {
        Maps::open(&paths.instance_pins(name), self.memory.ports.len())
    }

    /// Keeps the bell that its process was given if a thread listens to it.
    pub fn keep_io_bell(&mut self, bell: OwnedFd) {
        self.io_bell = self.spec.io.has_threads().then_some(bell);
    }

    /// Takes the bell of its I/O thread from its process, unless it is there.
    ///
    /// # Errors
    /// The process has none, as a daemon of former times made it, or has closed it.
    pub fn take_io_bell(&mut self) -> anyhow::Result<()> {
        if self.io_bell.is_none() {
            let process = self.process.as_ref().context("it does not run")?;
            let number = self.record.io_bell.context(
                "it has no bell for an I/O thread; 'nfluid restart INSTANCE' gives it one",
            )?;
            self.io_bell = Some(doorbell::take_io(process, number)?);
        }
        Ok(())
    }

    /// What a successor on its ports wakes the I/O thread with: the thread goes on listening to the bell that it has had.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn io_bell_of_successor(&self) -> anyhow::Result<OwnedFd> {
        match &self.io_bell {
            Some(bell) => bell.try_clone().context("duplicating an I/O bell"),
            None => doorbell::make_io().context("making the bell of its I/O thread"),
        }
    }

    /// Process number, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Instance::pid)
    }
}

/// Weight, cap and memory of an instance's cgroup.
pub fn set_resources(
    cgroup: &Cgroup,
    groups: &Groups,
    resources: &Resources,
) -> anyhow::Result<()> {
    cgroup.set_cap(cap_of(groups, resources.group.as_deref(), resources.cap)?)?;
    limit_new(cgroup, resources)
}

/// Weight and memory of a cgroup that has no cap.
pub fn limit_new(cgroup: &Cgroup, resources: &Resources) -> anyhow::Result<()> {
    set_weight(cgroup, resources)?;
    cgroup.set_memory(resources.memory.0)?;
    cgroup.set_pids(PIDS_MAX)?;
    Ok(())
}

/// The weight of an instance's cgroup.
pub fn set_weight(cgroup: &Cgroup, resources: &Resources) -> anyhow::Result<()> {
    let weight = weight(resources.share, resources.guarantee, machine::cpu_count());
    Ok(cgroup.set_weight(portion(weight)?)?)
}

/// As cgroups have it: so many hundredths of a percent of a core.
pub fn portion(hundredths: u64) -> Result<Share, CgroupError> {
    let per_mille = u32::try_from(hundredths.div_ceil(10)).unwrap_or(u32::MAX);
    Share::from_per_mille(per_mille.clamp(1, Share::MAX_PER_MILLE))
}

/// The cap of something in `group` that is given `own`: not above those of the groups that it is in, which cgroup v1 does
/// not take.
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

/// Gives the threads of a process the time slice that its operator has chosen. Without one they have the platform's, and
/// may shorten it while they have little to do ([`nfluid_ring::slice`]); where the kernel has no slices they have none.
///
/// # Errors
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

/// Milliseconds on the supervisor's clock.
pub fn supervisor_time(started: Instant) -> Millis {
    Millis(started.elapsed().as_millis() as u64)
}

/// Whether an end was one by success.
pub fn exit_of(ended: Ended) -> nfluid_control::supervise::Exit {
    match ended {
        Ended::Exited(0) => nfluid_control::supervise::Exit::Success,
        _ => nfluid_control::supervise::Exit::Failure,
    }
}
