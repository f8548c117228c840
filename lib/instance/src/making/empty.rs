//! Shells for programs of users: a process in its sandbox, which executes what it is given. What belongs to its ports stays
//! open in the daemon until then.

use super::Making;
use super::shell::Waiting;
use crate::descriptors;
use crate::launch::{control_socket, io_doorbell_number};
use crate::maker::Maker;
use nfluid_control::stopwatch::Lap;
use nfluid_lifecycle::cores::pinned_to;
use nfluid_lifecycle::record::Record;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::{ProcessIdentity, Root, Shell, ShellSpec};
use std::os::fd::OwnedFd;

/// A sandbox without a program.
pub struct Empty {
    /// The process.
    pub shell: Shell,
    /// The socket on which its program is to listen for the daemon.
    pub control: OwnedFd,
    /// The bell of its I/O thread.
    pub io_doorbell: OwnedFd,
}

impl Maker {
    /// Makes the sandbox of a shell.
    ///
    /// # Errors
    /// Nothing of it is left.
    fn prepare(
        &self,
        name: &str,
        root: Root,
        cgroup: &Cgroup,
        record: &Record,
        io_doorbell: OwnedFd,
    ) -> anyhow::Result<Empty> {
        let control = control_socket(&self.paths.control(name))?;
        descriptors::check_room(&control)?;
        let spec = ShellSpec {
            zygote: self.uses_zygote.then_some(&self.shell_zygote),
            ..self.sandbox(name.to_owned(), record.user, cgroup, root)?
        };
        Ok(Empty {
            shell: Shell::prepare(&spec)?,
            control,
            io_doorbell,
        })
    }
}

impl Making {
    /// What its program is given of the ports stays open until it has one.
    pub(super) fn start_empty(&mut self, root: Root, io_doorbell: OwnedFd) -> anyhow::Result<()> {
        let (Some(handover), Some(cgroup)) = (&self.handover, &self.cgroup) else {
            anyhow::bail!("it is not settled");
        };
        let maker = &self.maker;
        let empty = maker.prepare(&self.name, root, cgroup, &self.record, io_doorbell)?;
        // It keeps its number when it executes a program.
        self.record.process = Some(ProcessIdentity::of(empty.shell.pid())?);
        self.record.io_doorbell = Some(io_doorbell_number(handover));
        self.waiting = Some(Waiting::Empty(Box::new(empty)));
        Ok(())
    }

    /// Executes the program of a shell that has become an instance, or, if its process has ended meanwhile, in another.
    pub(super) fn execute(&mut self, empty: Empty) -> anyhow::Result<()> {
        self.limit()?;
        // Its program inherits files by their names.
        self.settle_in()?;
        if !empty.shell.waits() {
            tracing::warn!(
                instance = self.name,
                "the process of its shell has ended; another is started"
            );
            return self.start_program(empty.io_doorbell, None);
        }
        let cpus = pinned_to(&self.spec, None);
        if !cpus.is_empty() {
            let cpus: Vec<usize> = cpus.iter().map(|cpu| *cpu as usize).collect();
            empty.shell.pin(&cpus)?;
        }
        self.laps.push(Lap::now("limits"));
        let Empty {
            mut shell,
            control,
            io_doorbell,
        } = empty;
        shell.set_name(&self.name);
        self.start_program(io_doorbell, Some((shell, control)))
    }
}
