//! `bpf/switch/deliver.h` and `bpf/switch/way.h`.

use super::memory::{Destination, Memory, PORT_UP, Pool, Port, RingFile, add, load, store, swap};
use super::mutation::Mutation;
use super::schedule::step;
use nfluid_ring::layout::{BLOCK_SLOTS, FRAME_MIN, RING_MAX, Released};
use std::rc::Rc;

pub(super) const DEST_LINK: u64 = 1;
pub(super) const DEST_SWITCH: u64 = 2;
pub(super) const WAY_KIND_SHIFT: u32 = 32;
pub(super) const WAY_GENERATION_SHIFT: u32 = 40;
pub(super) const OWNER_GENERATION_SHIFT: u32 = 32;

pub(super) async fn port_way(m: &Memory, port: &Port) -> u64 {
    let way = load(&port.way).await;
    if !m.has(Mutation::DestinationInTwoWords) {
        return way;
    }
    let kind = way >> WAY_KIND_SHIFT & 0xff;
    let dest = load(&port.way).await;
    dest & !(0xff << WAY_KIND_SHIFT) | kind << WAY_KIND_SHIFT
}

pub(super) fn way_kind(way: u64) -> u64 {
    way >> WAY_KIND_SHIFT & 0xff
}

pub(super) fn way_dest(way: u64) -> u32 {
    way as u32
}

pub(super) fn same_switch(one: u64, other: u64) -> bool {
    way_kind(one) == DEST_SWITCH && (one ^ other) << (64 - WAY_GENERATION_SHIFT) == 0
}

pub(super) fn owner_on(me: u32, way: u64) -> u64 {
    u64::from(me) | way >> WAY_GENERATION_SHIFT << OWNER_GENERATION_SHIFT
}

/// `struct target`, and `struct sender` as well.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) id: u32,
    pub(super) ring: Rc<RingFile>,
}

impl Target {
    pub(super) fn port<'m>(&self, m: &'m Memory) -> &'m Port {
        m.port(self.id)
    }

    fn index(&self, m: &Memory, position: u32) -> usize {
        (position & self.port(m).mask.get()) as usize & (RING_MAX - 1)
    }
}

pub(super) async fn target_exists(m: &Memory, id: u32) -> Option<Target> {
    step().await;
    let ring = m.rings.borrow().get(id as usize).cloned()?;
    Some(Target { id, ring })
}

pub(super) async fn target_find(m: &Memory, id: u32) -> Option<Target> {
    let flags = &m.ports.get(id as usize)?.flags;
    if load(flags).await & PORT_UP == 0 {
        return None;
    }
    let target = target_exists(m, id).await?;
    (load(flags).await & PORT_UP != 0).then_some(target)
}

/// As [`target_exists`]; with this defect as [`target_find`].
pub(super) async fn target_unless(m: &Memory, defect: Mutation, id: u32) -> Option<Target> {
    if m.has(defect) {
        target_find(m, id).await
    } else {
        target_exists(m, id).await
    }
}

/// `struct cursor`: the pool in which the block used last lies.
pub(super) struct Cursor {
    pub(super) pool: Rc<Pool>,
    block: u32,
}

/// A buffer of a pool.
pub(super) struct Slot {
    pub(super) pool: Rc<Pool>,
    pub(super) slot: u32,
}

impl Slot {
    pub(super) async fn read(&self, len: usize) -> Vec<u8> {
        step().await;
        self.pool.read(self.slot, len)
    }

    pub(super) async fn write(&self, bytes: &[u8]) {
        step().await;
        self.pool.write(self.slot, bytes);
    }
}

pub(super) async fn cursor_block(m: &Memory, port: &Port, block: u32) -> Option<Cursor> {
    step().await;
    let pool = m.pools.borrow().get(port.pool.get() as usize).cloned()?;
    (block < pool.slots() / BLOCK_SLOTS as u32).then_some(Cursor { pool, block })
}

