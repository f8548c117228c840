//! The thread of a tap uplink: frames that a kernel stack sends to the tap are put into TX slots of the uplink's port
//! and switched in this thread's context; frames that arrive in the port are written to the tap. The port is an
//! ordinary port, so it can be on a link or a switch, but not have rules. A `struct virtio_net_hdr` before each frame says
//! what is still to be done to it.

use crate::error::UplinkError;
use crate::shared::Shared;
use crate::spec::{Levels, TransmitPath, UplinkPath, UplinkSpec};
use crate::state::Record;
use crate::worker::prefer_this_thread;
use nfluid_netdev::offload::Undone;
use nfluid_netdev::{Link, NetNs, Netlink, ReceivePath, tap};
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::offload::VNET_BYTES;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_ring::{Level, Offload};
use nfluid_switch::DropReason;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, readv, writev};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread;
use std::time::Duration;

/// Frames in each direction before the other one's turn.
const BATCH: usize = 64;
/// Between two attempts to make the tap again.
const RETRY: Duration = Duration::from_millis(250);

/// The thread's state.
pub struct TapWorker {
    spec: UplinkSpec,
    ring: Attached,
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    tap: OwnedFd,
    record: Record,
    levels: Levels,
    levels_why: String,
    /// Readable when the tap is, or on an order.
    events: OwnedFd,
    /// The tap has been removed under our feet.
    gone: bool,
}

impl TapWorker {
    /// Makes the tap, in the calling thread's namespace, which is `netns`.
    ///
    /// # Errors
    /// See [`UplinkError`].
    pub fn start(
        spec: UplinkSpec,
        netns: &NetNs,
        ring: Attached,
        shared: Arc<Shared>,
        stop: Arc<OwnedFd>,
    ) -> Result<Self, UplinkError> {
        let before = match &spec.state_dir {
            Some(dir) => Record::find(dir, &spec.name)?,
            None => None,
        };
        let levels = before.as_ref().map_or(spec.levels, |record| record.levels);
        let (tap, record) = make(&spec, netns, before.as_ref())?;
        let events = watch(&tap, &stop, &shared)?;
        let mut worker = TapWorker {
            spec,
            ring,
            shared,
            stop,
            tap,
            record,
            levels,
            levels_why: String::new(),
            events,
            gone: false,
        };
        worker.set_levels(levels).or_else(|error| {
            tracing::warn!(uplink = worker.spec.name, %error, "it begins with plain frames");
            worker.set_levels(Levels::default())
        })?;
        Ok(worker)
    }

    /// Changes the levels. The port takes all that the way in and the tap take.
    fn set_levels(&mut self, levels: Levels) -> Result<(), UplinkError> {
        self.shared.set_level(levels.take);
        let udp = true;
        let undone = match levels.enter {
            Level::Plain => Undone::Nothing,
            Level::Checksums => Undone::Checksums,
            Level::Super => Undone::Segments { udp },
        };
        let now = tap::leave_undone(&self.tap, undone)?;
        self.levels_why = match now == undone {
            true => String::new(),
            false => "UDP is cut into packets before it comes in: before Linux 6.2".to_owned(),
        };
        self.levels = levels;
        self.record.levels = levels;
        if let Some(dir) = &self.spec.state_dir {
            self.record.keep(dir)?;
        }
        self.report_path()
    }

    /// Carries out the order that was left, if there is one.
    fn obey(&mut self) {
        if let Some(order) = self.shared.take_orders().levels {
            let _heard = order.answer.send(self.set_levels(order.levels));
        }
    }

    fn report_path(&self) -> Result<(), UplinkError> {
        let link = Netlink::open()?.link(&self.spec.interface)?;
        let link = link.unwrap_or_default();
        self.shared.set_path(Some(UplinkPath {
            receive: ReceivePath::Tap,
            receive_why: String::new(),
            transmit: TransmitPath::Tap,
            transmit_why: String::new(),
            index: link.index,
            mtu: link.mtu,
            mac: link.mac,
            levels: self.levels,
            levels_why: self.levels_why.clone(),
        }));
        tracing::info!(
            uplink = self.spec.name,
            interface = self.spec.interface,
            "tap uplink is connected"
        );
        Ok(())
    }

