//! The memory shared with the switch: the Rust mirror of `bpf/include/nfluid_abi.h`.

use crate::offload::OFFLOAD_BYTES;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// `setsockopt` level of the hyperio call.
pub const SOL_NFLUID: i32 = 0x4e46;
/// `setsockopt` option: run the switch over the port's TX ring; what finds a full ring is dropped.
pub const CALL_TX: i32 = 1;
/// `setsockopt` option: the same, but what finds a full link stays in the TX ring.
pub const CALL_TX_KEEP: i32 = 2;
/// `setsockopt` option: enter the switch and do nothing.
pub const CALL_NOP: i32 = 3;
/// `setsockopt` option: ring the kernel doorbell of a link's sleeping peer.
pub const CALL_DOORBELL: i32 = 4;

/// Bytes per frame slot.
pub const SLOT_SIZE: usize = 2048;
/// Shortest frame in bytes: an Ethernet header.
pub const FRAME_MIN: usize = 14;
/// Longest frame in one slot, in bytes, without FCS.
pub const FRAME_MAX: usize = 2032;
/// Longest frame in bytes: a *long frame* lies in several slots that follow each other.
pub const LONG_MAX: usize = LONG_SLOTS * SLOT_SIZE - OFFLOAD_BYTES;
/// Most slots of a frame.
pub const LONG_SLOTS: usize = 32;
/// Where a frame's metadata begins in its last slot.
pub const OFFLOAD_AT: usize = SLOT_SIZE - OFFLOAD_BYTES;
/// Bytes by which the receiver of a long frame can extend it.
pub const LONG_SPARE: usize = 32;
/// Most slots for long frames that a port can have.
pub const LONG_AREA_MAX: usize = 4096;
/// Slots per block of a pool. A long frame lies in a single block: it starts in the block's first half, or at its middle.
pub const BLOCK_SLOTS: usize = 64;
/// Fewest slots of a ring.
pub const RING_MIN: usize = 64;
/// Most slots of a ring.
pub const RING_MAX: usize = 1024;
/// Most frames that an NF is handed at once.
pub const BATCH_MAX: usize = 64;

/// [`SwitchLine::served`]: the instance makes the call itself.
pub const SERVED_BY_ITSELF: u32 = 0;
/// [`SwitchLine::served`]: an I/O thread makes it, perhaps on another core.
pub const SERVED_FROM_ANY_CORE: u32 = 1;
/// [`SwitchLine::served`]: an I/O thread makes it, on the instance's core.
pub const SERVED_FROM_OWN_CORE: u32 = 2;

/// A cache line of its own for each writer, so that they do not disturb each other.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct SenderLine {
    /// Position after the last frame handed over.
    pub tx_head: AtomicU32,
    /// Sleep epoch (never 0) while blocked until an I/O thread has consumed, else 0.
    pub tx_sleep: AtomicU32,
    /// For an I/O thread: 1 if frames that a full link would drop stay in the ring.
    pub tx_keep: AtomicU32,
    /// For an I/O thread: the core on which the sender runs, + 1; 0: unknown.
    pub tx_cpu: AtomicU32,
}

/// Written for the sender: by the switch within its call, and by an I/O thread.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct SwitchLine {
    /// Position after the last frame consumed.
    pub tx_tail: AtomicU32,
    /// Sleep epoch of a link's peer that the call found blocked, else 0.
    pub peer_asleep: AtomicU32,
    /// The thread that makes the port's calls: see [`SERVED_BY_ITSELF`] and the others.
    pub served: AtomicU32,
    /// Sleep epoch (never 0) of the I/O thread while it is blocked, else 0.
    pub io_sleep: AtomicU32,
}

/// Written by the instance as a receiver.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ReceiverLine {
    /// Positions that are released: see [`Released`].
    pub rx_released: AtomicU64,
    /// Sleep epoch (never 0) while blocked, 0 while awake.
    pub rx_sleep: AtomicU32,
    /// Position after the last frame taken before the sleep; released or not.
    pub rx_seen: AtomicU32,
}

/// The rings of a port: control words and descriptors.
#[repr(C, align(4096))]
pub struct Ring {
    /// Words that the sender writes.
    pub sender: SenderLine,
    /// Words that the switch writes.
    pub switch: SwitchLine,
    /// Words that the receiver writes.
    pub receiver: ReceiverLine,
    _pad: [u8; 4096 - 192],
    /// TX descriptors, see [`tx_desc`].
    pub tx: [AtomicU64; RING_MAX],
    /// RX descriptors, see [`rx_desc`].
    pub rx: [AtomicU64; RING_MAX],
}

const _: () = assert!(size_of::<Ring>() == 20480);
const _: () = assert!(core::mem::offset_of!(Ring, receiver) == 128);
const _: () = assert!(core::mem::offset_of!(Ring, tx) == 4096);