pub(super) async fn cursor_slot(
    m: &Memory,
    cursor: &mut Cursor,
    port: &Port,
    slot: u32,
) -> Option<Slot> {
    let block = slot / BLOCK_SLOTS as u32;
    if block != cursor.block {
        *cursor = cursor_block(m, port, block).await?;
    }
    let pool = Rc::clone(&cursor.pool);
    Some(Slot { pool, slot })
}

pub(super) async fn slot_buffer(m: &Memory, port: &Port, slot: u32) -> Option<Slot> {
    let mut cursor = cursor_block(m, port, slot / BLOCK_SLOTS as u32).await?;
    cursor_slot(m, &mut cursor, port, slot).await
}

/// `enum reservation_end`, and what was got.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reservation {
    Again,
    Full,
    Done { first: u32, got: u32 },
}

async fn reserve_once(m: &Memory, to: &Target, want: u32) -> Reservation {
    let port = to.port(m);
    let reserved = load(&port.rx_reserved).await;
    let Released { head: first, long } = Released::of(reserved);
    let head = Released::of(load(&to.ring.ring().receiver.rx_released).await).head;
    let used = first.wrapping_sub(head);
    let slots = port.mask.get() + 1;
    if used >= slots {
        return Reservation::Full;
    }
    let got = (slots - used).min(want);
    let next = Released {
        head: first.wrapping_add(got),
        long: if m.has(Mutation::LongPositionLost) {
            0
        } else {
            long
        },
    };
    let next = if m.has(Mutation::PositionCarries) {
        reserved + u64::from(got)
    } else {
        next.word()
    };
    if swap(&port.rx_reserved, reserved, next).await != reserved {
        return Reservation::Again;
    }
    Reservation::Done { first, got }
}

pub(super) const RESERVE_TRIES: usize = 8;

pub(super) async fn reserve(m: &Memory, to: &Target, want: u32) -> Reservation {
    for _ in 0..RESERVE_TRIES {
        let end = reserve_once(m, to, want).await;
        if end != Reservation::Again {
            return end;
        }
    }
    Reservation::Again
}

pub(super) fn rx_slot(m: &Memory, to: &Target, position: u32) -> u32 {
    to.port(m).rx_base.get() + to.index(m, position) as u32
}

pub(super) async fn rx_named(m: &Memory, to: &Target, position: u32) -> u32 {
    let word = load(&to.ring.ring().rx[to.index(m, position)]).await;
    word as u32 >> 16
}

pub(super) async fn rx_room(m: &Memory, to: &Target, position: u32) -> u32 {
    if to.port(m).group.get() == 0 {
        return rx_slot(m, to, position);
    }
    rx_named(m, to, position).await
}

pub(super) fn in_slot(slot: u32, len: u32) -> u32 {
    slot << 16 | len
}

/// `len`: the lower half of the descriptor, a frame's length in bits 0..15. `destination` is the sender's, for the audit alone.
pub(super) async fn publish(
    m: &Memory,
    destination: Destination,
    to: &Target,
    position: u32,
    len: u32,
) {
    let word = u64::from(len) | u64::from(position.wrapping_add(1)) << 32;
    store(&to.ring.ring().rx[to.index(m, position)], word).await;
    if (len & 0xffff) as usize >= FRAME_MIN {
        m.audit.published(destination, to.id);
        if Rc::ptr_eq(&to.ring, &m.placeholder.0) {
            // The frame goes with the port.
            m.audit.unread(to.id, 1, u64::from(len & 0xffff));
        }
    }
}

pub(super) async fn delivered(m: &Memory, to: &Target, frames: u64, bytes: u64) {
    add(&to.port(m).rx_bytes, bytes).await;
    add(&to.port(m).rx_frames, frames).await;
}

pub(super) async fn count_drop(port: &Port, reason: usize, frames: u32) {
    if frames > 0 {
        add(&port.drops[reason], u64::from(frames)).await;
    }
}

pub(super) async fn tx_descriptor(m: &Memory, from: &Target, position: u32) -> u64 {
    load(&from.ring.ring().tx[from.index(m, position)]).await
}

pub(super) async fn tx_return(m: &Memory, from: &Target, position: u32, slot: u32) {
    let word = u64::from(slot) << 32;
    store(&from.ring.ring().tx[from.index(m, position)], word).await;
}