    /// Runs until an order stops the thread.
    pub fn run(mut self) {
        prefer_this_thread();
        while !self.shared.stop.load(Acquire) {
            let moved = self.send_in() + self.take_out();
            if self.gone {
                self.remake();
            } else if moved == 0 {
                self.wait();
            }
            if self.shared.is_ordered.load(Acquire) {
                self.obey();
            }
        }
        self.end();
    }

    /// Moves frames from the tap into the switch.
    fn send_in(&mut self) -> usize {
        let port = &mut self.ring.ports[0];
        let mut moved = Moved::default();
        while moved.all() < BATCH && port.can_queue() {
            match read_frame(&self.tap, port) {
                Read::Queued => moved.queued += 1,
                Read::TooLong => moved.too_long += 1,
                Read::BadOffload => moved.bad_offload += 1,
                Read::NoRoom | Read::Nothing => break,
                Read::Gone => {
                    self.gone = true;
                    break;
                }
            }
        }
        for (reason, frames) in [
            (DropReason::BadLength, moved.too_long),
            (DropReason::BadOffload, moved.bad_offload),
        ] {
            if frames > 0 {
                self.shared.count(reason, frames as u64);
                self.shared.entered(frames as u64);
            }
        }
        // The switch counts drops; a port that is down loses the frames that it sends.
        if moved.queued > 0 && port.flush(WhenFull::Drop).is_err() {
            self.shared.entered(moved.queued as u64);
            self.shared.count(DropReason::PortDown, moved.queued as u64);
        }
        moved.all()
    }

    /// From the port to the tap.
    fn take_out(&mut self) -> usize {
        let (tap, shared) = (&self.tap, &self.shared);
        let mut gone = false;
        let count = self.ring.ports[0].receive_offload(BATCH, |frame, offload| {
            let header = offload.to_kernel();
            match writev(tap, &[IoSlice::new(&header), IoSlice::new(frame)]) {
                Ok(_) => {
                    shared.sent_frames.fetch_add(1, Relaxed);
                    shared.sent_bytes.fetch_add(frame.len() as u64, Relaxed);
                }
                Err(error) => {
                    gone |= matches!(error, Errno::BADFD | Errno::NODEV);
                    shared.refuse(1);
                }
            }
        });
        self.shared.kicks.fetch_add(count as u64, Relaxed);
        self.gone |= gone;
        count
    }

