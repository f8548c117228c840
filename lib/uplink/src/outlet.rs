//! The way out of an interface, and the books of the slots that are on it.
//!
//! Slots go back to the switch in the order of the ring, and only after the interface has said
//! that it is done with them. A frame that is longer than the interface takes is never handed to
//! it: no completion would come.

use crate::error::UplinkError;
use crate::packet::PacketSocket;
use crate::shared::Shared;
use crate::spec::{Transmit, TransmitPath};
use crate::xsk::{Copying, Xsk};
use nfluid_netdev::{Link, XdpHook};
use nfluid_ring::Offload;
use nfluid_ring::layout::FRAME_MAX;
use nfluid_ring::memory::Pool;
use nfluid_ring::port::{Port, TakenSlot};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

/// Frames between two looks at the completions.
const BATCH: usize = 64;
/// A completion that has not come after this time never will.
const COMPLETION_MAX: Duration = Duration::from_secs(2);
/// Longest time for which an uplink that is left waits for the last confirmations.
const CONFIRMATIONS_WAIT: Duration = Duration::from_millis(100);
/// Between two looks for them.
const CONFIRMATION: Duration = Duration::from_millis(1);
/// Ethernet header.
const HEADER: u32 = 14;
/// A VLAN tag: interfaces take that much more than their MTU.
const TAG: u32 = 4;

/// The kind of way out that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The fastest for frames as they are on a wire, behind this hook.
    Plain(XdpHook, Transmit),
    /// One for frames to which something is still to be done.
    Offloads,
}

/// A socket on the interface.
#[derive(Debug)]
pub enum Socket {
    /// AF_XDP.
    Xsk(Xsk),
    /// AF_PACKET.
    Packet(PacketSocket),
}

/// The slots of an uplink that its interface may read.
#[derive(Clone, Debug)]
pub struct Slots {
    /// The pool.
    pub pool: Arc<Pool>,
    /// First slot of the receive ring.
    pub first: u32,
    /// Slots of the ring.
    pub count: u32,
    /// Slots for the driver to receive into, in zero-copy mode.
    pub spare: std::ops::Range<u32>,
}

/// The way out.
#[derive(Debug)]
pub struct Outlet {
    socket: Socket,
    slots: Slots,
    mtu: u32,
    why: String,
    /// True for ring indices whose frame is on its way.
    busy: Vec<bool>,
    /// Number of frames on their way.
    in_flight: u32,
    /// Positions before this one have been released.
    released: u32,
    last_progress: Instant,
}

impl Outlet {
    /// Opens a way out of `link`: AF_XDP in zero-copy mode behind a native hook of real hardware,
    /// else AF_XDP in copy mode, else AF_PACKET. Behind the generic hook zero-copy is not tried: it
    /// would take the queue's frames away from the generic hook. Frames that are longer than a slot, and those to which
    /// something is still to be done, go by AF_PACKET.
    ///
    /// # Errors
    /// When not even AF_PACKET can be had.
    pub fn open(
        link: &Link,
        wanted: Wanted,
        slots: Slots,
        port: &Port,
    ) -> Result<Self, UplinkError> {
        let (socket, why) = match wanted {
            Wanted::Plain(hook, transmit) => open_socket(link, hook, transmit, &slots)?,
            Wanted::Offloads => {
                let why = "AF_XDP takes no super-frames";
                let packet = PacketSocket::open_for_offloads(link.index)?;
                (Socket::Packet(packet), why.to_owned())
            }
        };
        Ok(Outlet {
            socket,
            busy: vec![false; slots.count as usize],
            slots,
            mtu: link.mtu,
            why,
            in_flight: 0,
            released: port.taken(),
            last_progress: Instant::now(),
        })
    }

    /// Which way it is.
    pub fn path(&self) -> TransmitPath {
        match &self.socket {
            Socket::Xsk(xsk) if xsk.copying() == Copying::Zero => TransmitPath::XdpZeroCopy,
            Socket::Xsk(_) => TransmitPath::XdpCopy,
            Socket::Packet(packet) if packet.takes_offloads() => TransmitPath::PacketOffloads,
            Socket::Packet(_) => TransmitPath::Packet,
        }
    }

    /// Returns the reason for which no faster outlet is used.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Takes note of the interface's MTU. Returns false if frames of that length need another way out.
    pub fn set_mtu(&mut self, mtu: u32) -> bool {
        self.mtu = mtu;
        matches!(self.socket, Socket::Packet(_)) || !is_jumbo(mtu)
    }

