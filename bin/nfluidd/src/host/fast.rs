//! Fast paths (tier `xdp`) under this daemon: [`nfluid_fastpath`] owns them; this module supplies what that crate
//! needs from the daemon.

use super::{Host, Shared, lock};
use anyhow::Context;
use nfluid_fastpath::FastPaths;
use nfluid_fastpath::processes::{PROGRAM, Processes, Running, Start};
use nfluid_instance::doorbell;
use nfluid_instance::exits;
use nfluid_instance::launch::control_socket;
use nfluid_instance::maker::Maker;
use nfluid_protocol::daemon::{self, Asked};
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_sandbox::cgroup::{Cgroup, Share};
use nfluid_sandbox::fds::send_line;
use nfluid_sandbox::seccomp::Policy;
use nfluid_sandbox::{
    InheritedFd, Instance, InstanceError, Launch, ProcessIdentity, Program, Root, ShellSpec, spawn,
};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

impl Host {
    /// Returns true if an instance is a fast path.
    pub fn is_fast(&self, name: &str) -> bool {
        self.fast.lock().contains(name)
    }

    /// Runs `act` on the fast paths.
    pub(super) fn with_fast<T>(&self, act: impl FnOnce(&mut FastPaths) -> T) -> T {
        act(&mut self.fast.lock())
    }
}

/// Follows the objects that fast paths depend on; never returns.
pub fn follow(host: &Shared) -> ! {
    let fast_paths = lock(host).fast.clone();
    nfluid_fastpath::watch(&fast_paths)
}

/// The cgroup of the process of an instance's slow path.
fn cgroup_name(name: &str) -> String {
    format!("x-{name}")
}

/// Starts and ends the processes of slow paths.
pub(super) struct SlowPathProcesses(pub(super) Arc<Maker>);

impl Processes for SlowPathProcesses {
    fn take_user(&self) -> Option<u32> {
        self.0.numbers.users.take(1)
    }

    fn mark_user(&self, user: u32) {
        self.0.numbers.users.mark(user);
    }

    fn free_user(&self, user: u32) {
        self.0.numbers.users.free(user);
    }

    fn start(&self, start: &Start<'_>) -> anyhow::Result<Running> {
        let name = start.name;
        let file = File::open(PROGRAM).context("opening this program")?;
        let origin = std::fs::read_link(PROGRAM).context("finding this program")?;
        let program = Program::from_fd(file.into(), &origin)?;
        let filter = Policy::new(program.linkage(), SOL_NFLUID as u32).with_handed_maps();
        let filter = filter.compile()?;
        let own = cgroup_name(name);
        let cgroup = self.0.cgroups.create(&own).or_else(|_| {
            self.0.cgroups.remove_leftover(&own)?;
            self.0.cgroups.create(&own)
        })?;
        cgroup.set_weight(Share::from_per_mille(start.weight_per_mille)?)?;
        cgroup.set_memory(start.memory)?;
        cgroup.set_pids(start.tasks)?;
        self.0.follow_log(name)?;
        let log =
            doorbell::open_both(&self.0.paths.log_pipe(name)).context("opening the log pipe")?;
        let socket = control_socket(&self.0.paths.control(name))?;
        let root = Root::for_linkage(program.linkage());
        let shell = ShellSpec {
            zygote: Some(&self.0.zygote),
            ..self.0.sandbox(name.to_owned(), start.user, &cgroup, root)?
        };
        let mut launch = Launch::new(&program, &filter);
        launch.argv = ["nfluidd", start.role, name]
            .into_iter()
            .map(CString::new)
            .collect::<Result<_, _>>()?;
        launch.fds = [(&socket, 0), (&log, 1), (&log, 2)]
            .map(|(fd, number)| InheritedFd {
                fd: fd.as_fd(),
                number,
            })
            .to_vec();
        let process = spawn(&shell, &launch)?.instance;
        drop(launch);
        drop(shell);
        Ok(Running { process, cgroup })
    }

    fn take_over(&self, name: &str) -> anyhow::Result<Cgroup> {
        self.0.follow_log(name)?;
        Ok(self.0.cgroups.open(&cgroup_name(name))?)
    }

    fn ask(&self, name: &str, line: &[u8], fds: &[BorrowedFd<'_>]) -> anyhow::Result<Asked> {
        let stream = daemon::open(&self.0.paths.control(name));
        let stream = stream.context("connecting to its process")?;
        send_line(&stream, line, fds).context("its process does not take the question")?;
        Ok(Asked::on(stream))
    }

    fn end(&self, name: &str, process: Option<&ProcessIdentity>) {
        if let Some(identity) = process {
            let ended = match Instance::adopt(identity) {
                Err(InstanceError::Gone { .. }) => Ok(()),
                Err(error) => Err(error.into()),
                Ok(process) => exits::end(&process),
            };
            if let Err(why) = ended {
                tracing::warn!(
                    instance = name,
                    "ending the process of its slow path: {why:#}"
                );
            }
            // If the process was this daemon's child, nothing else reaps the process any more.
            let pid = i32::try_from(identity.pid).ok().and_then(Pid::from_raw);
            let _another_daemons = waitpid(pid, WaitOptions::NOHANG);
        }
        let _gone = self.0.cgroups.remove_leftover(&cgroup_name(name));
    }

    fn remove(&self, name: &str) {
        let _gone = self.0.cgroups.remove_leftover(&cgroup_name(name));
        self.0.logs.forget(name);
        let paths = &self.0.paths;
        for file in [paths.control(name), paths.log_pipe(name), paths.log(name)] {
            let _absent = std::fs::remove_file(file);
        }
    }
}
