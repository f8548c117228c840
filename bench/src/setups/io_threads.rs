//! The process of the I/O threads of a [`Model`], and the caps of its measurements.

use crate::io_model::Model;
use crate::peer::Peer;
use crate::roles::{Role, Task};
use nfluid_sandbox::cgroup::Share;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};

impl Model {
    /// Starts the process whose I/O threads serve `instances` during runs; `None` in the inline model.
    pub fn start(
        self,
        scratch: &Scratch,
        instances: &[&ScratchInstance],
    ) -> anyhow::Result<Option<Peer>> {
        self.start_on(Self::io_core(), scratch, instances)
    }

    /// As `start`; a split's thread is on `core`.
    pub fn start_on(
        self,
        core: usize,
        scratch: &Scratch,
        instances: &[&ScratchInstance],
    ) -> anyhow::Result<Option<Peer>> {
        if self == Model::Inline {
            return Ok(None);
        }
        let role = Role {
            core,
            task: Task::Io { model: self },
        };
        Peer::start_io(scratch, instances, &role).map(Some)
    }

    /// Caps both sides of a split to one core's worth together: the NF's process and the I/O thread's process get half
    /// a core each. The other models need no caps: everything is on one core.
    pub fn cap(self, shares: &mut Cgroups, nf: &Peer, io: Option<&Peer>) -> anyhow::Result<()> {
        let (true, Some(io)) = (self.is_split(), io) else {
            return Ok(());
        };
        let half = Share::from_percent(50)?;
        shares.add(&[nf.pid()], Some(half), None)?;
        shares.add(&[io.pid()], Some(half), None)
    }
}
