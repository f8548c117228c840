//! Processes that have ended. The kernel reports them (epoll on their descriptors), so the daemon looks at no process that runs.

use anyhow::Context;
use nfluid_sandbox::Instance;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum time until a killed instance has ended.
const DEATH: Duration = Duration::from_secs(30);
/// Maximum number of exits that are read at once.
const AT_ONCE: usize = 64;

/// The processes of instances.
pub struct Exits {
    reports: Arc<OwnedFd>,
    names: Mutex<HashMap<u32, String>>,
}

impl Exits {
    /// Creates a watch without processes.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Exits {
            reports: Arc::new(epoll::create(CreateFlags::CLOEXEC)?),
            names: Mutex::default(),
        })
    }

    /// Watches the process of an instance, until the process has ended or [`Exits::forget`]. The end of a process that cannot be
    /// watched is found later, by the look at all instances.
    pub fn add(&self, name: &str, process: &Instance) {
        let pid = process.pid();
        self.names().insert(pid, name.to_owned());
        let once = EventFlags::IN | EventFlags::ONESHOT;
        let data = EventData::new_u64(u64::from(pid));
        if let Err(error) = epoll::add(&*self.reports, process.as_fd(), data, once) {
            tracing::warn!(instance = name, %error, "watching its process");
        }
    }

    /// Stops watching a process.
    pub fn forget(&self, process: &Instance) {
        self.names().remove(&process.pid());
        // The kernel may have reported the exit already.
        let _ = epoll::delete(&*self.reports, process.as_fd());
    }

    /// Readable when processes have ended.
    pub fn readable(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.reports)
    }

    /// Returns some of the instances whose processes have ended since the last call.
    pub fn ended(&self) -> Vec<String> {
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; AT_ONCE];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = epoll::wait(&*self.reports, &mut events, Some(&at_once)).unwrap_or(0);
        let reported = events.iter().take(count);
        let pids = reported.filter_map(|event| u32::try_from(event.data.u64()).ok());
        let mut names = self.names();
        pids.filter_map(|pid| names.remove(&pid)).collect()
    }

    fn names(&self) -> MutexGuard<'_, HashMap<u32, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills a process and waits until it is gone.
///
/// # Errors
/// The process has not ended.
pub fn end(process: &Instance) -> anyhow::Result<()> {
    process.kill()?;
    process.wait_timeout(DEATH)?.with_context(|| {
        format!(
            "{} was killed and is not gone after {} s",
            process.identity(),
            DEATH.as_secs()
        )
    })?;
    Ok(())
}
