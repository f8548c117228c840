//! The process of the I/O threads: `nfluidd io PLATFORM`.
//!
//! In the I/O models `split`, `merge` and `mix` (`docs/adr/0008-io-models.md`) threads of the platform run the switch
//! for instances. A single process has all these threads. The process is there while an instance needs it, in a
//! cgroup of its own, which accounts and caps the cost of I/O. The process has no capability: it is handed the rings
//! and doorbells of the instances whose calls it makes.

mod calls;
mod life;
mod protocol;
mod table;
mod threads;

pub use life::setup;
pub use protocol::{CORES_MAX, Entrusted, IoStatus, Order, Setup};
pub use table::{IoMeans, IoPaths, IoThreads};
pub use threads::duties;

use crate::{End, Job, Process, Service};
use nfluid_switch::serve::Serve;
use nfluid_uplink::{ErrorKind, ReportedError};
use rustix::thread::CapabilitySet;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use threads::Threads;

/// The daemon's side of it.
pub type IoProcess = Process<IoService>;

/// I/O threads, and the instances that they make the calls for.
#[derive(Debug)]
pub struct IoService(Threads);

impl Service for IoService {
    type Task = Setup;
    type Status = IoStatus;
    type Order = Order;
    type Answer = IoStatus;

    const ROLE: &'static str = "io";
    const TITLE: &'static CStr = c"nfluidd-io";
    const NEEDED: CapabilitySet = CapabilitySet::empty();

    fn open(job: &Job<Setup>) -> Result<Self, ReportedError> {
        let serve = Serve::open(&job.pin, job.form).map_err(|error| ReportedError {
            kind: ErrorKind::System,
            text: error.to_string(),
        })?;
        Ok(IoService(Threads::new(serve, job.task.clone())))
    }

    fn status(&self) -> IoStatus {
        self.0.status()
    }

    fn changes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn has_changed(&self) -> bool {
        false
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) -> Result<IoStatus, String> {
        let done = match order {
            Order::Serve(entrusted) => self.0.serve(entrusted, fds),
            Order::Leave { instance } => self.0.leave(&instance),
            Order::Set(setup) => self.0.set(setup),
        };
        done.map_err(|error| format!("{error:#}"))
    }

    /// Either way the instances make their calls themselves again.
    fn end(self, _how: End) -> anyhow::Result<()> {
        drop(self.0);
        Ok(())
    }
}
