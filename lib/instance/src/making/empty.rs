//! Shells for programs of users: a process in its sandbox, which waits for the program to execute. The descriptors of
//! its ports stay open in the daemon until then.

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
    /// The control socket for its program.
    pub control: OwnedFd,
    /// The doorbell of its I/O thread.
    pub io_doorbell: OwnedFd,
}

impl Maker {
    /// Creates the sandbox of a shell.
    ///
    /// # Errors
    /// Everything was removed again.
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
    /// Starts the shell. The descriptors of the ports for its program stay open until the program starts.
    pub(super) fn start_empty(&mut self, root: Root, io_doorbell: OwnedFd) -> anyhow::Result<()> {
        let (Some(handover), Some(cgroup)) = (&self.handover, &self.cgroup) else {
            anyhow::bail!("it is not settled");
        };
        let maker = &self.maker;
        let empty = maker.prepare(&self.name, root, cgroup, &self.record, io_doorbell)?;
        // The process keeps its id when it executes a program.
        self.record.process = Some(ProcessIdentity::of(empty.shell.pid())?);
        self.record.io_doorbell = Some(io_doorbell_number(handover));
        self.waiting = Some(Waiting::Empty(Box::new(empty)));
        Ok(())
    }

    /// Executes the program in a shell that has become an instance. Starts another process if the shell's process has
    /// ended meanwhile.
    pub(super) fn execute(&mut self, empty: Empty) -> anyhow::Result<()> {
        self.limit()?;
        // Its program inherits files by their final names.
        self.finish_assignment()?;
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