    fn wait(&mut self) {
        let ports = &mut self.ring.ports;
        if let Err(error) = self.ring.doorbell.wait(ports, Some(&self.events), AGEING) {
            tracing::error!(uplink = self.spec.name, %error, "waiting for frames");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes the tap again after another process has removed it.
    fn remake(&mut self) {
        self.shared.set_path(None);
        self.shared.vanished.fetch_add(1, Relaxed);
        tracing::warn!(
            uplink = self.spec.name,
            interface = self.spec.interface,
            "the tap has been removed; making it again"
        );
        let again = NetNs::open(None)
            .map_err(UplinkError::from)
            .and_then(|netns| make(&self.spec, &netns, None))
            .and_then(|(tap, record)| Ok((watch(&tap, &self.stop, &self.shared)?, tap, record)));
        match again {
            Ok((events, tap, record)) => {
                self.events = events;
                self.tap = tap;
                self.record = record;
                self.gone = false;
                self.shared.has_returned();
                if let Err(error) = self.set_levels(self.levels) {
                    tracing::warn!(uplink = self.spec.name, %error);
                }
            }
            Err(error) => {
                tracing::warn!(uplink = self.spec.name, %error);
                thread::sleep(RETRY);
            }
        }
    }

    fn end(self) {
        self.shared.set_path(None);
        if self.shared.leave.load(Acquire) {
            return;
        }
        drop((self.tap, self.events));
        let undone = self.record.undo_here();
        let forgotten = self
            .spec
            .state_dir
            .as_ref()
            .map_or(Ok(()), |dir| self.record.forget(dir));
        if let Err(error) = undone.and(forgotten) {
            tracing::error!(uplink = self.spec.name, %error, "the tap stays");
        }
    }
}

/// Makes or opens the tap, gives it its address, brings it up.
fn make(
    spec: &UplinkSpec,
    netns: &NetNs,
    before: Option<&Record>,
) -> Result<(OwnedFd, Record), UplinkError> {
    let netlink = Netlink::open()?;
    let existing = netlink.link(&spec.interface)?;
    if let Some(link) = existing.as_ref().filter(|link| !is_tap(link)) {
        return Err(UplinkError::NoTap {
            interface: link.name.clone(),
            namespace: netns.to_string(),
            kind: link.kind.clone().unwrap_or_else(|| "hardware".to_owned()),
        });
    }
    let tap = tap::open_tap(&spec.interface)?;
    let link = netlink.link(&spec.interface)?.ok_or_else(|| {
        UplinkError::system("looking for the tap just made")(std::io::Error::from(
            std::io::ErrorKind::NotFound,
        ))
    })?;
    let ours = before.filter(|record| record.index == link.index);
    let mut record = ours.cloned().unwrap_or_else(|| Record {
        name: spec.name.clone(),
        interface: spec.interface.clone(),
        netns: spec.netns.clone(),
        index: link.index,
        made_tap: existing.is_none(),
        was_down: !link.up,
        ..Record::default()
    });
    if spec.mac.is_some() && spec.mac != link.mac {
        record.mac_before = record.mac_before.or(link.mac);
    }
    if let Some(dir) = &spec.state_dir {
        record.keep(dir)?;
    }
    if let Some(mac) = spec.mac.filter(|mac| link.mac != Some(*mac)) {
        netlink.set_mac(link.index, mac)?;
    }
    if !link.up {
        netlink.set_up(link.index, true)?;
    }
    Ok((tap, record))
}

fn is_tap(link: &Link) -> bool {
    link.kind.as_deref() == Some("tun") && link.mac.is_some()
}

/// Frames that were read, by what has become of them.
#[derive(Default)]
struct Moved {
    queued: usize,
    too_long: usize,
    bad_offload: usize,
}

impl Moved {
    fn all(&self) -> usize {
        self.queued + self.too_long + self.bad_offload
    }
}

/// The result of reading a frame from the tap.
enum Read {
    /// It is in the TX ring.
    Queued,
    /// It has more bytes than there is room for.
    TooLong,
    /// The kernel says of it what no frame can have.
    BadOffload,
    /// No slots are free.
    NoRoom,
    /// No frame waits.
    Nothing,
    /// The tap has been removed.
    Gone,
}

/// Reads a frame into slots of the port. The buffer has one byte more than a frame may have, which reveals longer frames.
fn read_frame(tap: &OwnedFd, port: &mut Port) -> Read {
    let mut read = Read::NoRoom;
    let mut fill = |slots: &mut [u8]| {
        let (mut header, mut beyond) = ([0; VNET_BYTES], [0u8; 1]);
        let room = slots.len();
        let mut parts = [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(slots),
            IoSliceMut::new(&mut beyond),
        ];
        let len = match readv(tap, &mut parts) {
            Ok(bytes) => bytes.saturating_sub(VNET_BYTES),
            Err(error) => {
                let is_gone = matches!(error, Errno::BADFD | Errno::NODEV);
                read = if is_gone { Read::Gone } else { Read::Nothing };
                return (0, Offload::NONE);
            }
        };
        if len > room {
            read = Read::TooLong;
            return (0, Offload::NONE);
        }
        match Offload::from_kernel(header, &slots[..len]) {
            Ok(offload) => {
                read = Read::Queued;
                (len, offload)
            }
            Err(_) => {
                read = Read::BadOffload;
                (0, Offload::NONE)
            }
        }
    };
    if port.entry().tx_long_slots > 0 {
        port.send_long(fill);
    } else {
        // Nothing is left to be done to frames of such a tap.
        port.send(|slot| fill(slot).0);
    }
    read
}

/// A descriptor that is readable when one of them is.
fn watch(tap: &OwnedFd, stop: &OwnedFd, shared: &Shared) -> Result<OwnedFd, UplinkError> {
    let what = || UplinkError::system("watching for events");
    let events = epoll::create(CreateFlags::CLOEXEC).map_err(what())?;
    for fd in [tap, stop, &shared.ordered] {
        epoll::add(&events, fd, EventData::new_u64(0), EventFlags::IN).map_err(what())?;
    }
    Ok(events)
}
