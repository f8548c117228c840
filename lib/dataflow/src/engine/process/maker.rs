//! The thread that forks PEs' processes.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::seat::Seat;
use super::{Confine, Tenant, child};
use crate::engine::clock::Clock;

/// Held from when a region is shown until it is hidden again.
static FORK: Mutex<()> = Mutex::new(());

/// How often the birth of a process is looked for.
const POLL: Duration = Duration::from_micros(100);

/// The number of a process, once it is there.
pub type Birth = OnceLock<Result<Pid, Errno>>;

/// A PE, as all its processes know it.
#[derive(Clone, Copy)]
pub struct PeSettings {
    pub index: usize,
    pub core: Option<usize>,
    pub clock: Clock,
    pub confine: Option<Confine>,
}

/// A process to fork.
pub struct Request {
    pub pe: PeSettings,
    pub tenant: Arc<Tenant>,
    pub seat: Seat,
    pub birth: Arc<Birth>,
}

/// Forks one process after the other. A process ends when this thread does, whatever ends it.
pub struct Maker {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start() -> io::Result<Self> {
        child::quiet_panics();
        let (requests, wanted) = channel::<Request>();
        let thread = std::thread::Builder::new().name("pe-maker".to_owned());
        let thread = thread.spawn(move || {
            for request in wanted {
                let born = fork(&request);
                // Nobody else sets it.
                let _first = request.birth.set(born);
            }
        })?;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// Has a process forked. Its number is in `birth` soon.
    pub fn fork(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // The thread goes on until this end is dropped.
            let _always_ok = requests.send(request);
        }
    }

    /// Waits until a process that was asked for has a number, or never will.
    pub fn await_birth(&self, birth: &Birth) {
        let works = || {
            self.thread
                .as_ref()
                .is_some_and(|thread| !thread.is_finished())
        };
        while birth.get().is_none() && works() {
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Forks a process that has the memory of its slice, and no other region.
fn fork(request: &Request) -> Result<Pid, Errno> {
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM);
    let region = &request.tenant.region;
    let parent = getpid();
    // Another engine's process must not have the region, nor this one the other's.
    let _one_at_a_time = FORK.lock().unwrap_or_else(PoisonError::into_inner);
    region.show(true).map_err(failed)?;
    // SAFETY: the new process has this thread alone. C libraries make their allocator usable in it. It takes no lock that a
    // thread may hold which it does not have: it prints nothing, and reads no environment. A kernel that takes one nevertheless
    // may not come back; its process is killed and replaced like any that does not.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        child::run(request, parent);
    }
    let errno = io::Error::last_os_error();
    // Otherwise the next process would have the region too, and that may be another slice's.
    if region.show(false).is_err() {
        std::process::abort();
    }
    match Pid::from_raw(forked) {
        Some(pid) if forked > 0 => Ok(pid),
        _ => Err(failed(errno)),
    }
}
