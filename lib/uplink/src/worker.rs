//! The thread of an uplink: sends what arrives in the port, and keeps hold of the interface.
//!
//! The thread lives in the interface's namespace. The thread blocks on the port's doorbell, on announcements of
//! changed interfaces and on the order to stop; it polls only as long as polling pays (doorbell) or while frames are
//! on their way out.

mod orders;

use crate::connection::{Connection, Means};
use crate::error::UplinkError;
use crate::outlet::{Slots, discard};
use crate::receive::Receiver;
use crate::shared::Shared;
use crate::spec::{Levels, UplinkSpec};
use crate::state::Record;
use crate::steering::Steered;
use nfluid_netdev::{Monitor, NetNs, NetdevError, Netlink};
use nfluid_ring::Level;
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_switch::classifier::Rule;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

/// Sleep while frames are on their way out: their confirmations ring no doorbell.
const CONFIRMATION: Duration = Duration::from_millis(1);
/// Priority of the uplinks' threads, on the scale of nice(1).
pub const NICE: i32 = -15;
/// Between two looks at a missing interface, or at one that refused.
const RETRY: Duration = Duration::from_millis(250);
/// Between two looks at the interface under load, when the doorbell is never waited for.
const LOOK: Duration = Duration::from_millis(200);

/// The daemon's own namespace, whatever this thread's is.
const DAEMONS: &str = "/proc/self/ns/net";

/// The thread's state.
pub struct Worker {
    spec: UplinkSpec,
    netns: NetNs,
    netlink: Netlink,
    monitor: Monitor,
    receiver: Receiver,
    ring: Attached,
    slots: Slots,
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// Record of the last hold on the interface, while the worker has none.
    last: Option<Record>,
    levels: Levels,
    /// Readable on news or on the request to stop.
    events: OwnedFd,
    stop: Arc<OwnedFd>,
    next_look: Instant,
    last_error: String,
    /// The rules that the NIC is to classify by.
    wanted: Vec<Rule>,
    /// Queues that become a port's own, and when.
    drained: Option<(Instant, Steered)>,
}

impl Worker {
    /// Takes hold of the interface, in the calling thread's namespace, which is `netns`.
    ///
    /// # Errors
    /// See [`UplinkError`].
    pub fn start(
        spec: UplinkSpec,
        netns: NetNs,
        receiver: Receiver,
        ring: Attached,
        shared: Arc<Shared>,
        stop: Arc<OwnedFd>,
    ) -> Result<Self, UplinkError> {
        let netlink = Netlink::open()?;
        let monitor = Monitor::of_links()?;
        let events = watch(&monitor, &stop, &shared)?;
        let port = &ring.ports[0];
        let entry = port.entry();
        let slots = Slots {
            pool: Arc::clone(port.pool()),
            first: entry.rx_base,
            count: entry.ring_slots,
            spare: entry.tx_base..entry.tx_base + entry.tx_slots,
        };
        let before = match &spec.state_dir {
            Some(dir) => Record::find(dir, &spec.name)?,
            None => None,
        };
        let levels = before.as_ref().map_or(spec.levels, |record| record.levels);
        let mut worker = Worker {
            levels,
            spec,
            netns,
            netlink,
            monitor,
            receiver,
            ring,
            slots,
            shared,
            connection: None,
            last: before,
            events,
            stop,
            next_look: Instant::now() + LOOK,
            last_error: String::new(),
            wanted: Vec::new(),
            drained: None,
        };
        worker.connect()?;
        Ok(worker)
    }