    /// Are frames on their way?
    pub fn is_waiting(&self) -> bool {
        self.in_flight > 0
    }

    /// Has the interface stopped to confirm frames?
    pub fn is_stuck(&self) -> bool {
        self.in_flight > 0 && self.last_progress.elapsed() > COMPLETION_MAX
    }

    /// Sends frames that wait in `port`, and releases frames that have been sent. Returns the number of frames taken
    /// or confirmed: 0 means that there is nothing to do now.
    pub fn pump(&mut self, port: &mut Port, shared: &Shared) -> usize {
        let moved = match self.socket {
            Socket::Xsk(_) => self.pump_xsk(port, shared),
            Socket::Packet(_) => self.pump_packet(port, shared),
        };
        self.release(port);
        moved
    }

    fn pump_xsk(&mut self, port: &mut Port, shared: &Shared) -> usize {
        let Socket::Xsk(xsk) = &mut self.socket else {
            return 0;
        };
        let mut taken = 0;
        while taken < BATCH {
            let Some(frame) = port.take_slot() else { break };
            taken += 1;
            // A long frame is of another MTU, or of a sender that does not know the MTU. Work that is left undone is of a
            // sender that began before the level was lowered.
            let is_done = port.taken_offload(&frame).is_none();
            let is_short = u32::from(frame.len) <= self.mtu + HEADER;
            let fits = is_short
                || port
                    .taken_frame(&frame)
                    .is_some_and(|bytes| takes(self.mtu, bytes.len(), bytes));
            if frame.slots > 1 || !is_done || !fits {
                shared.refuse(1);
                continue;
            }
            if self.in_flight == 0 {
                self.last_progress = Instant::now();
            }
            let index = (frame.slot - self.slots.first) as usize;
            self.busy[index] = true;
            self.in_flight += 1;
            shared.sent_bytes.fetch_add(u64::from(frame.len), Relaxed);
            xsk.queue(frame.slot, frame.len);
        }
        match xsk.kick() {
            Ok(calls) => {
                shared.kicks.fetch_add(calls, Relaxed);
            }
            Err(error) => {
                tracing::trace!(%error, "the interface takes no frames at the moment");
            }
        }
        taken + self.reap(shared)
    }

    /// Takes note of the frames that the interface has confirmed; how many.
    fn reap(&mut self, shared: &Shared) -> usize {
        let Socket::Xsk(xsk) = &mut self.socket else {
            return 0;
        };
        let mut confirmed = 0u32;
        let (busy, slots) = (&mut self.busy, &self.slots);
        xsk.reap(|slot| {
            let index = slot.wrapping_sub(slots.first) as usize;
            if let Some(busy) = busy.get_mut(index).filter(|busy| **busy) {
                *busy = false;
                confirmed += 1;
            }
        });
        if confirmed > 0 {
            self.in_flight -= confirmed;
            self.last_progress = Instant::now();
            shared.sent_frames.fetch_add(u64::from(confirmed), Relaxed);
        }
        confirmed as usize
    }

    /// Waits for a short time until the frames in transit have been confirmed.
    pub fn await_confirmations(&mut self, shared: &Shared) {
        let start = Instant::now();
        while self.is_waiting() && start.elapsed() < CONFIRMATIONS_WAIT {
            if self.reap(shared) == 0 {
                thread::sleep(CONFIRMATION);
            }
        }
    }

    fn pump_packet(&mut self, port: &mut Port, shared: &Shared) -> usize {
        let Socket::Packet(packet) = &self.socket else {
            return 0;
        };
        let mut taken: Vec<TakenSlot> = Vec::with_capacity(BATCH);
        while taken.len() < BATCH {
            let Some(frame) = port.take_slot() else { break };
            taken.push(frame);
        }
        let count = taken.len();
        let can_be_done = |offload: Offload| packet.takes_offloads() || offload.is_none();
        let frames: Vec<(&[u8], Offload)> = taken
            .iter()
            .filter_map(|frame| Some((port.taken_frame(frame)?, port.taken_offload(frame))))
            .filter(|(frame, offload)| can_be_done(*offload) && fits(frame, *offload, self.mtu))
            .collect();
        shared.refuse((count - frames.len()) as u64);
        let mut rest = &frames[..];
        while !rest.is_empty() {
            shared.kicks.fetch_add(1, Relaxed);
            let sent = packet.send(rest).unwrap_or(0);
            let bytes: usize = rest[..sent].iter().map(|(frame, _)| frame.len()).sum();
            shared.sent_frames.fetch_add(sent as u64, Relaxed);
            shared.sent_bytes.fetch_add(bytes as u64, Relaxed);
            rest = &rest[sent..];
            if let (0, [_refused, others @ ..]) = (sent, rest) {
                // A full interface drops, as any full receiver does.
                shared.refuse(1);
                rest = others;
            }
        }
        count
    }

