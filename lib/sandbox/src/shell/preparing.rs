//! The parent's side of making a shell.

use super::message::{GO, Report};
use super::{Heard, STEP_WAIT, SpawnError, hear, step::Step, write_maps};
use crate::affinity;
use crate::capability::Capabilities;
use crate::child::plan::{self, Plan, PlanBuilder, Shared};
use crate::child::{self, Scratch};
use crate::error::{Errno, OsError};
use crate::instance::Ended;
use crate::netns::NetNs;
use crate::root::{self, Root, RootPlan, ShownDirectory};
use crate::sealed::{Sealed, SealedFiles};
use crate::spec::ShellSpec;
use crate::sys::{self, Fork, Kind, SignalsBlocked};
use crate::zygote::fork_remedy;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal};
use rustix::thread::LinkNameSpaceType;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;

/// A prepared instance that waits for its program. Dropped, it ends.
#[derive(Debug)]
pub struct Shell {
    pub(super) name: String,
    pub(super) pid: Pid,
    pub(super) root: Root,
    pub(super) libraries: Arc<[ShownDirectory]>,
    pub(super) own: Own,
    pub(super) moved_root: bool,
    pub(super) capabilities: Capabilities,
    /// Our end of the socket; and the pidfd. Both are taken out when the shell becomes an instance.
    pub(super) held: Option<Held>,
}

/// The namespaces, of those that can be shared, that the instance has alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub net: bool,
    pub ipc: bool,
    pub mounts: bool,
}

#[derive(Debug)]
pub(super) struct Held {
    pub control: OwnedFd,
    pub pidfd: OwnedFd,
}

impl Shell {
    /// Makes a shell. Takes about a millisecond; nothing about it depends on a program.
    ///
    /// # Errors
    /// [`SpawnError`]; nothing is left behind.
    pub fn prepare(spec: &ShellSpec<'_>) -> Result<Self, SpawnError> {
        let name = spec.name.clone();
        let os = |source| SpawnError::Os {
            name: name.clone(),
            source,
        };
        let files = Files::of(spec).map_err(os)?;
        let shared = Shared {
            net: match spec.net {
                NetNs::Own => None,
                NetNs::Shared(fd) => Some(fd),
            },
            ipc: spec.sealed.and_then(Sealed::ipc),
            mounts: files.sealed.as_deref().map(AsFd::as_fd),
        };
        if let Some(cpus) = &spec.cpus
            && let Err(cpu) = affinity::set_of(cpus)
        {
            let what = format!("there is no CPU {cpu}");
            return Err(SpawnError::BadLaunch { name, what });
        }
        let entrance = spec
            .cgroup
            .entrance()
            .map_err(|source| SpawnError::Cgroup {
                name: name.clone(),
                source,
            })?;
        let (ours, theirs) = socket_pair().map_err(os)?;
        let host_name: Vec<u8> = spec
            .name
            .bytes()
            .filter(|byte| *byte != 0)
            .take(63)
            .collect();
        let builder = PlanBuilder {
            host_name: &CString::new(host_name).unwrap_or_default(),
            v1_tasks: &entrance.v1_tasks,
            control: &theirs,
            cgroup: entrance.v2.as_ref(),
            shared,
            root: &files.plan,
            cpus: spec.cpus.as_deref().unwrap_or_default(),
            capabilities: spec.capabilities,
            inside: spec.root.inside(),
        };
        let (message, descriptors) = (builder.encode(), builder.descriptors());
        if message.len() > plan::BYTES_MAX || descriptors.len() > plan::FDS_MAX {
            return Err(SpawnError::BadLaunch {
                name,
                what: format!("{} library directories are too many", descriptors.len()),
            });
        }
        let (pid, pidfd) = match spec.zygote {
            Some(zygote) => {
                zygote
                    .fork(&message, &descriptors)
                    .map_err(|source| SpawnError::Zygote {
                        name: name.clone(),
                        source,
                    })?
            }
            None => fork(&message, &plan::numbers(&descriptors)).map_err(os)?,
        };
        drop(theirs);
        let mut shell = Self {
            name,
            pid,
            root: spec.root.clone(),
            libraries: files.libraries,
            own: Own {
                net: shared.net.is_none(),
                ipc: shared.ipc.is_none(),
                mounts: shared.mounts.is_none(),
            },
            moved_root: files.sealed.is_some_and(|sealed| sealed.is_moved()),
            capabilities: spec.capabilities,
            held: Some(Held {
                control: ours,
                pidfd,
            }),
        };
        shell.complete(spec)?;
        Ok(shell)
    }