    fn means(&self) -> Means<'_> {
        Means {
            netlink: &self.netlink,
            spec: &self.spec,
            receiver: &self.receiver,
            slots: &self.slots,
            shared: &self.shared,
        }
    }

    fn connect(&mut self) -> Result<(), UplinkError> {
        let make = |levels| {
            let port = &self.ring.ports[0];
            let link = self.spec.find_link(&self.netlink, &self.netns)?;
            Connection::make(self.means(), link, port, self.last.as_ref(), levels)
        };
        let connection = make(self.levels).or_else(|error| match self.levels.take {
            Level::Plain => Err(error),
            // An interface that takes plain frames alone is better than none.
            _ => {
                tracing::warn!(uplink = self.spec.name, %error, "it begins with plain frames");
                make(Levels::default()).map_err(|_the_same| error)
            }
        })?;
        self.shared.set_path(Some(connection.path()));
        self.connection = Some(connection);
        self.last_error.clear();
        if !self.wanted.is_empty()
            && let Err(error) = self.steer()
        {
            self.complain(&error);
        }
        Ok(())
    }

    /// Runs until an order stops the thread.
    pub fn run(mut self) {
        prefer_this_thread();
        while !self.shared.stop.load(Acquire) {
            if self.pump() == 0 {
                self.wait();
            }
            if Instant::now() >= self.next_look {
                self.look();
            }
            self.enter_queues();
        }
        self.end();
    }

    /// Moves frames; 0 if there were none.
    fn pump(&mut self) -> usize {
        let port = &mut self.ring.ports[0];
        match &mut self.connection {
            Some(connection) => connection.outlet.pump(port, &self.shared),
            None => discard(port, &self.shared),
        }
    }

    fn wait(&mut self) {
        let in_flight = self
            .connection
            .as_ref()
            .is_some_and(|c| c.outlet.is_waiting());
        let timeout = match (&self.connection, in_flight) {
            (Some(_), true) => CONFIRMATION,
            (Some(_), false) if self.drained.is_some() => CONFIRMATION,
            (Some(_), false) => AGEING,
            (None, _) => RETRY,
        };
        let woken = self
            .ring
            .doorbell
            .wait(&mut self.ring.ports, Some(&self.events), timeout);
        match woken {
            Ok(nfluid_ring::doorbell::Woken::Other) => self.look(),
            Ok(_) => {}
            Err(error) => {
                tracing::error!(uplink = self.spec.name, %error, "waiting for frames");
                std::thread::sleep(CONFIRMATION);
            }
        }
    }

    /// Looks at the interface: gone, back, changed, stuck?
    fn look(&mut self) {
        self.next_look = Instant::now() + LOOK;
        self.monitor.drain();
        self.obey();
        if self.connection.is_some() && !self.is_at_home() {
            self.leave_namespace();
            return;
        }
        match &mut self.connection {
            Some(connection) => {
                let stuck = connection.outlet.is_stuck();
                match connection.is_valid(&self.netlink, &self.spec) {
                    Ok(true) if stuck => {
                        self.renew_outlet("the interface has stopped to confirm frames")
                    }
                    Ok(true) if !connection.outlet.set_mtu(connection.link.mtu) => {
                        self.renew_outlet("frames of the interface's MTU are longer than a slot");
                    }
                    Ok(true) => self.shared.set_path(Some(connection.path())),
                    Ok(false) => self.lose(),
                    Err(error) => self.complain(&error),
                }
            }
            None => self.try_again(),
        }
    }

    /// The interface is not there any more, or is another one, or has lost our program.
    fn lose(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        tracing::warn!(
            uplink = self.spec.name,
            interface = self.spec.interface,
            "the interface is gone; waiting for it to return"
        );
        self.forget_queues();
        self.shared.vanished.fetch_add(1, Relaxed);
        self.shared.set_path(None);
        // Another interface may be taken in another form: it would not come to what is on this one.
        let is_given_back = connection.give_back_renamed(&self.netlink, &self.spec);
        self.last = (!is_given_back).then(|| connection.record().clone());
        let port = &mut self.ring.ports[0];
        connection.outlet.abandon(port, &self.shared);
        self.try_again();
    }

    /// The namespace has lost its name; the interface in it may still be there.
    fn leave_namespace(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        tracing::warn!(
            uplink = self.spec.name,
            namespace = %self.netns,
            "the namespace is gone; waiting for it to return"
        );
        self.forget_queues();
        self.shared.vanished.fetch_add(1, Relaxed);
        self.shared.set_path(None);
        self.last = None;
        let outlet = connection.close(&self.spec);
        outlet.abandon(&mut self.ring.ports[0], &self.shared);
        self.try_again();
    }

    /// The way out does not do any more: another socket.
    fn renew_outlet(&mut self, why: &str) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        tracing::warn!(
            uplink = self.spec.name,
            interface = self.spec.interface,
            "{why}; opening a new socket"
        );
        self.last = Some(connection.record().clone());
        let port = &mut self.ring.ports[0];
        connection.outlet.abandon(port, &self.shared);
        if let Err(error) = self.connect() {
            self.shared.set_path(None);
            self.complain(&error);
        }
    }

    fn try_again(&mut self) {
        let connected = self.follow_namespace().and_then(|()| self.connect());
        match connected {
            Ok(()) => {
                tracing::info!(
                    uplink = self.spec.name,
                    interface = self.spec.interface,
                    "the interface is back"
                );
                self.shared.has_returned();
            }
            Err(error) => self.complain(&error),
        }
    }

    /// Returns true if the thread is in the namespace that the path names now. The namespace may have been removed,
    /// and made again. This thread must not keep a removed namespace alive, nor the interfaces in it.
    fn is_at_home(&self) -> bool {
        let now = self.netns_named();
        now.is_none_or(|now| now.is_ok_and(|now| now.id() == self.netns.id()))
    }

    /// The namespace that the path names now; `None`: the uplink has no path.
    fn netns_named(&self) -> Option<Result<NetNs, NetdevError>> {
        self.spec
            .netns
            .as_deref()
            .map(|path| NetNs::open(Some(path)))
    }

    /// Moves to the namespace that the path names now, or out of the one that is gone.
    fn follow_namespace(&mut self) -> Result<(), UplinkError> {
        let (next, missing) = match self.netns_named() {
            None => return Ok(()),
            Some(Ok(next)) => (next, None),
            Some(Err(error)) => (NetNs::open(Some(Path::new(DAEMONS)))?, Some(error)),
        };
        if next.id() != self.netns.id() {
            next.enter()?;
            self.monitor = Monitor::of_links()?;
            self.events = watch(&self.monitor, &self.stop, &self.shared)?;
            self.netlink = Netlink::open()?;
            self.netns = next;
        }
        missing.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Logs an error once, not four times a second.
    fn complain(&mut self, error: &UplinkError) {
        let text = error.to_string();
        if text != self.last_error {
            tracing::warn!(
                uplink = self.spec.name,
                interface = self.spec.interface,
                error = text
            );
            self.last_error = text;
        }
    }

    fn end(mut self) {
        let Some(connection) = self.connection.take() else {
            self.spec.remove_tunnel();
            // The interface may come back when no uplink is there to clean it: no program is on it then.
            let forgotten = match (&self.last, &self.spec.state_dir) {
                (Some(record), Some(dir)) => record.forget(dir),
                _ => Ok(()),
            };
            if let Err(error) = forgotten {
                tracing::warn!(uplink = self.spec.name, %error);
            }
            return;
        };
        let leave = self.shared.leave.load(Acquire);
        let outlet = if leave {
            let mut outlet = connection.outlet;
            outlet.await_confirmations(&self.shared);
            outlet
        } else {
            if let Err(error) = self.receiver.queues().clear() {
                tracing::warn!(uplink = self.spec.name, %error);
            }
            connection.close(&self.spec)
        };
        outlet.abandon(&mut self.ring.ports[0], &self.shared);
        self.shared.set_path(None);
    }
}

/// Lets the calling thread run before ordinary threads that are ready: while it waits for a CPU that NFs share, its
/// ring overflows, and all NFs lose frames. The thread runs only as long as there are frames, and each frame costs it
/// less CPU time than any NF spends on the frame.
pub fn prefer_this_thread() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "the uplink's thread has no priority");
    }
}

/// A descriptor that is readable when one of them is.
fn watch(monitor: &Monitor, stop: &OwnedFd, shared: &Shared) -> Result<OwnedFd, UplinkError> {
    let what = || UplinkError::system("watching for events");
    let events = epoll::create(CreateFlags::CLOEXEC).map_err(what())?;
    for fd in [monitor.as_fd(), stop.as_fd(), shared.ordered.as_fd()] {
        epoll::add(&events, fd, EventData::new_u64(0), EventFlags::IN).map_err(what())?;
    }
    Ok(events)
}
