//! What the life of an instance has to know of the instance while it runs, whatever isolates it.

use crate::record::Record;
use crate::succession::Succession;
use nfluid_control::group::Groups;
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_control::supervise::Exit;
use nfluid_control::wake::Wake;
use nfluid_sandbox::ProcessIdentity;
use nfluid_sandbox::cgroup::CpuClock;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// A queue of a port of an instance: a pair of rings that the switch knows by a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Platform-wide number.
    pub number: u32,
    /// Name of the port in the instance.
    pub name: String,
    /// Index of the queue.
    pub queue: u16,
    /// Queues of the port.
    pub queues: u16,
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exited {
    /// How the process ended, in words.
    pub how: String,
    /// Success or failure.
    pub exit: Exit,
}

/// What an instance has used since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Time in nanoseconds for which its cap has held it back; absent: the kernel does not count it.
    pub throttled_ns: Option<u64>,
    /// Memory in bytes that it uses now.
    pub memory_bytes: Option<u64>,
}

/// Descriptors by which an I/O thread makes the calls of an instance.
pub struct Calls {
    /// Doorbell by which the instance wakes the thread.
    pub io: OwnedFd,
    /// Doorbell of the instance.
    pub own: OwnedFd,
    /// Ring map of each queue, and the doorbell of the peer to which the queue's port is linked.
    pub rings: Vec<(OwnedFd, Option<OwnedFd>)>,
}

/// Rings of an instance into which the daemon puts frames without the lock of the host. The numbers of the ports may belong to
/// another instance when this one has ended: the caller makes sure that the instance is there.
pub trait Inlets: Send + Sync {
    /// Returns true if there is a port of that number.
    fn has(&self, port: u8) -> bool;

    /// Puts frames into the ring of a port, up to half of the ring, and rings the doorbell. Returns how many found room.
    fn put(&self, port: u8, frames: &[&[u8]]) -> usize;

    /// Counts frames for a port that found no room.
    fn count_left_out(&self, port: u8, frames: u64);
}

/// What is left of an instance that was taken out: removed when this is dropped.
pub trait Remains: Any + Send {
    /// Name of the instance.
    fn name(&self) -> &str;

    /// Leaves the doorbell where it is: a successor of the same name is rung by it.
    fn leave_doorbell(&mut self);
}

/// An instance that exists. Its process may have ended: its ports, limits and record remain.
pub trait Workload: Send {
    /// Number of its process, while it has one.
    fn pid(&self) -> Option<u32>;

    /// Identity of its process, unless the process has ended. An end that is seen here is reported by [`Workload::exit`] still.
    fn identity(&self) -> Option<ProcessIdentity>;

    /// How its process has ended; absent: the process runs, or its end was taken note of.
    fn exit(&self) -> Option<Exited>;

    /// Ends its process and waits until the process is gone.
    ///
    /// # Errors
    /// The process is not gone.
    fn stop(&mut self) -> anyhow::Result<()>;

    /// Takes note that its process has ended, and wakes the peers that the process may have left waiting.
    fn note_end(&mut self);

    /// Takes the rings back that the process has left. Returns how many frames were lost in them.
    ///
    /// # Errors
    /// A ring cannot be read.
    fn reclaim(&mut self) -> anyhow::Result<u64>;

    /// Starts a process on its ports, after one has ended. `peers` are the instances at the other ends of its links, by port.
    ///
    /// # Errors
    /// No process was started.
    fn start(&mut self, spec: &InstanceSpec, peers: Vec<Option<String>>) -> anyhow::Result<()>;

    /// Begins to let it stand still.
    ///
    /// # Errors
    /// The kernel refuses.
    fn begin_freeze(&self) -> anyhow::Result<()>;

    /// Waits until it stands still.
    ///
    /// # Errors
    /// It does not.
    fn await_frozen(&self) -> anyhow::Result<()>;

    /// Lets it go on.
    ///
    /// # Errors
    /// The kernel refuses.
    fn thaw(&self) -> anyhow::Result<()>;

    /// Puts its limits in force, in the group of tenants that `resources` name.
    ///
    /// # Errors
    /// Some limits may be in force.
    fn limit(&mut self, groups: &Groups, resources: &Resources) -> anyhow::Result<()>;