    /// The name that it was prepared under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process number, which the instance will keep.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sets the name in messages from now on. The host name that the instance sees stays.
    pub fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Sets the host name that the instance sees.
    ///
    /// # Errors
    /// It is longer than the kernel takes, or the shell has ended.
    pub fn set_host_name(&self, name: &str) -> Result<(), SpawnError> {
        let path = format!("/proc/{}/ns/uts", self.pid());
        let failed = |errno| self.os(OsError::new("name the host in", &path, errno));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        let set = || {
            let kind = Some(LinkNameSpaceType::HostNameAndNISDomainName);
            rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
            rustix::system::sethostname(name.as_bytes())
        };
        // Only this short-lived thread changes its namespace.
        let ended = thread::scope(|scope| scope.spawn(set).join());
        ended.unwrap_or(Err(Errno::AGAIN)).map_err(failed)
    }

    /// Returns true if the shell still waits for its program: the process has not ended, and has not reported that it
    /// cannot go on.
    pub fn waits(&self) -> bool {
        let Some(held) = &self.held else { return false };
        let at_once = Timespec::default();
        let mut polled = [
            PollFd::new(&held.pidfd, PollFlags::IN),
            PollFd::new(&held.control, PollFlags::IN),
        ];
        matches!(rustix::event::poll(&mut polled, Some(&at_once)), Ok(0))
    }

    /// Moves it to `cpus`, of which there is one at least: its program begins there.
    ///
    /// # Errors
    /// None of the CPUs is there, or it has ended.
    pub fn pin(&self, cpus: &[usize]) -> Result<(), SpawnError> {
        let failed = |errno| {
            let error = OsError::new("pin to CPUs", format!("{cpus:?}"), errno);
            self.os(error.remedy(affinity::REMEDY))
        };
        let set = affinity::set_of(cpus).map_err(|_| failed(Errno::INVAL))?;
        rustix::thread::sched_setaffinity(Some(self.pid), &set).map_err(failed)
    }

    fn complete(&mut self, spec: &ShellSpec<'_>) -> Result<(), SpawnError> {
        match self.expect_report()? {
            Report::WantsMap => {}
            other => return Err(self.unexpected(other)),
        }
        write_maps(self.pid(), spec.root.inside(), spec.id).map_err(|source| self.os(source))?;
        let control = &self.held()?.control;
        // If the set-up has failed meanwhile, its report says more than our failing to write.
        let _sent = rustix::net::send(control, &GO, rustix::net::SendFlags::NOSIGNAL);
        match self.expect_report()? {
            Report::Ready => {}
            Report::ReadyMovedRoot => self.moved_root = true,
            other => return Err(self.unexpected(other)),
        }
        Ok(())
    }

    pub(super) fn held(&self) -> Result<&Held, SpawnError> {
        self.held.as_ref().ok_or_else(|| SpawnError::BadLaunch {
            name: self.name.clone(),
            what: "the shell was used already".to_owned(),
        })
    }

    pub(super) fn os(&self, source: OsError) -> SpawnError {
        SpawnError::Os {
            name: self.name.clone(),
            source,
        }
    }

    /// The next report that is not a failure.
    fn expect_report(&mut self) -> Result<Report, SpawnError> {
        match self.listen()? {
            Heard::Report(report) => Ok(report),
            Heard::Closed => Err(self.died()),
            Heard::Nothing => Err(self.stuck()),
        }
    }

