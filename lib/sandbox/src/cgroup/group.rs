//! The cgroup of one instance.

use super::clock::CpuClock;
use super::root::{Directories, Seat};
use super::stats::{self, CgroupStats};
use super::{CgroupError, Controller, Share, control_file, processes};
use crate::error::{Errno, OsError};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{current_timer_slack, set_current_timer_slack};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time of freezing before the group is reported as stuck.
const FREEZE_WAIT: Duration = Duration::from_secs(5);
const FREEZE_POLL: Duration = Duration::from_millis(1);
/// At first it is looked at more often: most groups stand still within this time.
const FREEZE_SOON: Duration = Duration::from_millis(2);
const FREEZE_POLL_SOON: Duration = Duration::from_micros(20);
/// Number of readings of the list of processes while they are moved.
const MOVES_MAX: u32 = 16;

/// The cgroup of one instance. Not removed on drop: the instance may outlive the daemon.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    directories: Directories,
}

/// The path by which a new process gets into a cgroup without the kernel-wide lock that moving a process takes.
pub(crate) struct Entrance {
    /// For `CLONE_INTO_CGROUP`.
    pub v2: Option<OwnedFd>,
    /// The `tasks` files of v1: a single-threaded process that writes `0` there moves itself.
    pub v1_tasks: Vec<CString>,
}

impl Cgroup {
    pub(super) fn new(name: String, directories: Directories) -> Self {
        Self { name, directories }
    }

    /// Returns the group's name below the platform's directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns one of the group's directories.
    pub fn directory(&self) -> &Path {
        let directories = self.directories.all();
        directories.first().copied().unwrap_or(Path::new(""))
    }

    /// Returns the group's directory in the unified hierarchy; `None` on a pure v1 host.
    pub fn v2_directory(&self) -> Option<&Path> {
        self.directories.v2.as_deref()
    }

    pub(super) fn seat(&self, controller: Controller) -> Option<Seat> {
        self.directories.seat(controller)
    }

    /// Sets the weight: the instance's part when others want the CPU too.
    ///
    /// # Errors
    /// [`CgroupError::MissingController`] without the `cpu` controller.
    pub fn set_weight(&self, share: Share) -> Result<(), CgroupError> {
        self.directories.set_weight(share)
    }

    /// Sets the cap: the most that the instance gets, also on an idle host. `None` lifts the cap.
    ///
    /// # Errors
    /// [`CgroupError::MissingController`] without the `cpu` controller.
    pub fn set_cap(&self, cap: Option<Share>) -> Result<(), CgroupError> {
        self.directories.set_cap(cap)
    }

    /// Limits the memory to `bytes` and forbids swap, which would turn a limit into a slow disk. A program that needs
    /// more is killed, all of its processes together where the kernel can (v2).
    ///
    /// # Errors
    /// [`CgroupError::MissingController`] without the `memory` controller; EBUSY when the new limit is below used
    /// memory that cannot be reclaimed (v1).
    pub fn set_memory(&self, bytes: u64) -> Result<(), CgroupError> {
        self.directories.set_memory(bytes)?;
        let seat = self.directories.needed(Controller::Memory)?;
        if seat.v2 {
            control_file::write_if_present(&seat.path.join("memory.oom.group"), "1")?;
        }
        Ok(())
    }

    /// Limits the number of processes and threads.
    ///
    /// # Errors
    /// [`CgroupError::MissingController`] without the `pids` controller.
    pub fn set_pids(&self, count_max: u32) -> Result<(), CgroupError> {
        self.directories.set_pids(count_max)
    }

