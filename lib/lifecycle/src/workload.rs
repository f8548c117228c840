//! The running part of an instance, as its life sees it, for every kind of isolation.

use crate::record::Record;
use crate::succession::Succession;
use nfluid_api::types::ExitStatus;
use nfluid_control::access::Stop;
use nfluid_control::group::Groups;
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_control::supervise::Exit;
use nfluid_control::wake::Wake;
use nfluid_ring::Level;
use nfluid_sandbox::ProcessIdentity;
use nfluid_sandbox::cgroup::CpuClock;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// A queue of a port of an instance: a pair of rings that the switch identifies by a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Platform-wide number.
    pub number: u32,
    /// Name of the port in the instance.
    pub name: String,
    /// Index of the queue.
    pub queue: u16,
    /// Number of queues of the port.
    pub queues: u16,
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exited {
    /// Description of the end, for operators.
    pub how: String,
    /// The end as numbers.
    pub status: ExitStatus,
}

impl Exited {
    /// Returns the end of an instance that ended without a process that could tell how.
    pub fn failed(how: impl Into<String>) -> Self {
        Exited {
            how: how.into(),
            status: ExitStatus::default(),
        }
    }

    /// Returns whether the end was a success.
    pub fn exit(&self) -> Exit {
        match self.status.status {
            Some(0) => Exit::Success,
            _ => Exit::Failure,
        }
    }
}

/// The resources that an instance has used since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Time in nanoseconds for which its cap has held it back. Absent: the kernel does not count this time.
    pub throttled_ns: Option<u64>,
    /// Memory in bytes that it uses now.
    pub memory_bytes: Option<u64>,
}

/// Descriptors by which an I/O thread makes the system calls of an instance.
pub struct Calls {
    /// Doorbell by which the instance wakes the I/O thread.
    pub io: OwnedFd,
    /// Doorbell of the instance.
    pub own: OwnedFd,
    /// The ring map of each queue, and the doorbell of the peer to which the queue's port is linked.
    pub rings: Vec<(OwnedFd, Option<OwnedFd>)>,
}

/// Rings of an instance into which the daemon puts frames without the host's lock. After the end of the instance, the
/// numbers of its ports may belong to another instance: the caller makes sure that the instance exists.
pub trait InstanceRings: Send + Sync {
    /// Returns true if there is a port of that number.
    fn has(&self, port: u8) -> bool;

    /// Puts frames into the ring of a port, up to half of the ring, and rings the doorbell. Returns the number of
    /// frames that had room.
    fn put(&self, port: u8, frames: &[&[u8]]) -> usize;

    /// Counts frames for a port that had no room.
    fn count_left_out(&self, port: u8, frames: u64);
}

/// The leftovers of an instance that was taken out. Dropping this value removes them.
pub trait Remains: Any + Send {
    /// Returns the name of the instance.
    fn name(&self) -> &str;

    /// Keeps the doorbell in place, for a new instance of the same name.
    fn keep_doorbell(&mut self);
}

/// A function that asks a program to end by itself and waits for the end. The wait may be long: no lock is held meanwhile.
pub type Farewell = Box<dyn FnOnce() + Send>;

/// An instance that exists. Its process may have ended: its ports, limits and record remain.
pub trait Workload: Send {
    /// Returns the number of its process, if it has one.
    fn pid(&self) -> Option<u32>;

    /// Returns the identity of its process, unless the process has ended. [`Workload::exit`] still reports an end
    /// that is noticed here.
    fn identity(&self) -> Option<ProcessIdentity>;

    /// Returns how its process has ended. `None`: the process runs, or its end was noted already.
    fn exit(&self) -> Option<Exited>;

    /// Returns what asks its program to end by itself and waits for that, as long as the program may take. `stop` goes before
    /// what the instance says. `None`: there is nothing to ask.
    fn farewell(&self, _stop: Stop) -> Option<Farewell> {
        None
    }

    /// Ends its process, and waits until the process is gone.
    ///
    /// # Errors
    /// The process is not gone.
    fn stop(&mut self) -> anyhow::Result<()>;

    /// Notes that its process has ended, and wakes peers that may wait for a wake-up from the process.
    fn note_end(&mut self);

    /// Reclaims the rings that the process has left. Returns the number of frames that were lost in them.
    ///
    /// # Errors
    /// A ring cannot be read.
    fn reclaim(&mut self) -> anyhow::Result<u64>;

    /// Starts a process on its ports, after one has ended. `peers` are the instances at the other ends of its links, by port.
    ///
    /// # Errors
    /// No process was started.
    fn start(&mut self, spec: &InstanceSpec, peers: Vec<Option<String>>) -> anyhow::Result<()>;

    /// Begins to freeze the instance.
    ///
    /// # Errors
    /// The kernel refuses.
    fn begin_freeze(&self) -> anyhow::Result<()>;

    /// Waits until the instance is frozen.
    ///
    /// # Errors
    /// The instance is not frozen in time.
    fn await_frozen(&self) -> anyhow::Result<()>;