    /// As [`hear`], with a failure that the set-up reports turned into an error.
    pub(super) fn listen(&self) -> Result<Heard, SpawnError> {
        let heard = hear(&self.held()?.control);
        let heard = heard
            .map_err(|errno| self.os(OsError::new("hear from the set-up of", &self.name, errno)))?;
        match heard {
            Heard::Report(Report::Failed { step, errno }) => match Step::from_raw(step) {
                Some(step) => Err(SpawnError::Step {
                    name: self.name.clone(),
                    step,
                    errno,
                }),
                None => Err(self.unexpected(Report::Failed { step, errno })),
            },
            heard => Ok(heard),
        }
    }

    pub(super) fn stuck(&self) -> SpawnError {
        SpawnError::Stuck {
            name: self.name.clone(),
            seconds: STEP_WAIT.as_secs(),
        }
    }

    /// The set-up closed the socket without a word.
    pub(super) fn died(&mut self) -> SpawnError {
        SpawnError::Died {
            name: self.name.clone(),
            how: self.end(),
        }
    }

    pub(super) fn unexpected(&self, report: Report) -> SpawnError {
        let subject = format!("{} ({report:?})", self.name);
        self.os(OsError::new(
            "understand the set-up of",
            subject,
            Errno::PROTO,
        ))
    }

    /// Kills and buries the shell, unless it became an instance.
    fn end(&mut self) -> Ended {
        let Some(held) = self.held.take() else {
            return Ended::Unknown;
        };
        let _may_be_dead = pidfd_send_signal(&held.pidfd, Signal::KILL);
        loop {
            let id = WaitId::PidFd(held.pidfd.as_fd());
            match rustix::process::waitid(id, WaitIdOptions::EXITED) {
                Ok(Some(status)) => {
                    return status
                        .terminating_signal()
                        .map(Ended::Killed)
                        .or(status.exit_status().map(Ended::Exited))
                        .unwrap_or(Ended::Unknown);
                }
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return Ended::Unknown,
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.end();
    }
}

/// Source of the root directory: a mount namespace that has it, or the steps to make it in a namespace of the
/// instance's own.
struct Files {
    libraries: Arc<[ShownDirectory]>,
    sealed: Option<Arc<SealedFiles>>,
    plan: RootPlan,
}

impl Files {
    fn of(spec: &ShellSpec<'_>) -> Result<Self, OsError> {
        if let Some(sealed) = spec.sealed {
            let sealed = sealed.files(&spec.root)?;
            return Ok(Self {
                libraries: sealed.libraries(),
                sealed: Some(sealed),
                plan: RootPlan::default(),
            });
        }
        let (libraries, links) = root::directories(&spec.root, Some(spec.id))?;
        Ok(Self {
            plan: root::plan(&spec.root, &libraries, &links)?,
            libraries: libraries.into(),
            sealed: None,
        })
    }
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd), OsError> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| OsError::new("create a socket pair", "", errno))
}

/// Forks from this process itself.
fn fork(message: &[u8], descriptors: &[RawFd]) -> Result<(Pid, OwnedFd), OsError> {
    let failed = |errno| OsError::new("fork into the cgroup", "", errno).remedy(fork_remedy(errno));
    let plan = Plan::parse(message, descriptors).map_err(failed)?;
    let mut scratch = Scratch::new();
    // SAFETY: it is among the descriptors, which the caller keeps open.
    let cgroup = plan.cgroup.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let there = plan.enter_cpus().map_err(failed)?;
    let blocked = SignalsBlocked::new();
    // SAFETY: the child goes straight into `child::run`, which keeps to what is allowed and never returns.
    let forked = unsafe { sys::fork(Kind::Instance, cgroup) };
    match forked {
        Ok(Fork::Child) => child::run(plan, &mut scratch),
        Ok(Fork::Parent { pid, pidfd }) => {
            drop((blocked, there));
            Ok((pid, pidfd))
        }
        Err(errno) => Err(failed(errno)),
    }
}