    /// Takes its cap away.
    ///
    /// # Errors
    /// The kernel refuses.
    fn lift_cap(&self) -> anyhow::Result<()>;

    /// Gives it the cap that `resources` and the groups around it allow.
    ///
    /// # Errors
    /// The kernel refuses.
    fn cap(&self, groups: &Groups, resources: &Resources) -> anyhow::Result<()>;

    /// Moves it to where its group is by `groups`, unless it is there.
    ///
    /// # Errors
    /// It is where it was.
    fn relocate(&mut self, groups: &Groups, resources: &Resources) -> anyhow::Result<()>;

    /// Has its threads run on these CPUs; empty: on all.
    ///
    /// # Errors
    /// The kernel refuses.
    fn run_on(&mut self, cpus: &[u32]) -> anyhow::Result<()>;

    /// Time that its threads have run and waited for a CPU; absent: unknown.
    fn busy_time(&self) -> Option<Duration>;

    /// What it has used.
    fn usage(&self) -> Usage;

    /// Clock of its CPU time; absent: the kernel has none.
    fn cpu_clock(&self) -> Option<CpuClock>;

    /// Socket on which it listens for the daemon.
    fn control(&self) -> &Path;

    /// Its ports, every queue of them, in the order of their numbers.
    fn ports(&self) -> &[Port];

    /// Its record.
    fn record(&self) -> &Record;

    /// Its record, to be changed: see [`Workload::save_record`].
    fn record_mut(&mut self) -> &mut Record;

    /// Writes its record down.
    ///
    /// # Errors
    /// The record on the disk is as before.
    fn save_record(&self) -> io::Result<()>;

    /// Changes when it is woken while it sleeps; absent: for each frame.
    ///
    /// # Errors
    /// The switch refuses for a port.
    fn set_wake(&self, wake: Option<Wake>) -> anyhow::Result<()>;

    /// Opens and shuts its ports.
    fn set_ports_up(&self, up: bool);

    /// Wakes it.
    fn ring(&self);

    /// Puts frames into the ring of a queue, which is meant by its place in [`Workload::ports`]. Returns how many found room.
    ///
    /// # Errors
    /// The ring cannot be written.
    fn deposit(&self, queue: usize, frames: &[&[u8]]) -> anyhow::Result<usize>;

    /// Counts frames for a queue that found no room.
    fn count_left_out(&self, queue: usize, frames: u64);

    /// Frames that wait in its rings.
    fn waiting(&self) -> u64;

    /// Frames that have found its rings full since it was made.
    fn overflowed(&self) -> u64;

    /// Its rings, for frames that come while the host is not locked.
    ///
    /// # Errors
    /// A map cannot be opened.
    fn inlets(&self) -> anyhow::Result<Box<dyn Inlets>>;

    /// What an I/O thread needs to make its calls. With `heard` false nobody will listen to the doorbell of the thread.
    ///
    /// # Errors
    /// A descriptor cannot be opened.
    fn calls(&mut self, heard: bool) -> anyhow::Result<Calls>;

    /// It makes its calls itself from now on.
    fn end_calls(&mut self);

    /// Starts a successor as `new` says, which has no ports yet.
    ///
    /// # Errors
    /// There is no successor.
    fn begin_succession(
        &mut self,
        new: &InstanceSpec,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Box<dyn Succession>>;

    /// The successor has the ports: what is known of the instance is known of the successor. `doorbells` are those of the given
    /// ones that lead somewhere still.
    ///
    /// # Errors
    /// The control socket or the record cannot be written.
    fn complete_succession(
        &mut self,
        new: &InstanceSpec,
        doorbells: Vec<Option<String>>,
    ) -> anyhow::Result<()>;

    /// Ends a successor that has not got the ports.
    ///
    /// # Errors
    /// The successor is not gone, or the record cannot be written.
    fn abandon_succession(&mut self) -> anyhow::Result<()>;

    /// Takes the instance, which was made from `spec`, out of the platform. Its process was stopped.
    fn take_out(self: Box<Self>, spec: InstanceSpec) -> Box<dyn Remains>;
}
