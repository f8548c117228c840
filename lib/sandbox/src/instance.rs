//! A running instance, as its parent or a restarted daemon sees it.

use crate::error::{Errno, OsError};
use crate::polling::poll_readable;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Which process an instance is, for good: a pid alone is used again, and so is a start time after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The process number as the daemon sees it.
    pub pid: u32,
    /// The start time, in clock ticks since boot (proc_pid_stat(5), field 22).
    pub start_time: u64,
    /// Which boot that was (/proc/sys/kernel/random/boot_id).
    pub boot_id: String,
}

impl ProcessIdentity {
    /// Returns the identity of the process that has this number now: a child that has not been waited for keeps its
    /// number.
    ///
    /// # Errors
    /// [`InstanceError::Gone`] if there is none.
    pub fn of(pid: u32) -> Result<Self, InstanceError> {
        let boot_id = boot_id()?;
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let start = number.map(start_time).transpose()?.flatten();
        let identity = Self {
            pid,
            start_time: start.unwrap_or(0),
            boot_id,
        };
        match start {
            Some(_) => Ok(identity),
            None => Err(InstanceError::Gone { identity }),
        }
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} (started at tick {})",
            self.pid, self.start_time
        )
    }
}

/// The way in which an instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The instance exited with this status.
    Exited(i32),
    /// A signal killed the instance. SIGSYS comes from the system call filter, SIGKILL from the memory limit or from
    /// another process.
    Killed(i32),
    /// The instance is gone. Only the parent of a process learns how the process ended, and this instance was
    /// adopted.
    Unknown,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Killed(libc::SIGSYS) => f.write_str("killed by the system call filter (SIGSYS)"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
            Self::Unknown => f.write_str("gone, exit status unknown"),
        }
    }
}

/// CPU time of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadUse {
    /// CPU time since it was started.
    pub cpu_time: Duration,
    /// The core on which it ran last.
    pub core: u32,
}

impl ThreadUse {
    /// Returns the CPU time of thread `tid` of process `pid`; `None` if there is no such thread.
    pub fn of(pid: u32, tid: i32) -> Option<Self> {
        let task = format!("/proc/{pid}/task/{tid}");
        let stat = std::fs::read_to_string(format!("{task}/stat")).ok()?;
        let (ran, _) = ran_and_waited(Path::new(&task))?;
        Some(ThreadUse {
            cpu_time: ran,
            core: u32::try_from(stat_field(&stat, PROCESSOR)?).ok()?,
        })
    }
}

/// Reason for which an instance could not be watched, signalled or adopted.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The process does not exist any more, or its number belongs to another one now.
    #[error("{identity} is gone; start the instance again")]
    Gone {
        /// Which process it was.
        identity: ProcessIdentity,
    },
}

/// A running instance. Dropping it lets go of the instance without harming it.
#[derive(Debug)]
pub struct Instance {
    identity: ProcessIdentity,
    pidfd: OwnedFd,
    /// True if the instance is a child of this process; only then the kernel reports how the instance ended.
    is_child: bool,
}

impl Instance {
    pub(crate) fn of_child(pid: Pid, pidfd: OwnedFd) -> Result<Self, InstanceError> {
        Ok(Self {
            identity: ProcessIdentity {
                pid: pid.as_raw_nonzero().get().unsigned_abs(),
                start_time: start_time(pid)?.unwrap_or(0),
                boot_id: boot_id()?,
            },
            pidfd,
            is_child: true,
        })
    }

