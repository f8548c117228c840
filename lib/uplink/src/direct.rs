//! An outlet of an interface in the sender's own context: the TX slots of its port are the memory of an AF_XDP socket
//! of its own, and its own system call sends them (HyperNF's HVD; SoCC '17, section 4.4). No switch is in that path:
//! no drops by reason, no counters, no rules, no capture, and the sender must hold a socket on the interface.
//! Therefore instances of a platform do not have an outlet, and send to an uplink instead; the outlet is for programs
//! that own their interface, and for measuring the cost of the uplink's thread (`nfluid-bench nic-transmit`).

use crate::error::UplinkError;
use crate::outlet::takes;
use crate::xsk::{Copying, Xsk};
use nfluid_netdev::{NetdevError, Netlink, interface_names};
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN, SLOT_SIZE};
use nfluid_ring::port::Port;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The kernel lets go of a queue some time after the socket of a process that has ended: so long is waited for that.
const QUEUE_FREE_WITHIN: Duration = Duration::from_secs(10);
const QUEUE_LOOK: Duration = Duration::from_millis(2);

/// The way out. Dropping it closes the socket; frames on their way are lost.
#[derive(Debug)]
pub struct DirectOutlet {
    xsk: Xsk,
    /// The port, whose TX slots are this outlet's: no other code may send them.
    port: Port,
    mtu: u32,
    /// TX slots, counted from the port's first one, that are not on their way; the last one was
    /// used last and is still in the cache.
    free: Vec<u32>,
    /// True for TX slots whose frame is on its way.
    busy: Vec<bool>,
}

impl DirectOutlet {
    /// Opens a socket on queue 0 of an interface of the calling thread's namespace, in copy mode: a driver in
    /// zero-copy mode would take that queue's received frames away from all other receivers. Frames queued in `port`
    /// are discarded. Needs `CAP_NET_RAW`. If another socket has the queue, the function waits for it, up to 10 s.
    ///
    /// # Errors
    /// [`NetdevError::NoInterface`], or the kernel's refusal.
    pub fn open(interface: &str, mut port: Port) -> Result<Self, UplinkError> {
        let link = Netlink::open()?.link(interface)?;
        let link = link.ok_or_else(|| NetdevError::NoInterface {
            interface: interface.to_owned(),
            namespace: "this namespace".to_owned(),
            names: interface_names().join(", "),
        })?;
        port.discard_queued();
        let slots = port.entry().tx_slots;
        let entries = slots.next_power_of_two();
        let until = Instant::now() + QUEUE_FREE_WITHIN;
        let xsk = loop {
            match Xsk::open(link.index, port.pool(), entries, 0..0, Copying::Once) {
                Err(UplinkError::System { source, .. })
                    if source.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until =>
                {
                    thread::sleep(QUEUE_LOOK);
                }
                opened => break opened?,
            }
        };
        Ok(DirectOutlet {
            xsk,
            port,
            mtu: link.mtu,
            free: (0..slots).rev().collect(),
            busy: vec![false; slots as usize],
        })
    }

    /// Frames that can be queued now.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Writes a frame by `fill`, which returns its length, into a free slot and queues the frame. A slot keeps its
    /// former content. Returns false if no slot is free, or the interface takes no frame of this length: it would
    /// never confirm such a frame.
    pub fn send(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(&slot) = self.free.last() else {
            return false;
        };
        let mtu = self.mtu;
        let buffer = self.buffer(slot);
        let len = fill(buffer);
        let is_frame = (FRAME_MIN..=FRAME_MAX).contains(&len) && takes(mtu, len, &buffer[..len]);
        if is_frame {
            self.free.pop();
            self.busy[slot as usize] = true;
            self.xsk.queue(self.port.entry().tx_base + slot, len as u16);
        }
        is_frame
    }

    /// Sends the queued frames, in the calling thread's own context; returns the number of system calls.
    ///
    /// # Errors
    /// The interface takes no frames at the moment; they stay queued, for the next call.
    pub fn flush(&mut self) -> io::Result<u64> {
        self.xsk.kick()
    }

    /// Takes back the slots of frames that the interface has confirmed; how many.
    pub fn collect(&mut self) -> usize {
        let first = self.port.entry().tx_base;
        let before = self.free.len();
        let (busy, free) = (&mut self.busy, &mut self.free);
        self.xsk.reap(|slot| {
            let slot = slot.wrapping_sub(first);
            if let Some(busy) = busy.get_mut(slot as usize).filter(|busy| **busy) {
                *busy = false;
                free.push(slot);
            }
        });
        free.len() - before
    }

    /// The bytes of a free slot.
    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        let at = (self.port.entry().tx_base + slot) as usize * SLOT_SIZE;
        let (start, len) = self.port.pool().as_raw_parts();
        assert!(at + FRAME_MAX <= len, "a port's TX slots lie in its pool");
        // SAFETY: the slot lies within the pool's mapping, which lives as long as the port. The slot is one of the
        // port's TX slots, which no other code uses: the port is owned by this outlet and sends nothing, and the
        // kernel has confirmed the slot, as it is free. Slots do not overlap, and the borrow of `self` allows one
        // reference at a time.
        unsafe { std::slice::from_raw_parts_mut(start.add(at), FRAME_MAX) }
    }
}