    /// Thaws the instance.
    ///
    /// # Errors
    /// The kernel refuses.
    fn thaw(&self) -> anyhow::Result<()>;

    /// Puts its limits in force, in the group of tenants that `resources` name.
    ///
    /// # Errors
    /// Some limits may be in force.
    fn limit(&mut self, groups: &Groups, resources: &Resources) -> anyhow::Result<()>;

    /// Removes its cap.
    ///
    /// # Errors
    /// The kernel refuses.
    fn lift_cap(&self) -> anyhow::Result<()>;

    /// Gives it the cap that `resources` and the groups around it allow.
    ///
    /// # Errors
    /// The kernel refuses.
    fn cap(&self, groups: &Groups, resources: &Resources) -> anyhow::Result<()>;

    /// Moves it to the place of its group in `groups`, unless it is there.
    ///
    /// # Errors
    /// The instance is where it was.
    fn relocate(&mut self, groups: &Groups, resources: &Resources) -> anyhow::Result<()>;

    /// Makes its threads run on these CPUs; empty: on all.
    ///
    /// # Errors
    /// The kernel refuses.
    fn run_on(&mut self, cpus: &[u32]) -> anyhow::Result<()>;

    /// Returns the time for which its threads have run and waited for a CPU. `None`: unknown.
    fn busy_time(&self) -> Option<Duration>;

    /// Returns the resources that it has used.
    fn usage(&self) -> Usage;

    /// Returns the clock of its CPU time. `None`: the kernel has no such clock.
    fn cpu_clock(&self) -> Option<CpuClock>;

    /// Returns the socket on which it listens for the daemon.
    fn control(&self) -> &Path;

    /// Returns its ports, counting each queue, in the order of their numbers.
    fn ports(&self) -> &[Port];

    /// Returns its record.
    fn record(&self) -> &Record;

    /// Returns its record, to be changed: see [`Workload::save_record`].
    fn record_mut(&mut self) -> &mut Record;

    /// Writes its record down.
    ///
    /// # Errors
    /// The record on the disk is as before.
    fn save_record(&self) -> io::Result<()>;

    /// Sets when a sleeping instance is woken; `None`: for each frame.
    ///
    /// # Errors
    /// The switch refuses for a port.
    fn set_wake(&self, wake: Option<Wake>) -> anyhow::Result<()>;

    /// Sets the frames that it may send, if a network stack of its own makes them: those that all who can get them take.
    ///
    /// # Errors
    /// The kernel refuses.
    fn let_in(&mut self, _level: Level) -> anyhow::Result<()> {
        Ok(())
    }

    /// Opens or closes its ports.
    fn set_ports_up(&self, up: bool);

    /// Rings the instance's doorbell. Returns false if the doorbell is full of rings that the instance has not read:
    /// such rings wake no thread.
    fn ring(&self) -> bool;

    /// Puts frames into the ring of the queue at this index of [`Workload::ports`]. Returns the number of frames that
    /// had room.
    ///
    /// # Errors
    /// The ring cannot be written.
    fn put_frames(&self, queue: usize, frames: &[&[u8]]) -> anyhow::Result<usize>;

    /// Counts frames for a queue that had no room.
    fn count_left_out(&self, queue: usize, frames: u64);

    /// Returns the number of frames that wait in its rings.
    fn waiting(&self) -> u64;

    /// Returns the number of frames that were dropped since it was made because its rings were full.
    fn overflowed(&self) -> u64;

    /// Returns its rings, for frames that come while the host is not locked.
    ///
    /// # Errors
    /// A map cannot be opened.
    fn instance_rings(&self) -> anyhow::Result<Box<dyn InstanceRings>>;

    /// Returns the descriptors that an I/O thread needs to make its system calls. With `heard` false, no thread will
    /// listen to the doorbell.
    ///
    /// # Errors
    /// A descriptor cannot be opened.
    fn calls(&mut self, heard: bool) -> anyhow::Result<Calls>;

    /// Makes the instance do its system calls itself from now on.
    fn end_calls(&mut self);

    /// Starts a successor as `new` says, without ports.
    ///
    /// # Errors
    /// The new process was not started.
    fn begin_succession(
        &mut self,
        new: &InstanceSpec,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Box<dyn Succession>>;

    /// Makes the successor, which has the ports, the process of the instance. `doorbells` are those of the given
    /// doorbells that still have a reader.
    ///
    /// # Errors
    /// The control socket or the record cannot be written.
    fn complete_succession(
        &mut self,
        new: &InstanceSpec,
        doorbells: Vec<Option<String>>,
    ) -> anyhow::Result<()>;

    /// Ends a successor that does not have the ports.
    ///
    /// # Errors
    /// The successor is not gone, or the record cannot be written.
    fn abandon_succession(&mut self) -> anyhow::Result<()>;

    /// Takes the instance, which was made from `spec`, out of the platform. Its process was stopped before.
    fn take_out(self: Box<Self>, spec: InstanceSpec) -> Box<dyn Remains>;
}