    /// Finds an instance of a former daemon again.
    ///
    /// The process is pinned first and compared then: if the one that has the number now had another start time, or ends
    /// while it is looked at, it is not taken for the instance.
    ///
    /// # Errors
    /// [`InstanceError::Gone`].
    pub fn adopt(identity: &ProcessIdentity) -> Result<Self, InstanceError> {
        let gone = || InstanceError::Gone {
            identity: identity.clone(),
        };
        let pid = i32::try_from(identity.pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(gone)?;
        if boot_id()? != identity.boot_id {
            return Err(gone());
        }
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH | Errno::INVAL) => return Err(gone()),
            Err(errno) => return Err(OsError::new("open process", identity, errno).into()),
        };
        let found = start_time(pid)?;
        let instance = Self {
            identity: identity.clone(),
            pidfd,
            is_child: false,
        };
        if found != Some(identity.start_time) || instance.is_over(Duration::ZERO)? {
            return Err(gone());
        }
        Ok(instance)
    }

    /// Which process it is; keep it to [`Instance::adopt`] the instance after a restart.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Returns the process number.
    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// CPU time that it has used, to the clock tick; nothing if it is gone.
    pub fn cpu_time(&self) -> Option<Duration> {
        let stat = stat(Pid::from_raw(self.pid().try_into().ok()?)?).ok()??;
        let ticks = stat_field(&stat, USER_TIME)? + stat_field(&stat, SYSTEM_TIME)?;
        let per_second = rustix::param::clock_ticks_per_second();
        Some(Duration::from_millis(ticks * 1000 / per_second.max(1)))
    }

    /// Returns the time for which the instance's threads have run and, ready to run, have waited for a CPU, together:
    /// the time for which they would have run alone. Returns `None` if the instance is gone.
    pub fn cpu_and_wait_time(&self) -> Option<Duration> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).ok()?;
        // A thread that has ended in between is left out.
        let times = tasks
            .flatten()
            .filter_map(|task| ran_and_waited(&task.path()));
        let add = |sum: Duration, (ran, waited)| sum.saturating_add(ran).saturating_add(waited);
        Some(times.fold(Duration::ZERO, add))
    }

    /// Returns the CPU time of a thread of the instance; `None` if there is no such thread.
    pub fn thread_use(&self, tid: i32) -> Option<ThreadUse> {
        ThreadUse::of(self.pid(), tid)
    }

    /// Sends a signal. The instance is process 1 of its own namespace: but for SIGKILL and SIGSTOP, the kernel ignores
    /// what its program has no handler for, SIGTERM too.
    ///
    /// # Errors
    /// [`InstanceError::Gone`] if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), InstanceError> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) => Err(InstanceError::Gone {
                identity: self.identity.clone(),
            }),
            Err(errno) => Err(OsError::new("signal", &self.identity, errno).into()),
        }
    }

    /// Kills the instance with every process that it started. The instance is gone when [`Instance::wait`] says so.
    /// An instance that has ended already is no error.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn kill(&self) -> Result<(), InstanceError> {
        match self.signal(Signal::KILL) {
            Err(InstanceError::Gone { .. }) => Ok(()),
            other => other,
        }
    }

    /// Returns how the instance ended, or `None` if it runs. The kernel forgets a child once the child has been
    /// reported as ended; do not ask again.
    ///
    /// # Errors
    /// The kernel's refusal; ECHILD if other code of this process waited for the instance.
    pub fn try_wait(&self) -> Result<Option<Ended>, InstanceError> {
        if !self.is_child {
            return Ok(self.is_over(Duration::ZERO)?.then_some(Ended::Unknown));
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        Ok(self.wait_id(options)?.map(|status| ended(&status)))
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// As [`Instance::try_wait`].
    pub fn wait(&self) -> Result<Ended, InstanceError> {
        if !self.is_child {
            while !self.is_over(Duration::from_secs(3600))? {}
            return Ok(Ended::Unknown);
        }
        let status = self.wait_id(WaitIdOptions::EXITED)?;
        Ok(status.as_ref().map_or(Ended::Unknown, ended))
    }

    /// Waits for at most `timeout`; `None` if it still runs.
    ///
    /// # Errors
    /// As [`Instance::try_wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<Ended>, InstanceError> {
        if self.is_over(timeout)? {
            self.try_wait()
        } else {
            Ok(None)
        }
    }

    fn wait_id(&self, options: WaitIdOptions) -> Result<Option<WaitIdStatus>, InstanceError> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
                Ok(status) => return Ok(status),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::new("wait for", &self.identity, errno).into()),
            }
        }
    }

    /// Returns true if the pidfd polls readable: the process has ended, whichever process is its parent.
    fn is_over(&self, timeout: Duration) -> Result<bool, InstanceError> {
        poll_readable(self.pidfd.as_fd(), timeout)
            .map_err(|errno| OsError::new("poll", &self.identity, errno).into())
    }
}

