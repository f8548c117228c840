//! Uplinks: ports backed by a real interface.
//!
//! An uplink is a port of the platform like any other. What is sent *to* it lands in its ring, and
//! the uplink's thread sends it out of the interface. What the interface receives is sent *by* it:
//! an XDP program on the interface writes each frame straight into the slot of the port that takes
//! it - the other end of a link, the port that the switch knows or floods to, or the one that the
//! uplink's rules name - and wakes its owner. No thread is in that path.
//!
//! | way | when | why |
//! |---|---|---|
//! | XDP native | the driver can (veth, virtio, most NICs) | before any socket buffer is made: 15-42 ns of program per frame |
//! | XDP generic | else, or if asked for | any interface; a socket buffer per frame, and a copy where it is shared |
//! | AF_XDP zero-copy | native, real hardware, driver can | the NIC reads the uplink's own slots |
//! | AF_XDP copy | else | one copy in the kernel, no queueing discipline (measure: example `uplink_speed`) |
//! | AF_PACKET | the interface takes no AF_XDP socket | works everywhere, one system call per 64 frames |
//! | tap | `Kind::Tap` | a read and a write per frame: for programs with a kernel stack, not for load |
//!
//! Which one it has become, and the kernel's reason, is in [`Uplink::status`] and in the log.
//!
//! What is changed on the host - the XDP program, offloads, an address, the interface's up state -
//! is recorded in a file first, so that [`Uplink::close`] undoes it, and a daemon that comes after
//! a crash does ([`clean_leftovers`]) or takes over ([`Uplink::open`] with the same name: the
//! program is replaced atomically, no frame is missed).

mod connection;
mod direct;
mod dispatched;
mod error;
mod features;
mod filter;
mod libxdp;
mod memory;
mod metering;
mod netlink;
mod netns;
mod offload;
mod outlet;
mod packet;
mod peer;
mod pinned;
mod receive;
mod rules;
mod shared;
mod spec;
mod state;
mod steering;
mod tap;
mod tap_worker;
mod worker;
mod xsk;

pub use direct::DirectOutlet;
pub use dispatched::DispatchedProgram;
pub use error::{ErrorKind, ToldError, UplinkError};
pub use filter::{FilterSeat, FilteredProgram};
pub use metering::{ProgramTime, TimeKeeping, program_of, program_time};
pub use netlink::Monitor;
pub use netlink::tc::Side;
pub use netns::NetNs;
pub use offload::Changed as ChangedFeatures;
pub use pinned::{Attached as AttachedProgram, PinnedProgram, Place};
pub use rules::{Prefix, RULES_MAX, Rule, VlanMatch};
pub use spec::{
    Kind, Mode, ReceivePath, Transmit, TransmitPath, UplinkPath, UplinkSpec, UplinkStatus,
};
pub use steering::{Choice, QUEUES_MAX, STEERED_MAX, Steered, Steering};
pub use worker::NICE;

use crate::abi::PORT_PASS;
use crate::handover::Handover;
use crate::instance::{Bells, InstanceMemory, PortSpec};
use crate::program::Switch;
use crate::states::States;
use crate::{SwitchError, abi};
use netlink::Netlink;
use nfluid_ring::attach::Attached;
use nfluid_ring::layout::BLOCK_SLOTS;
use receive::Receiver;
use rustix::event::{EventfdFlags, eventfd};
use shared::{Shared, SteeringOrder};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tap_worker::TapWorker;
use worker::Worker;

/// What an uplink's thread does until it is told to stop.
type Work = Box<dyn FnOnce()>;

/// How long a NIC may take to take a table of flow rules.
const STEERING: Duration = Duration::from_secs(10);

/// Receive buffers for the driver of real hardware, in case it reads the slots without a copy.
const SPARE_SLOTS: u32 = 1024;