/// How far a receiver has released. Both positions wrap. They are one word, so that a receiver that ends at any moment
/// leaves both as they belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Position after the last frame released.
    pub head: u32,
    /// Position after the last slot for long frames released.
    pub long: u32,
}

impl Released {
    /// The word in the ring.
    #[inline]
    pub const fn word(self) -> u64 {
        self.head as u64 | (self.long as u64) << 32
    }

    /// Reads the word.
    #[inline]
    pub const fn of(word: u64) -> Self {
        Released {
            head: word as u32,
            long: (word >> 32) as u32,
        }
    }
}

/// The value in the place of a slot's number where a ring position has no slot for the moment.
pub const NO_SLOT: u32 = 0xffff;
/// Most slots of a pool that a trust group shares: all that 16 bits can name, in whole blocks.
pub const SHARED_SLOTS_MAX: u32 = 65536 - BLOCK_SLOTS as u32;

/// Of a TX descriptor, and of the RX descriptor of a frame in one slot: metadata lies in the last bytes of the frame's
/// last slot, see [`crate::offload`]. A received long frame always has it.
pub const DESC_OFFLOAD: u64 = 1 << 16;
/// Bits 17..21 of a TX descriptor are the number of the frame's slots, less one.
const DESC_SLOTS_SHIFT: u32 = 17;
/// Length in the RX descriptor of a hole that has slots for long frames: the lower bits of the position behind them are in
/// bits 16..31.
pub const LONG_HOLE: u16 = 1;

/// Is this a number of slots that a port can have for long frames: none, or a power of two of whole blocks?
#[inline]
pub const fn is_long_area(slots: u32) -> bool {
    let (least, most) = (BLOCK_SLOTS as u32, LONG_AREA_MAX as u32);
    slots == 0 || (slots.is_power_of_two() && least <= slots && slots <= most)
}

/// The slots that a frame of `len` bytes needs, with its metadata in the last bytes of the last slot.
#[inline]
pub const fn frame_slots(len: usize) -> usize {
    (len + OFFLOAD_BYTES).div_ceil(SLOT_SIZE)
}

/// The slots in which a received frame of `len` bytes lies. A receiver of a long frame can extend it.
#[inline]
pub const fn room_slots(len: usize) -> usize {
    if len <= FRAME_MAX {
        return 1;
    }
    let slots = frame_slots(len + LONG_SPARE);
    if slots < LONG_SLOTS {
        slots
    } else {
        LONG_SLOTS
    }
}

/// The first position from `position` on at which a long frame may start: none crosses a block.
#[inline]
pub const fn long_start(position: u32) -> u32 {
    const LAST: u32 = BLOCK_SLOTS as u32 - 1;
    if position & LAST > (BLOCK_SLOTS - LONG_SLOTS) as u32 {
        (position | LAST).wrapping_add(1)
    } else {
        position
    }
}

/// Packs a TX descriptor: `len` bytes in pool slot `slot`.
#[inline]
pub const fn tx_desc(len: u16, slot: u32) -> u64 {
    len as u64 | (slot as u64) << 32
}

/// Packs a TX descriptor: `len` bytes in `slots` slots from pool slot `slot` on, with metadata.
#[inline]
pub const fn tx_desc_offload(len: u16, slot: u32, slots: u8) -> u64 {
    tx_desc_long(len, slot, slots) | DESC_OFFLOAD
}

/// Packs a TX descriptor: `len` bytes in `slots` slots from pool slot `slot` on.
#[inline]
pub const fn tx_desc_long(len: u16, slot: u32, slots: u8) -> u64 {
    tx_desc(len, slot) | (slots.saturating_sub(1) as u64) << DESC_SLOTS_SHIFT
}

/// Unpacks an RX descriptor into (length in bytes, sequence).
#[inline]
pub const fn rx_desc(desc: u64) -> (u16, u32) {
    (desc as u16, (desc >> 32) as u32)
}

/// Packs a length in bytes and a sequence into an RX descriptor, where the pool is not shared.
#[inline]
pub const fn rx_desc_of(len: u16, sequence: u32) -> u64 {
    len as u64 | (sequence as u64) << 32
}

/// The slot in an RX descriptor, where the pool is shared.
#[inline]
pub const fn rx_desc_slot(desc: u64) -> u32 {
    (desc >> 16) as u32 & NO_SLOT
}

/// An RX descriptor with another slot in it: what takes the next frame at its position.
#[inline]
pub const fn rx_desc_with_slot(desc: u64, slot: u32) -> u64 {
    desc & !((NO_SLOT as u64) << 16) | ((slot & NO_SLOT) as u64) << 16
}

/// The slot in a TX descriptor; of one that was consumed, the slot that came back for it.
#[inline]
pub const fn tx_desc_slot(desc: u64) -> u32 {
    (desc >> 32) as u32
}