/// The pidfd: readable once the instance has ended.
impl AsFd for Instance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn ended(status: &WaitIdStatus) -> Ended {
    if let Some(status) = status.exit_status() {
        Ended::Exited(status)
    } else if let Some(signal) = status.terminating_signal() {
        Ended::Killed(signal)
    } else {
        Ended::Unknown
    }
}

fn boot_id() -> Result<String, OsError> {
    // The boot does not change while this process lives.
    static READ: OnceLock<String> = OnceLock::new();
    if let Some(known) = READ.get() {
        return Ok(known.clone());
    }
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path)
        .map_err(|error| OsError::from_io("read", path, &error).remedy("mount /proc"))?;
    Ok(READ.get_or_init(|| text.trim().to_owned()).clone())
}

/// The start time in ticks, or nothing if there is no such process.
fn start_time(pid: Pid) -> Result<Option<u64>, OsError> {
    Ok(stat(pid)?.and_then(|stat| stat_field(&stat, START_TIME)))
}

/// The text of /proc/PID/stat, or nothing if there is no such process.
fn stat(pid: Pid) -> Result<Option<String>, OsError> {
    let path = format!("/proc/{pid}/stat");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::SRCH) => Ok(None),
            _ => Err(OsError::from_io("read", path, &error)),
        },
    }
}

// Fields of /proc/PID/stat, counted from 1 as in proc(5).
pub(crate) const STATE: usize = 3;
const USER_TIME: usize = 14;
const SYSTEM_TIME: usize = 15;
const START_TIME: usize = 22;
const PROCESSOR: usize = 39;

/// The second field is the program's name in parentheses and may hold any byte, so that counting starts behind the last
/// closing one, at the third field.
pub(crate) fn stat_word(stat: &str, number: usize) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(number - 3)
}

/// Returns the time for which a thread has run, and the time for which the thread was ready and did not run
/// (Documentation/scheduler/sched-stats.rst). `task`: its folder below `/proc/PID/task`. Returns `None` if the thread
/// has ended.
pub(crate) fn ran_and_waited(task: &Path) -> Option<(Duration, Duration)> {
    let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
    let mut times = times.split_ascii_whitespace();
    let mut next = || Some(Duration::from_nanos(times.next()?.parse().ok()?));
    Some((next()?, next()?))
}

fn stat_field(stat: &str, number: usize) -> Option<u64> {
    stat_word(stat, number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own_identity() -> ProcessIdentity {
        ProcessIdentity::of(std::process::id()).unwrap()
    }

    // promise: 5.1
    #[test]
    fn a_running_process_is_adopted_by_its_true_identity_only() {
        let identity = own_identity();
        let instance = Instance::adopt(&identity).unwrap();
        assert_eq!(instance.try_wait().unwrap(), None);
        let mut other = identity.clone();
        other.start_time += 1;
        assert!(matches!(
            Instance::adopt(&other),
            Err(InstanceError::Gone { .. })
        ));
        let mut other = identity;
        other.boot_id = "another boot".into();
        assert!(matches!(
            Instance::adopt(&other),
            Err(InstanceError::Gone { .. })
        ));
    }

    #[test]
    fn the_end_of_an_adopted_process_is_seen_but_not_how() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let instance = Instance::adopt(&identity).unwrap();
        instance.kill().unwrap();
        assert_eq!(instance.wait().unwrap(), Ended::Unknown);
        // Not yet waited for by its parent, it still has its number and start time, and is gone nevertheless.
        assert!(matches!(
            Instance::adopt(&identity),
            Err(InstanceError::Gone { .. })
        ));
        child.wait().unwrap();
        assert!(matches!(
            Instance::adopt(&identity),
            Err(InstanceError::Gone { .. })
        ));
        assert!(instance.kill().is_ok());
    }

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let rest = (3..=52)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(
            stat_field(&format!("7 (a) b) S) {rest}"), START_TIME),
            Some(22)
        );
        assert_eq!(stat_field("7 (x) S 1", START_TIME), None);
    }

    proptest! {
        #[test]
        fn any_stat_is_survived(text in ".{0,200}") {
            stat_field(&text, START_TIME);
        }
    }
}