/// An uplink. Dropping it lets go of the interface, as [`Uplink::close`] does, but leaves the port
/// in the switch.
#[derive(Debug)]
pub struct Uplink {
    spec: UplinkSpec,
    memory: InstanceMemory,
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Uplink {
    /// Makes the uplink's port, up and not connected - unless a port with this number is up
    /// already, whose connection it takes over - and takes hold of the interface. The calling
    /// process must be in the switch's cgroup, and root.
    ///
    /// # Errors
    /// See [`UplinkError`]; nothing is changed then, and the port is not there.
    pub fn open(switch: &Switch, spec: UplinkSpec) -> Result<Self, UplinkError> {
        check(&spec)?;
        let netns = NetNs::open(spec.netns.as_deref())?;
        let (mac, hardware) = match spec.kind {
            Kind::Tap => (None, false),
            Kind::Xdp => netns.within(|| {
                let link = connection::find(&Netlink::open()?, &spec, &netns)?;
                Ok((link.mac, features::is_hardware(&spec.interface)))
            })?,
        };
        let port = PortSpec {
            tx_slots: if hardware {
                SPARE_SLOTS
            } else {
                BLOCK_SLOTS as u32
            },
            pinned: false,
            learn: true,
            kernel_bell: true,
            ..PortSpec::new(
                spec.port,
                port_name(&spec.name),
                spec.mac.or(mac).unwrap_or_default(),
                spec.ring_slots,
            )
        };
        let taken_over = match &spec.pins {
            Some(pins) => memory::take_over(switch, pins, spec.pool, &port)?,
            None => None,
        };
        if let Some((memory, handover)) = taken_over {
            // Nobody else knows the port's wires: whatever goes wrong, they stay.
            let ring = attach(&memory, &handover)?;
            let (shared, stop, thread) = Self::start(switch, &spec, ring, netns)?;
            return Ok(Self::of(spec, memory, shared, stop, thread));
        }
        let connected = switch
            .is_up(spec.port)
            .then(|| switch.way(spec.port).destination());
        let (memory, handover) = memory::make(switch, &spec, port)?;
        if let Some(to) = connected {
            switch.lead(spec.port, to);
        }
        if spec.pass {
            let state = switch.state(spec.port);
            state.flags.fetch_or(PORT_PASS, Release);
        }
        let started =
            attach(&memory, &handover).and_then(|ring| Self::start(switch, &spec, ring, netns));
        match started {
            Ok((shared, stop, thread)) => Ok(Self::of(spec, memory, shared, stop, thread)),
            Err(error) => {
                memory::unpin(&spec);
                if let Err(error) = switch.remove(&memory) {
                    tracing::error!(%error, "the port of a refused uplink stays");
                }
                Err(error)
            }
        }
    }

    fn of(
        spec: UplinkSpec,
        memory: InstanceMemory,
        shared: Arc<Shared>,
        stop: Arc<OwnedFd>,
        thread: JoinHandle<()>,
    ) -> Self {
        Uplink {
            spec,
            memory,
            shared,
            stop,
            thread: Some(thread),
        }
    }

    #[allow(clippy::type_complexity)]
    fn start(
        switch: &Switch,
        spec: &UplinkSpec,
        ring: Attached,
        netns: NetNs,
    ) -> Result<(Arc<Shared>, Arc<OwnedFd>, JoinHandle<()>), UplinkError> {
        let receiver = match spec.kind {
            Kind::Xdp => Some(Receiver::load(switch, spec.port)?),
            Kind::Tap => None,
        };
        let states = States::map_port(switch.map("nfl_ports")?.as_fd(), spec.port)?;
        let shared = Arc::new(Shared::new(spec.port, states)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(UplinkError::system("making an event descriptor"))?;
        let stop = Arc::new(stop);
        let (ready, is_ready) = channel();
        let (spec, shared_there, stop_there) =
            (spec.clone(), Arc::clone(&shared), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name(format!("uplink-{}", spec.interface))
            .spawn(move || {
                let work = netns.enter().and_then(|()| -> Result<Work, UplinkError> {
                    let (shared, stop) = (shared_there, stop_there);
                    if let Some(receiver) = receiver {
                        let worker = Worker::start(spec, netns, receiver, ring, shared, stop)?;
                        return Ok(Box::new(move || worker.run()));
                    }
                    let worker = TapWorker::start(spec, &netns, ring, shared, stop)?;
                    Ok(Box::new(move || worker.run()))
                });
                let (outcome, work) = match work {
                    Ok(work) => (Ok(()), Some(work)),
                    Err(error) => (Err(error), None),
                };
                let _nobody_waits = ready.send(outcome);
                if let Some(work) = work {
                    work();
                }
            })
            .map_err(UplinkError::system("starting the uplink's thread"))?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok((shared, stop, thread)),
            Ok(Err(error)) => {
                let _ended = thread.join();
                Err(error)
            }
            Err(_) => Err(SwitchError::Limit("the uplink's thread ended early".to_owned()).into()),
        }
    }

    /// As it was asked for.
    pub fn spec(&self) -> &UplinkSpec {
        &self.spec
    }

    /// The memory of its port.
    pub fn memory(&self) -> &InstanceMemory {
        &self.memory
    }

    /// State and counters.
    pub fn status(&self) -> UplinkStatus {
        self.shared.status()
    }

    /// Readable when the status has changed, until [`Uplink::has_changed`] is asked.
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }

    /// Whether the way in or out has changed since the last question.
    pub fn has_changed(&self) -> bool {
        rustix::io::read(&self.shared.changed, &mut [0u8; 8]).is_ok()
    }

    /// Has the NIC classify what `rules` match, in place of what it did before; none: nothing. The answer says what it
    /// does, and what is left to the classifier. What is asked for stays so when the interface vanishes and returns.
    ///
    /// # Errors
    /// [`UplinkError::NoSteering`] when it classifies nothing; everything is the classifier's then.
    pub fn steer(&self, rules: Vec<Rule>) -> Result<Steered, UplinkError> {
        if self.spec.kind == Kind::Tap {
            return Err(steering::refused(&self.spec.interface, "it is a tap"));
        }
        let (answer, answered) = channel();
        self.shared.leave_order(SteeringOrder { rules, answer });
        answered.recv_timeout(STEERING).unwrap_or_else(|_| {
            let why = "its driver takes longer than 10 s";
            Err(steering::refused(&self.spec.interface, why))
        })
    }

    /// Lets go of the interface: the program is detached, settings are put back, the record is
    /// removed; then removes the port from the switch.
    ///
    /// # Errors
    /// When the port cannot be removed. What goes wrong on the interface is logged.
    pub fn close(mut self, switch: &Switch) -> Result<(), UplinkError> {
        self.join(false);
        memory::unpin(&self.spec);
        switch.set_queues(self.spec.port, &[])?;
        switch.set_rules(self.spec.port, &[])?;
        Ok(switch.remove(&self.memory)?)
    }

    /// Ends the thread but leaves everything else in place: received frames still reach their
    /// ports, until the daemon's successor takes over by [`Uplink::open`].
    pub fn leave(mut self) {
        self.join(true);
    }

    fn join(&mut self, leave: bool) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.leave.store(leave, Release);
        self.shared.stop.store(true, Release);
        let _woken = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if thread.join().is_err() {
            tracing::error!(uplink = self.spec.name, "the uplink's thread has panicked");
        }
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.join(false);
    }
}