    /// Gives back the slots in front that are not on their way.
    fn release(&mut self, port: &mut Port) {
        let mask = self.slots.count - 1;
        let end = port.taken();
        while self.released != end && !self.busy[(self.released & mask) as usize] {
            self.released = self.released.wrapping_add(1);
        }
        port.release_to(self.released);
    }

    /// Ends this way out: frames that were never confirmed count as refused.
    pub fn abandon(self, port: &mut Port, shared: &Shared) {
        shared.refuse(u64::from(self.in_flight));
        drop(self.socket);
        port.release();
    }
}

/// The fastest socket that may be had, and why none of the faster ones.
fn open_socket(
    link: &Link,
    hook: XdpHook,
    transmit: Transmit,
    slots: &Slots,
) -> Result<(Socket, String), UplinkError> {
    let can_be_zero = hook == XdpHook::Native && slots.spare.len() > BATCH;
    let (ways, mut why): (&[Copying], _) = match transmit {
        Transmit::Auto if can_be_zero => (&[Copying::Zero, Copying::Once], Vec::new()),
        Transmit::Auto => {
            let why = "zero-copy: only real hardware behind native XDP has it";
            (&[Copying::Once], vec![why.to_owned()])
        }
        Transmit::Copy => (&[Copying::Once], vec!["copy mode was asked for".to_owned()]),
        Transmit::Packet => (&[], vec!["AF_PACKET was asked for".to_owned()]),
    };
    let ways = if is_jumbo(link.mtu) {
        why = vec![format!(
            "AF_XDP: frames of MTU {} are longer than a slot",
            link.mtu
        )];
        &[]
    } else {
        ways
    };
    for &copying in ways {
        let spare = slots.spare.clone();
        match Xsk::open(link.index, &slots.pool, slots.count, spare, copying) {
            Ok(xsk) => return Ok((Socket::Xsk(xsk), why.join("; "))),
            Err(error) => why.push(match copying {
                Copying::Zero => format!("zero-copy: {error}"),
                Copying::Once => format!("AF_XDP: {error}"),
            }),
        }
    }
    let packet = PacketSocket::open(link.index)?;
    if let Err(error) = packet.bypass_queueing() {
        tracing::debug!(%error, "frames go through the queueing discipline");
    }
    Ok((Socket::Packet(packet), why.join("; ")))
}

/// Are frames of this MTU longer than a slot?
fn is_jumbo(mtu: u32) -> bool {
    mtu + HEADER > FRAME_MAX as u32
}

/// Does the interface take this frame, and each packet that it becomes?
fn fits(frame: &[u8], offload: Offload, mtu: u32) -> bool {
    // The kernel cuts behind the headers that the frame has, whatever its sender says about them.
    let len = match offload.is_none() {
        true => Ok(frame.len()),
        false => Offload::from_kernel(offload.to_kernel(), frame)
            .map(|offload| offload.packet_len(frame.len())),
    };
    len.is_ok_and(|len| takes(mtu, len, frame))
}

/// Does an interface with this MTU take packets of `len` bytes that begin as this frame?
pub fn takes(mtu: u32, len: usize, frame: &[u8]) -> bool {
    let room = mtu as usize + HEADER as usize;
    len <= room || (len <= room + TAG as usize && is_tagged(frame))
}

fn is_tagged(frame: &[u8]) -> bool {
    matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]))
}

/// Empties `port` while there is no outlet: its senders must not see a full ring for ever, and lost frames are
/// counted.
pub fn discard(port: &mut Port, shared: &Shared) -> usize {
    let mut lost = 0;
    while port.take_slot().is_some() {
        lost += 1;
    }
    port.release();
    shared.refuse(lost as u64);
    lost
}
