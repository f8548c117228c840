//! Resources that instances are created with, and their common sandbox.

use crate::cleaner::Cleaner;
use crate::doorbell;
use crate::exits::Exits;
use crate::logs::LogCollector;
use crate::numbers::Numbers;
use crate::paths::Paths;
use crate::programs::Programs;
use crate::server::outer::OuterEnds;
use crate::terminator::Connectors;
use crate::trust::Groups;
use anyhow::Context;
use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot};
use nfluid_sandbox::{
    Capabilities, EmptyNetNs, KernelIdRange, NetNs, Root, Sealed, ShellSpec, Zygote,
};
use nfluid_switch::Switch;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Resources that instances are created with. Using them needs no lock of the host.
pub struct Maker {
    /// Where files, sockets and pins are.
    pub paths: Paths,
    /// The switch.
    pub switch: Arc<Switch>,
    /// The platform's cgroup.
    pub cgroups: CgroupRoot,
    /// The kernel users of instances.
    pub kernel_ids: KernelIdRange,
    /// The network namespace without an interface.
    pub empty_net: EmptyNetNs,
    /// A memory file system that cannot be changed, as the root of sandboxes.
    pub sealed: Sealed,
    /// The container images of the host.
    pub images: nfluid_image::Store,
    /// The process from which instances are forked.
    pub zygote: Zygote,
    /// The process from which shells are forked. Creating an instance does not wait for a shell that is being created.
    pub shell_zygote: Zygote,
    /// True if instances are forked from these processes.
    pub uses_zygote: bool,
    /// The program that hosts built-in NFs.
    pub programs: Programs,
    /// Follows the logs of instances.
    pub logs: LogCollector,
    /// Numbers of ports, pools and users.
    pub numbers: Numbers,
    /// The outer ends of interfaces of programs.
    pub outer_ends: OuterEnds,
    /// Groups of instances that trust each other.
    pub groups: Groups,
    /// Removes what is left of ended instances.
    pub cleaner: Cleaner,
    /// The connectors of TLS terminators.
    pub connectors: Connectors,
    /// Reports the ends of processes.
    pub exits: Exits,
}

impl Maker {
    /// Has the log of an instance be written, from a pipe of its own.
    ///
    /// # Errors
    /// The pipe cannot be made.
    pub fn follow_log(&self, name: &str) -> anyhow::Result<()> {
        let (pipe, log) = (self.paths.log_pipe(name), self.paths.log(name));
        doorbell::make(&pipe).context("making the log pipe")?;
        self.logs.follow(name, pipe, log);
        Ok(())
    }

    /// The doorbell and the log pipe of an instance, and that the daemon reads the log.
    pub fn make_pipes(&self, name: &str) -> anyhow::Result<()> {
        doorbell::make(&self.paths.doorbell(name)).context("making the doorbell")?;
        self.follow_log(name)
    }

    /// The sandbox that all processes of the platform have, of a user of its own. On all CPUs, and forked by the calling thread,
    /// unless its maker says otherwise.
    ///
    /// # Errors
    /// The user does not exist.
    pub fn sandbox<'a>(
        &'a self,
        name: String,
        user: u32,
        cgroup: &'a Cgroup,
        root: Root,
    ) -> anyhow::Result<ShellSpec<'a>> {
        Ok(ShellSpec {
            name,
            id: self
                .kernel_ids
                .get(user)
                .context("no kernel user is left")?,
            cgroup,
            root,
            net: NetNs::Shared(self.empty_net.as_fd()),
            sealed: Some(&self.sealed),
            capabilities: Capabilities::default(),
            cpus: None,
            zygote: None,
        })
    }
}
