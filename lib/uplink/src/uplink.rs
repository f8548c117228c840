//! An uplink: its port, its thread, and how it is opened and closed.

use crate::error::UplinkError;
use crate::memory;
use crate::receive::Receiver;
use crate::shared::{LevelsOrder, Shared, SteeringOrder};
use crate::spec::{Kind, Levels, UplinkSpec, UplinkStatus};
use crate::steering::Steered;
use crate::tap_worker::TapWorker;
use crate::worker::Worker;
use nfluid_netdev::features::is_hardware;
use nfluid_netdev::nic::no_steering;
use nfluid_netdev::{NetNs, Netlink};
use nfluid_ring::attach::Attached;
use nfluid_ring::layout::BLOCK_SLOTS;
use nfluid_ring::named_pipe;
use nfluid_switch::classifier::Rule;
use nfluid_switch::instance::{Doorbells, InstanceMemory, PortSpec};
use nfluid_switch::{Handover, LongSlots, Switch, SwitchError, abi};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The work of an uplink's thread until an order stops it.
type Work = Box<dyn FnOnce()>;

/// Longest time in which an order is carried out: a NIC takes a table of flow rules, for instance.
const ORDER: Duration = Duration::from_secs(10);
/// Slots in which a tap's thread reads frames that may be long: eight of the longest.
const TAP_LONG_SLOTS: u32 = 256;

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
        Self::open_checked(switch, spec.clone()).inspect_err(|_| spec.remove_tunnel())
    }

    fn open_checked(switch: &Switch, spec: UplinkSpec) -> Result<Self, UplinkError> {
        let netns = NetNs::open(spec.netns.as_deref())?;
        let (mac, hardware) = match spec.kind {
            Kind::Tap => (None, false),
            Kind::Xdp => netns.within(|| {
                let link = spec.find_link(&Netlink::open()?, &netns)?;
                Ok((link.mac, is_hardware(&spec.interface)))
            })?,
        };
        let port = PortSpec {
            long: long_slots(&spec),
            tx_slots: if hardware {
                SPARE_SLOTS
            } else {
                BLOCK_SLOTS as u32
            },
            pinned: false,
            learn: true,
            kernel_doorbell: true,
            ..PortSpec::new(
                spec.port,
                port_name(&spec.name),
                spec.mac.or(mac).unwrap_or_default(),
                spec.ring_slots,
            )
        };
        let taken_over = match &spec.pins {
            Some(pins) => InstanceMemory::take_over(switch, pins, spec.pool, &port)?,
            None => None,
        };
        if let Some((memory, handover)) = taken_over {
            // No other code knows the port's wires: whatever goes wrong, the wires stay.
            let ring = attach(&spec, &memory, &handover)?;
            let (shared, stop, thread) = Self::start(switch, &spec, ring, netns)?;
            return Ok(Self::of(spec, memory, shared, stop, thread));
        }
        let (memory, handover) = memory::make(switch, &spec, port)?;
        if spec.pass {
            switch.pass_unmatched(spec.port);
        }
        let started = attach(&spec, &memory, &handover)
            .and_then(|ring| Self::start(switch, &spec, ring, netns));
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
        // A namespace with a name may be made again under it, with other interfaces.
        let lasting = spec.netns.is_none().then(|| netns.inode());
        let receiver = match spec.kind {
            Kind::Xdp => {
                let netns = lasting.unwrap_or(0);
                Some(Receiver::load(switch, spec.port, spec.offloads, netns)?)
            }
            Kind::Tap => None,
        };
        let shared = Arc::new(Shared::new(switch.account(spec.port)?, lasting)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(UplinkError::system("making an event descriptor"))?;
        let stop = Arc::new(stop);
        let (ready, is_ready) = channel();
        let (spec, shared_there, stop_there) =
            (spec.clone(), Arc::clone(&shared), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name(format!("uplink-{}", spec.interface))
            .spawn(move || {
                let work = || -> Result<Work, UplinkError> {
                    netns.enter()?;
                    let (shared, stop) = (shared_there, stop_there);
                    if let Some(receiver) = receiver {
                        let worker = Worker::start(spec, netns, receiver, ring, shared, stop)?;
                        return Ok(Box::new(move || worker.run()));
                    }
                    let worker = TapWorker::start(spec, &netns, ring, shared, stop)?;
                    Ok(Box::new(move || worker.run()))
                };
                let (outcome, work) = match work() {
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

    /// Returns true if the receive or send path has changed since the last question.
    pub fn has_changed(&self) -> bool {
        rustix::io::read(&self.shared.changed, &mut [0u8; 8]).is_ok()
    }

    /// Has the NIC classify frames that `rules` match, in place of its former rules; without rules: no frames. The
    /// answer says which rules the NIC has, and which are left to the classifier. The requested rules stay requested
    /// when the interface vanishes and returns.
    ///
    /// # Errors
    /// [`NetdevError::NoSteering`](nfluid_netdev::NetdevError::NoSteering) when it classifies nothing; everything is the classifier's then.
    pub fn steer(&self, rules: Vec<Rule>) -> Result<Steered, UplinkError> {
        if self.spec.kind == Kind::Tap {
            return Err(no_steering(&self.spec.interface, "it is a tap").into());
        }
        let (answer, answered) = channel();
        let order = SteeringOrder { rules, answer };
        self.shared
            .leave_order(|orders| orders.steering = Some(order));
        answered.recv_timeout(ORDER).unwrap_or_else(|_| {
            let why = "its driver takes longer than 10 s";
            Err(no_steering(&self.spec.interface, why).into())
        })
    }

    /// Changes what frames may have left to be done that come in, and that go out. Nothing is lost that the interface and
    /// the ports behind it can take. The levels stay when the interface vanishes and returns.
    ///
    /// # Errors
    /// When the uplink takes no other levels, or the interface refuses.
    pub fn set_levels(&self, levels: Levels) -> Result<(), UplinkError> {
        if levels != Levels::default() && !self.spec.offloads {
            let why = format!("uplink '{}' takes plain frames alone", self.spec.name);
            return Err(SwitchError::Limit(why).into());
        }
        let (answer, answered) = channel();
        let order = LevelsOrder { levels, answer };
        self.shared
            .leave_order(|orders| orders.levels = Some(order));
        answered.recv_timeout(ORDER).unwrap_or_else(|_| {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            Err(UplinkError::system("changing the levels of an uplink")(
                late,
            ))
        })
    }

    /// Lets go of the interface: the program is detached, settings are put back, the record is
    /// removed; then removes the port from the switch.
    ///
    /// # Errors
    /// When the port cannot be removed. Failures on the interface are logged.
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

/// Slots of the uplink's port for long frames. Only the thread of a tap makes such frames.
fn long_slots(spec: &UplinkSpec) -> LongSlots {
    let makes = spec.kind == Kind::Tap && spec.long_slots > 0;
    LongSlots {
        rx: spec.long_slots,
        tx: if makes { TAP_LONG_SLOTS } else { 0 },
    }
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
fn attach(
    spec: &UplinkSpec,
    memory: &InstanceMemory,
    handover: &Handover,
) -> Result<Attached, UplinkError> {
    let bell = spec.doorbell.as_deref().map(open_doorbell).transpose()?;
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
    let doorbells = Doorbells {
        own: bell.map_or(-1, IntoRawFd::into_raw_fd),
        io: -1,
        peers: &[],
    };
    let table = memory.table(&numbers, &doorbells);
    Attached::from_table(&table).map_err(|error| SwitchError::Limit(error.to_string()).into())
}

/// Opens the named pipe by which senders wake the uplink's thread.
fn open_doorbell(path: &Path) -> Result<OwnedFd, UplinkError> {
    let opened = named_pipe::make(path).and_then(|()| named_pipe::open_both(path));
    opened.map_err(UplinkError::system(format!(
        "opening the doorbell {}",
        path.display()
    )))
}
