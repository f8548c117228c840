//! Programs that run beside the monitor of an instance, in its cgroup, in a sandbox of their own: emulators of machines, and
//! servers on a network stack of their own. The monitor serves the ports; frames go to the program and back through
//! descriptors that both have.
//!
//! Either ends when the other one does: a socket joins them, of which the monitor reads the end, and for whose end the
//! kernel kills the program.

use crate::doorbell;
use crate::exits::end;
use crate::linux::{self, Emulator};
use crate::maker::Maker;
use crate::server::{self, Server};
use anyhow::{Context, bail};
use nfluid_control::spec::InstanceSpec;
use nfluid_control::tier::Isolation;
use nfluid_protocol::environment;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::{InheritedFd, Launch, Shell, Zygote, kill_when_closed};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

/// The number under which a program finds the end of its socket to the monitor: above what it may open itself.
const LIFE_FD: RawFd = Launch::FD_NUMBER_MAX;
/// Looks at processes that were killed, and the time between two of them.
const LOOKS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(10);

/// The instance that a program belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub name: &'a str,
    pub user: u32,
    pub cgroup: &'a Cgroup,
    /// The CPUs on which it begins; empty: all.
    pub cpus: &'a [u32],
}

impl Owner<'_> {
    /// As a sandbox is told.
    pub fn cpus(&self) -> Option<Vec<usize>> {
        let cpus = self.cpus.iter().map(|cpu| *cpu as usize);
        (!self.cpus.is_empty()).then(|| cpus.collect())
    }
}

/// A program that is about to be started.
pub(crate) struct Companion {
    program: Program,
    /// Its end of the socket to the monitor.
    life: OwnedFd,
}

enum Program {
    Emulator(Emulator),
    Server(Box<Server>),
}

/// The environment variables that a monitor is given.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// Returns the environment variables of the monitor, and the program beside it; `None`: instances like this have no such
/// program. `zygote` forks a server's sandbox; `give` hands a descriptor over and returns its number.
///
/// # Errors
/// A value that cannot be used, or no descriptors; or a program of an earlier life does not end.
pub(crate) fn equip(
    maker: &Maker,
    spec: &InstanceSpec,
    owner: Owner<'_>,
    first_port: u32,
    zygote: &Zygote,
    mut give: impl FnMut(OwnedFd) -> RawFd,
) -> anyhow::Result<Option<(Variables, Companion)>> {
    let isolation = spec.tier.isolation();
    if isolation != Isolation::LINUX && isolation != Isolation::STACK {
        return Ok(None);
    }
    clear(owner.cgroup)?;
    let (mut variables, program) = if isolation == Isolation::LINUX {
        let (variables, emulator) = linux::equip(spec, &mut give)?;
        (variables, Program::Emulator(emulator))
    } else {
        let (variables, server) = server::equip(maker, spec, owner, first_port, zygote, &mut give)?;
        (variables, Program::Server(Box::new(server)))
    };
    let (ours, life) = pair(SocketType::STREAM)?;
    variables.extend([
        (environment::NF, spec.program.name().to_owned()),
        (environment::COMPANION, give(ours).to_string()),
    ]);
    Ok(Some((variables, Companion { program, life })))
}

/// Ends programs that a monitor has left behind: they are asked to end with it by a socket of their own, and a hostile one
/// could have seen to it that it is not.
fn clear(cgroup: &Cgroup) -> anyhow::Result<()> {
    for _ in 0..LOOKS {
        let left = cgroup.processes()?;
        if left.is_empty() {
            return Ok(());
        }
        for pid in left
            .into_iter()
            .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        {
            // It may be gone.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(BETWEEN);
    }
    bail!("processes of its former life do not end")
}

/// Returns the two ends of a socket.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn pair(kind: SocketType) -> anyhow::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .context("making a socket between monitor and program")
}

impl Companion {
    /// Starts the program in the cgroup of its monitor. It ends with the monitor.
    ///
    /// # Errors
    /// The host has no such program, or no process runs.
    pub(crate) fn start(
        self,
        maker: &Maker,
        owner: Owner<'_>,
        spec: &InstanceSpec,
    ) -> anyhow::Result<()> {
        match self.program {
            Program::Emulator(emulator) => emulator.start(maker, owner, &self.life),
            Program::Server(server) => server.start(maker, owner, spec, &self.life),
        }
    }

    /// Returns true if it can still be started.
    pub(crate) fn waits(&self) -> bool {
        match &self.program {
            Program::Emulator(_) => true,
            Program::Server(server) => server.waits(),
        }
    }

    /// Returns true if it was prepared with files that have been replaced meanwhile.
    pub(crate) fn is_outdated(&self, maker: &Maker) -> bool {
        match &self.program {
            Program::Emulator(_) => false,
            Program::Server(server) => server.is_outdated(maker),
        }
    }
}

/// Starts a program in a sandbox, joined to its monitor by `life`. Its output goes into the instance's log.
///
/// # Errors
/// No process runs.
pub(crate) fn run(
    maker: &Maker,
    owner: Owner<'_>,
    shell: Shell,
    launch: Launch<'_>,
    life: &OwnedFd,
) -> anyhow::Result<()> {
    let log = doorbell::open_both(&maker.paths.log_pipe(owner.name));
    let log = log.context("opening the log pipe")?;
    // What is added lives shorter than the rest.
    let mut launch = launch;
    let own = [(log.as_fd(), 1), (log.as_fd(), 2), (life.as_fd(), LIFE_FD)];
    launch
        .fds
        .extend(own.map(|(fd, number)| InheritedFd { fd, number }));
    let instance = shell.launch(&launch)?.instance;
    let joined = kill_when_closed(life, instance.identity().pid);
    let joined = joined.context("joining monitor and program");
    // A monitor that had ended before has nobody killed.
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let has_ended = matches!(recv(life, &mut byte[..], flags), Ok((0, _)));
    if joined.is_err() || has_ended {
        end(&instance)?;
        joined?;
        bail!("its monitor has ended");
    }
    maker.connectors.keep(instance);
    Ok(())
}
