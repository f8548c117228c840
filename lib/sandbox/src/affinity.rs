//! On which CPUs something runs, and in which slices.
//!
//! A process that joins a cgroup must be on its final CPU before it joins. The kernel (6.18) weighs a group on one
//! CPU by the load that the group has, or last had, on the others, and looks again only when a member is there at a
//! tick or wakes. A member that polls and yields never is: started elsewhere and pinned later, its group keeps about
//! half of its weight for as long as has been observed.

use crate::error::{Errno, OsError};
use crate::instance::{Instance, InstanceError};
use crate::sys;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::time::Duration;

/// The set of these CPUs; the first number that no kernel has, if there is one.
pub(crate) fn set_of(cpus: &[usize]) -> Result<CpuSet, usize> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(*cpu);
        }
        set.set(*cpu);
    }
    Ok(set)
}

/// The remedy for a process that cannot be pinned.
pub(crate) const REMEDY: &str = "none of these CPUs is online and in the daemon's cpuset";

/// Keeps the calling thread on some CPUs, so that its children begin there. On drop the thread gets its former CPUs
/// back. The guard neither allocates nor panics.
pub(crate) struct OnCpus {
    before: CpuSet,
}

impl OnCpus {
    /// Moves the calling thread to `cpus`.
    pub fn enter(cpus: &CpuSet) -> Result<Self, Errno> {
        let before = sched_getaffinity(None)?;
        sched_setaffinity(None, cpus)?;
        Ok(Self { before })
    }
}

impl Drop for OnCpus {
    fn drop(&mut self) {
        // The thread was there before; only a CPU that went offline meanwhile makes this call fail, and then another
        // try does not help.
        let _where_it_was = sched_setaffinity(None, &self.before);
    }
}

/// Number of readings of the list of threads: a thread that is started while its parent is moved may be missed once.
const READINGS_MAX: u32 = 8;

impl Instance {
    /// Moves all threads of the instance to `cpus`; threads that the instance starts later begin there. An instance
    /// that was a member of its cgroup while it ran elsewhere leaves no load there (measured on 6.18): its weight is
    /// right at once.
    ///
    /// # Errors
    /// EINVAL if none of the CPUs is there; [`InstanceError::Gone`] if the instance has ended. Some threads may have
    /// moved then.
    pub fn pin(&self, cpus: &[usize]) -> Result<(), InstanceError> {
        let failed = |errno| OsError::new("pin to CPUs", format!("{cpus:?}"), errno).remedy(REMEDY);
        let set = set_of(cpus).map_err(|_| failed(Errno::INVAL))?;
        self.for_each_thread(|thread| sched_setaffinity(Some(thread), &set).map_err(failed))
    }

    /// Gives all threads of the instance, and threads that it starts later, a time slice; without a slice, the
    /// kernel's own. A thread with a shorter slice than others runs sooner when it wakes, and gets no more CPU time.
    ///
    /// # Errors
    /// EOPNOTSUPP before Linux 6.12, which has one slice for all; [`InstanceError::Gone`] if the instance has ended.
    pub fn set_slice(&self, slice: Option<Duration>) -> Result<(), InstanceError> {
        let failed = |errno| {
            OsError::new("set the time slice", self.identity(), errno)
                .remedy("slices of one's own need Linux 6.12; leave 'slice' out")
        };
        let ns = slice.map_or(0, |slice| slice.as_nanos() as u64);
        self.for_each_thread(|thread| {
            sys::set_slice_ns(thread, ns).map_err(failed)?;
            // An older kernel takes it and forgets it.
            match slice.is_some() && sys::slice_ns(thread).map_err(failed)? != ns {
                true => Err(failed(Errno::OPNOTSUPP)),
                false => Ok(()),
            }
        })
    }

    /// The time slice of its first thread.
    ///
    /// # Errors
    /// ESRCH if the instance has ended.
    pub fn slice(&self) -> Result<Duration, InstanceError> {
        let failed = |errno| OsError::new("read the time slice of", self.identity(), errno);
        let first = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let first = first.ok_or_else(|| failed(Errno::SRCH))?;
        Ok(Duration::from_nanos(sys::slice_ns(first).map_err(failed)?))
    }

    /// Does something to each thread; those that they start meanwhile inherit it, or are found.
    fn for_each_thread(
        &self,
        act: impl Fn(Pid) -> Result<(), OsError>,
    ) -> Result<(), InstanceError> {
        let mut done = BTreeSet::new();
        for _ in 0..READINGS_MAX {
            let threads = self.threads()?;
            let fresh: Vec<i32> = threads.difference(&done).copied().collect();
            if fresh.is_empty() {
                break;
            }
            for number in fresh {
                done.insert(number);
                let Some(thread) = Pid::from_raw(number) else {
                    continue;
                };
                match act(thread) {
                    // A thread that has ended needs nothing.
                    Err(error) if error.errno == Errno::SRCH => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// The numbers of its threads.
    fn threads(&self) -> Result<BTreeSet<i32>, InstanceError> {
        let gone = || InstanceError::Gone {
            identity: self.identity().clone(),
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).map_err(|_| gone())?;
        let names = tasks.flatten().map(|task| task.file_name());
        Ok(names
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_returns_to_its_affinity() {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU)
            .find(|cpu| before.is_set(*cpu))
            .unwrap();
        let entered = OnCpus::enter(&set_of(&[first]).unwrap()).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(entered);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_number_that_no_kernel_has_is_reported() {
        assert_eq!(set_of(&[0, 1_000_000]), Err(1_000_000));
        assert!(OnCpus::enter(&CpuSet::new()).is_err());
    }
}
