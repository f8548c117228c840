//! Whose process has ended: the kernel says so, however many there are that have not.

use nfluid_sandbox::Instance;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Ends that are told at a time.
const AT_ONCE: usize = 64;

/// The processes of instances.
pub struct Ends {
    told: Arc<OwnedFd>,
    names: HashMap<u32, String>,
}

impl Ends {
    /// Of none.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Ends {
            told: Arc::new(epoll::create(CreateFlags::CLOEXEC)?),
            names: HashMap::new(),
        })
    }

    /// Watches the process of an instance, until it has ended or is let go of. One that cannot be watched is found by the
    /// look at all instances, later.
    pub fn add(&mut self, name: &str, process: &Instance) {
        let pid = process.pid();
        self.names.insert(pid, name.to_owned());
        let once = EventFlags::IN | EventFlags::ONESHOT;
        let data = EventData::new_u64(u64::from(pid));
        if let Err(error) = epoll::add(&*self.told, process.as_fd(), data, once) {
            tracing::warn!(instance = name, %error, "watching its process");
        }
    }

    /// Does not watch it any more.
    pub fn forget(&mut self, process: &Instance) {
        self.names.remove(&process.pid());
        // It may have been told already.
        let _ = epoll::delete(&*self.told, process.as_fd());
    }

    /// Readable when some have ended.
    pub fn readable(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.told)
    }

    /// Some of those that have ended since.
    pub fn ended(&mut self) -> Vec<String> {
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; AT_ONCE];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = epoll::wait(&*self.told, &mut events, Some(&at_once)).unwrap_or(0);
        let told = events.iter().take(count);
        let pids = told.filter_map(|event| u32::try_from(event.data.u64()).ok());
        pids.filter_map(|pid| self.names.remove(&pid)).collect()
    }
}