    /// Moves a process in. Takes a lock of the whole kernel and waits for a grace period (10 ms and more); a new
    /// instance is started inside instead.
    ///
    /// # Errors
    /// ESRCH if there is no such process.
    pub fn attach(&self, pid: u32) -> Result<(), CgroupError> {
        for directory in self.directories.all() {
            control_file::write(&directory.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// Moves all processes of this cgroup to another cgroup, with the children that they fork meanwhile. The time is
    /// that of [`Cgroup::attach`] for each process. CPU time and memory used before are still counted here.
    ///
    /// # Errors
    /// The kernel's refusal, or [`CgroupError::NotEmpty`] if processes come faster than they are moved. Some may have
    /// moved.
    pub fn move_all(&self, to: &Cgroup) -> Result<(), CgroupError> {
        for _ in 0..MOVES_MAX {
            let pids = self.processes()?;
            if pids.is_empty() {
                return Ok(());
            }
            for pid in pids {
                match to.attach(pid) {
                    // The process has ended meanwhile.
                    Err(CgroupError::Os(error)) if error.errno == Errno::SRCH => {}
                    other => other?,
                }
            }
        }
        Err(CgroupError::NotEmpty {
            path: self.directory().to_owned(),
            pids: self.processes()?.into_iter().collect(),
        })
    }

    /// Returns the group's CPU time and memory, as the kernel counts them.
    ///
    /// # Errors
    /// The kernel's refusal to read; a quantity that the host does not count is `None`.
    pub fn stats(&self) -> Result<CgroupStats, CgroupError> {
        stats::read(&self.directories)
    }

    /// Returns the group's clock of CPU time, to be read often; `None` if the host does not count CPU time.
    pub fn cpu_clock(&self) -> Option<CpuClock> {
        CpuClock::of(self)
    }

    /// The processes inside.
    ///
    /// # Errors
    /// ENOENT once the group is removed.
    pub fn processes(&self) -> Result<BTreeSet<u32>, CgroupError> {
        let mut pids = BTreeSet::new();
        for directory in self.directories.all() {
            pids.extend(processes::list(directory)?);
        }
        Ok(pids)
    }

    /// Stops all processes inside, wherever they are, until [`Cgroup::thaw`]. Returns when they stand still.
    ///
    /// # Errors
    /// [`CgroupError::NotFrozen`]. On a v1 host without `freezer` the processes are sent SIGSTOP, which no program can
    /// catch; they stand still when they next return to user mode.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        self.begin_freeze()?;
        self.await_frozen()
    }

    /// The beginning of [`Cgroup::freeze`]: until [`Cgroup::await_frozen`] there is time for something else.
    ///
    /// # Errors
    /// As [`Cgroup::freeze`].
    pub fn begin_freeze(&self) -> Result<(), CgroupError> {
        self.set_frozen(true)
    }

    /// Returns when all processes inside stand still.
    ///
    /// # Errors
    /// As [`Cgroup::freeze`].
    pub fn await_frozen(&self) -> Result<(), CgroupError> {
        self.wait_until(true)
    }

    /// Lets frozen processes run again.
    ///
    /// # Errors
    /// As [`Cgroup::freeze`].
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.set_frozen(false)?;
        self.wait_until(false)
    }

    fn set_frozen(&self, frozen: bool) -> Result<(), CgroupError> {
        if let Some(v2) = &self.directories.v2 {
            let wanted = if frozen { "1" } else { "0" };
            return control_file::write(&v2.join("cgroup.freeze"), wanted);
        }
        let Some(seat) = self.seat(Controller::Freezer) else {
            return self.signal_all(frozen);
        };
        control_file::write(&seat.path.join(V1_STATE), v1_state(frozen))
    }

    fn wait_until(&self, frozen: bool) -> Result<(), CgroupError> {
        if let Some(v2) = &self.directories.v2 {
            let events = v2.join("cgroup.events");
            let done = |text: &str| control_file::keyed(text, "frozen") == Some(frozen.into());
            return wait_for(v2, &events, done);
        }
        let Some(seat) = self.seat(Controller::Freezer) else {
            return Ok(());
        };
        let done = |text: &str| text.trim() == v1_state(frozen);
        wait_for(&seat.path, &seat.path.join(V1_STATE), done)
    }

    /// The last resort of a host that has no freezer.
    fn signal_all(&self, stop: bool) -> Result<(), CgroupError> {
        let signal = if stop { Signal::STOP } else { Signal::CONT };
        for pid in self.processes()? {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            match pid.map(|pid| kill_process(pid, signal)) {
                Some(Err(errno)) if errno != Errno::SRCH => {
                    let error = OsError::new("signal the processes of", self.name(), errno);
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Kills every process of the group. The processes are gone a moment later.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn kill_all(&self) -> Result<(), CgroupError> {
        if let Some(v2) = &self.directories.v2 {
            processes::kill(v2)?;
        }
        let v1: BTreeSet<&PathBuf> = self.directories.v1.values().collect();
        if v1.is_empty() {
            return Ok(());
        }
        if self.directories.v2.is_none() && self.seat(Controller::Freezer).is_some() {
            self.thaw()?;
        }
        v1.into_iter().try_for_each(|path| processes::kill(path))
    }

    /// Kills the processes inside and removes the group.
    ///
    /// # Errors
    /// [`CgroupError::NotEmpty`] if processes survive being killed.
    pub fn remove(self) -> Result<(), CgroupError> {
        let directories = self.directories.all();
        directories.into_iter().try_for_each(processes::remove)
    }

    pub(crate) fn entrance(&self) -> Result<Entrance, CgroupError> {
        let v2 = match &self.directories.v2 {
            Some(path) => Some(open_directory(path)?),
            None => None,
        };
        let v1: BTreeSet<&PathBuf> = self.directories.v1.values().collect();
        let tasks = v1.into_iter().map(|path| path.join("tasks"));
        let v1_tasks = tasks
            .filter_map(|path| CString::new(path.as_os_str().as_bytes()).ok())
            .collect();
        Ok(Entrance { v2, v1_tasks })
    }
}

/// The file of v1's freezer, and its values.
const V1_STATE: &str = "freezer.state";

fn v1_state(frozen: bool) -> &'static str {
    if frozen { "FROZEN" } else { "THAWED" }
}

fn open_directory(path: &Path) -> Result<OwnedFd, CgroupError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| OsError::new("open cgroup", path.display(), errno).into())
}

/// As long as this value lives, sleeps of the calling thread end on time: otherwise the kernel may be late by 50 us.
/// (Notifications of changes of `cgroup.events` are no alternative: after each change the kernel is silent for 10
/// ms.)
struct FineSleeps {
    before: Option<NonZeroU64>,
}

impl FineSleeps {
    fn begin() -> Self {
        let before = current_timer_slack().ok().and_then(NonZeroU64::new);
        // On a refusal, sleeps are as late as before.
        let _late = set_current_timer_slack(Some(NonZeroU64::MIN));
        FineSleeps { before }
    }
}

impl Drop for FineSleeps {
    fn drop(&mut self) {
        let _late = set_current_timer_slack(self.before);
    }
}

fn wait_for(group: &Path, file: &Path, done: impl Fn(&str) -> bool) -> Result<(), CgroupError> {
    // A process that is thawed may run at once, and a process that sleeps stands still at once.
    if done(&control_file::read(file)?) {
        return Ok(());
    }
    let begun = Instant::now();
    let deadline = begun + FREEZE_WAIT;
    let _slack = FineSleeps::begin();
    while !done(&control_file::read(file)?) {
        if Instant::now() >= deadline {
            return Err(CgroupError::NotFrozen {
                path: group.to_owned(),
                seconds: FREEZE_WAIT.as_secs(),
            });
        }
        // Processes that are to stop may need this core for it, and are in another group: yielding would not give the
        // core to them.
        let is_soon = begun.elapsed() < FREEZE_SOON;
        std::thread::sleep(if is_soon {
            FREEZE_POLL_SOON
        } else {
            FREEZE_POLL
        });
    }
    Ok(())
}
