//! The memory shared with the switch: the Rust mirror of `bpf/include/nfluid_abi.h`.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// `setsockopt` level of the hyperio call.
pub const SOL_NFLUID: i32 = 0x4e46;
/// `setsockopt` option: run the switch over the port's TX ring; what finds a full ring is dropped.
pub const CALL_TX: i32 = 1;
/// `setsockopt` option: the same, but what finds a full link stays in the TX ring.
pub const CALL_TX_KEEP: i32 = 2;
/// `setsockopt` option: enter the switch and do nothing.
pub const CALL_NOP: i32 = 3;

/// Bytes per frame slot.
pub const SLOT_SIZE: usize = 2048;
/// Shortest frame in bytes: an Ethernet header.
pub const FRAME_MIN: usize = 14;
/// Longest frame in bytes, without FCS.
pub const FRAME_MAX: usize = 2032;
/// Slots per block of a pool.
pub const BLOCK_SLOTS: usize = 64;
/// Fewest slots of a ring.
pub const RING_MIN: usize = 64;
/// Most slots of a ring.
pub const RING_MAX: usize = 1024;
/// Most frames that an NF is handed at once.
pub const BATCH_MAX: usize = 64;

/// A cache line of its own for each writer, so that they do not disturb each other.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct SenderLine {
    /// Position after the last frame handed over.
    pub tx_head: AtomicU32,
}

/// Written by the switch for the sender, within its call.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct SwitchLine {
    /// Position after the last frame consumed.
    pub tx_tail: AtomicU32,
    /// Sleep epoch of a link's peer that the call found blocked, else 0.
    pub peer_asleep: AtomicU32,
}

/// Written by the instance as a receiver.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ReceiverLine {
    /// Position after the last frame released.
    pub rx_head: AtomicU32,
    /// Sleep epoch (never 0) while blocked, 0 while awake.
    pub rx_sleep: AtomicU32,
}

/// One port's rings: control words and descriptors.
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

/// Packs a TX descriptor: `len` bytes in pool slot `slot`.
#[inline]
pub const fn tx_desc(len: u16, slot: u32) -> u64 {
    len as u64 | (slot as u64) << 32
}

/// Unpacks an RX descriptor into (length in bytes, sequence).
#[inline]
pub const fn rx_desc(desc: u64) -> (u16, u32) {
    (desc as u16, (desc >> 32) as u32)
}