/// Removes an uplink whose process has ended: what its record in `state_dir` says is undone, its
/// port leaves the switch.
///
/// # Errors
/// When the port cannot be removed. What goes wrong on the interface is logged.
pub fn close_dead(switch: &Switch, spec: &UplinkSpec) -> Result<(), UplinkError> {
    if let Some(dir) = &spec.state_dir {
        clean_leftovers(dir, |name| name != spec.name);
    }
    memory::unpin(spec);
    switch.set_queues(spec.port, &[])?;
    switch.set_rules(spec.port, &[])?;
    Ok(switch.remove_ids(&[spec.pool], &[spec.port])?)
}

fn check(spec: &UplinkSpec) -> Result<(), UplinkError> {
    let name = &spec.interface;
    let is_plain = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b':';
    if !(1..=15).contains(&name.len()) || !name.bytes().all(is_plain) || name == "." || name == ".."
    {
        return Err(UplinkError::BadName(name.clone()));
    }
    if spec.port >= abi::PORTS_MAX || spec.pool >= abi::PORTS_MAX {
        return Err(SwitchError::Limit(format!(
            "uplink '{}': a platform has at most {} ports",
            spec.name,
            abi::PORTS_MAX
        ))
        .into());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(UplinkError::NotRoot(spec.name.clone()));
    }
    Ok(())
}

/// Ports have shorter names than uplinks may have.
fn port_name(name: &str) -> &str {
    let mut end = name.len().min(31);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Attaches to the uplink's own port, with descriptors of its own.
fn attach(memory: &InstanceMemory, handover: &Handover) -> Result<Attached, UplinkError> {
    let duplicate = |fd: BorrowedFd<'_>| {
        fd.try_clone_to_owned()
            .map_err(UplinkError::system("duplicating a descriptor"))
    };
    let owned: Vec<OwnedFd> = handover
        .fds()
        .into_iter()
        .map(duplicate)
        .collect::<Result<_, _>>()?;
    let numbers: Vec<_> = owned.into_iter().map(IntoRawFd::into_raw_fd).collect();
    let bells = Bells {
        own: -1,
        io: -1,
        peers: &[],
    };
    let table = memory.table(&numbers, &bells);
    Attached::from_table(&table).map_err(|error| SwitchError::Limit(error.to_string()).into())
}

/// Whether the interface of `spec` is where it says.
///
/// # Errors
/// [`UplinkError::NoNamespace`], [`UplinkError::NoInterface`] or [`UplinkError::Elsewhere`].
pub fn look(spec: &UplinkSpec) -> Result<(), UplinkError> {
    let netns = NetNs::open(spec.netns.as_deref())?;
    netns.within(|| connection::find(&Netlink::open()?, spec, &netns).map(|_| ()))
}

/// Whether the NIC of `spec` can classify.
///
/// # Errors
/// [`UplinkError::NoSteering`], and those of [`look`].
pub fn look_for_steering(spec: &UplinkSpec) -> Result<Steering, UplinkError> {
    let netns = NetNs::open(spec.netns.as_deref())?;
    netns.within(|| Steering::of(&spec.interface))
}

/// Undoes what a daemon that crashed has left on interfaces, by the records in `dir`, except for
/// uplinks that `keep` names: those will be opened again, and taken over. Returns the names of the
/// uplinks that were cleaned; what fails is logged and tried again next time.
pub fn clean_leftovers(dir: &Path, keep: impl Fn(&str) -> bool) -> Vec<String> {
    let mut cleaned = Vec::new();
    for record in state::all(dir) {
        let result = record.and_then(|record| {
            if keep(&record.name) {
                return Ok(());
            }
            record.undo()?;
            record.forget(dir)?;
            cleaned.push(record.name);
            Ok(())
        });
        if let Err(error) = result {
            tracing::warn!(%error, "leftovers of an uplink stay");
        }
    }
    cleaned
}
