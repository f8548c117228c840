//! Cgroups with unique names in which processes get caps and weights; removed when dropped.

use crate::unique_number;
use anyhow::Context;
use nfluid_ring::slice;
use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot, Share};
use rustix::process::Pid;

/// Weight of an experiment among the host's other groups: the largest weight of cgroup v2.
const WEIGHT_PERCENT: u32 = 1000;

/// Cgroups of a test or an experiment. Drop the processes in them first.
#[derive(Debug)]
pub struct Cgroups {
    root: Option<CgroupRoot>,
    groups: Vec<Cgroup>,
}

/// Gives the groups in `root` so much weight together that the host's other work hardly counts.
///
/// # Errors
/// The kernel refuses.
pub fn outweigh_others(root: &CgroupRoot) -> anyhow::Result<()> {
    let heavy = Share::from_percent(WEIGHT_PERCENT)?;
    root.set_weight(heavy).context("weighing the cgroups")
}

impl Cgroups {
    /// Makes the root of the cgroups, without any group. The host's other work hardly counts beside them.
    ///
    /// # Errors
    /// When the host has no cgroups that this process may use.
    pub fn new() -> anyhow::Result<Self> {
        let cgroups = Self::with_ordinary_weight()?;
        if let Some(root) = &cgroups.root {
            outweigh_others(root)?;
        }
        Ok(cgroups)
    }

    /// As [`Cgroups::new`], with the weight that a platform has.
    ///
    /// # Errors
    /// As for [`Cgroups::new`].
    pub fn with_ordinary_weight() -> anyhow::Result<Self> {
        let name = format!(
            "nfluid-test-cgroups-{}-{}",
            std::process::id(),
            unique_number()
        );
        let root = CgroupRoot::new(&name).context("making cgroups")?;
        Ok(Cgroups {
            root: Some(root),
            groups: Vec::new(),
        })
    }

    /// Puts processes into a cgroup of their own, with at most `cap` of a core, and with `weight` against other groups.
    /// The processes get the platform's time slice on kernels that support time slices.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add(
        &mut self,
        pids: &[u32],
        cap: Option<Share>,
        weight: Option<Share>,
    ) -> anyhow::Result<()> {
        let root = self
            .root
            .as_ref()
            .context("the cgroups have been removed")?;
        let group = root.create(&self.groups.len().to_string())?;
        // From here on `drop` removes the group, whatever fails.
        self.groups.push(group);
        let group = self.groups.last().context("it was added")?;
        group.set_cap(cap)?;
        if let Some(weight) = weight {
            group.set_weight(weight)?;
        }
        for pid in pids {
            group.attach(*pid).context("moving a process")?;
            let process = Pid::from_raw(pid.cast_signed());
            slice::give(process, slice::PLATFORM).context("giving a process its time slice")?;
        }
        Ok(())
    }

    /// Limits the memory of the cgroup that was added last.
    ///
    /// # Errors
    /// When there is no cgroup, or the kernel refuses.
    pub fn limit_memory(&self, bytes: u64) -> anyhow::Result<()> {
        let group = self.groups.last().context("no cgroup yet")?;
        group.set_memory(bytes).context("limiting memory")
    }

    /// Changes the cap of cgroup `group`, counted in the order of [`Cgroups::add`].
    ///
    /// # Errors
    /// When there is no such cgroup, or the kernel refuses.
    pub fn set_cap(&self, group: usize, cap: Option<Share>) -> anyhow::Result<()> {
        let group = self.groups.get(group).context("no such cgroup")?;
        group.set_cap(cap).context("capping a cgroup")
    }

    /// Changes the weight of cgroup `group`, counted in the order of [`Cgroups::add`].
    ///
    /// # Errors
    /// When there is no such cgroup, or the kernel refuses.
    pub fn set_weight(&self, group: usize, weight: Share) -> anyhow::Result<()> {
        let group = self.groups.get(group).context("no such cgroup")?;
        group.set_weight(weight).context("weighing a cgroup")
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // The next `make clean` lists the groups that cannot be removed.
        for group in self.groups.drain(..) {
            let _ = group.remove();
        }
        if let Some(root) = self.root.take() {
            let _ = root.remove();
        }
    }
}
