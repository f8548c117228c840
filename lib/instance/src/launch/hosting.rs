//! Programs that host NFs, or are the monitor of a program, and wait to be told of which.

use super::inheritance::{FIRST_FD, environment};
use super::{Start, control_socket};
use crate::companion::{self, Companion, Owner};
use crate::doorbell;
use crate::machine;
use crate::maker::Maker;
use anyhow::Context;
use nfluid_control::spec::InstanceSpec;
use nfluid_lifecycle::record::Record;
use nfluid_protocol::daemon::memory_file;
use nfluid_protocol::environment;
use nfluid_ring::assignment::ASSIGNMENT_ENV;
use nfluid_ring::table::{ATTACH_ENV, Table};
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::{Instance, Limits, Root};
use nfluid_switch::instance::Doorbells;
use nfluid_switch::{Handover, InstanceMemory};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{OwnedFd, RawFd};

/// A program that waits to be told its network function.
pub struct Hosting {
    /// On which it is told what to be.
    pub socket: OwnedFd,
    /// The numbers under which it has its maps and sockets, its own bell, and its I/O thread's.
    pub numbers: Numbers,
    /// The program beside it, which starts when its monitor is told.
    pub(crate) companion: Option<Companion>,
}

/// Numbers of the descriptors that the process of a shell has inherited.
pub struct Numbers {
    /// Maps and sockets.
    pub maps: Vec<RawFd>,
    /// Doorbell.
    pub bell: RawFd,
    /// Doorbell of the I/O thread.
    pub io_doorbell: RawFd,
}

impl Numbers {
    /// The port table of such a process, without bells of others.
    pub fn table(&self, memory: &InstanceMemory) -> Table {
        let given = Doorbells {
            own: self.bell,
            io: self.io_doorbell,
            peers: &[],
        };
        memory.table(&self.maps, &given)
    }
}

impl Maker {
    /// Starts the program that hosts NFs, or a monitor, on ports that exist, without saying which network function it is.
    ///
    /// # Errors
    /// No process runs.
    pub fn launch_waiting(
        &self,
        (name, spec): (&str, &InstanceSpec),
        (memory, handover): (&InstanceMemory, &Handover),
        cgroup: &Cgroup,
        record: &Record,
        io_doorbell: OwnedFd,
    ) -> anyhow::Result<(Instance, Hosting)> {
        let program = self.programs.host_of(spec)?;
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .context("making the socket of a shell")?;
        let bell =
            doorbell::open_both(&self.paths.doorbell(name)).context("opening the doorbell")?;
        let control = control_socket(&self.paths.control(name))?;
        let bell_number = FIRST_FD + handover.fds().len() as RawFd;
        let numbers = Numbers {
            maps: (FIRST_FD..bell_number).collect(),
            bell: bell_number,
            io_doorbell: bell_number + 1,
        };
        let table = memory_file("ports", &numbers.table(memory).to_bytes())?;
        let mut fds = vec![bell, io_doorbell, control, theirs, table];
        let env = [
            (environment::CONTROL, bell_number + 2),
            (ASSIGNMENT_ENV, bell_number + 3),
            (ATTACH_ENV, bell_number + 4),
        ];
        let mut env = env.map(|(key, number)| (key, number.to_string())).to_vec();
        let mut give = |fd| {
            fds.push(fd);
            bell_number + fds.len() as RawFd - 1
        };
        if machine::is_one(spec) {
            env.extend(machine::equip(&self.programs, spec, &mut give)?);
        }
        let owner = Owner {
            name,
            user: record.user,
            cgroup,
            cpus: &[],
        };
        let zygote = &self.shell_zygote;
        let beside = companion::equip(self, spec, owner, record.first_port, zygote, give)?;
        let (variables, companion) = beside.unzip();
        env.extend(variables.unwrap_or_default());
        let start = Start {
            owner,
            zygote: self.uses_zygote.then_some(zygote),
            program: (&program.0, &program.1),
            arguments: Vec::new(),
            root: Root::for_linkage(program.0.linkage()),
            directory: None,
            limits: Limits::default(),
        };
        let instance = self.start(start, None, handover, environment(env)?, &fds)?;
        let hosting = Hosting {
            socket,
            numbers,
            companion,
        };
        Ok((instance, hosting))
    }
}
