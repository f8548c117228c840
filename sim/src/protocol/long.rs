//! `bpf/switch/long.h`: room for one frame at a receiver.

use super::deliver::{
    RESERVE_TRIES, Slot, Target, count_drop, cursor_block, delivered, in_slot, publish, rx_room,
};
use super::drop;
use super::memory::{Destination, Memory, PORT_LONG, Pool, add, load, swap};
use super::mutation::Mutation;
use super::offload::Checked;
use super::schedule::step;
use super::transmit::copy;
use nfluid_ring::layout::{
    BLOCK_SLOTS, DESC_OFFLOAD, FRAME_MAX, LONG_HOLE, LONG_MAX, LONG_SLOTS, Released, SLOT_SIZE,
    long_start, room_slots,
};
use std::rc::Rc;

const BLOCK: u32 = BLOCK_SLOTS as u32;
/// The last slot of a block at which a long frame may start.
const LONG_START_MAX: u32 = (BLOCK_SLOTS - LONG_SLOTS) as u32;

/// `struct room`.
pub(super) struct Room {
    pub(super) to: Target,
    position: u32,
    /// Of a long frame: the position of its first slot, in the area.
    start: u32,
    /// Of a long frame; else 0: the position's own.
    slots: u32,
}

/// `struct place`.
pub(super) struct Place {
    pool: Rc<Pool>,
    /// In the pool.
    pub(super) slot: u32,
}

/// `enum reservation_end`, of a room.
pub(super) enum RoomEnd {
    Again,
    Full,
    Done(Room),
}

/// Returns the slots that a frame takes at its receiver. `None`: the receiver does not take the frame, which is counted.
pub(super) async fn room_fits(
    m: &Memory,
    to: &Target,
    checked: &Checked,
    len: usize,
) -> Option<u32> {
    let port = to.port(m);
    let flags = load(&port.flags).await;
    if checked.needs() & !flags != 0 && !m.has(Mutation::CapabilityNotChecked) {
        count_drop(port, drop::NO_OFFLOAD, 1).await;
        return None;
    }
    if len <= FRAME_MAX {
        return Some(0);
    }
    if flags & PORT_LONG == 0 || port.group.get() > 0 {
        count_drop(port, drop::TOO_LONG, 1).await;
        return None;
    }
    Some(room_slots(len) as u32)
}

async fn reserve_once(m: &Memory, to: &Target, slots: u32) -> RoomEnd {
    let port = to.port(m);
    let reserved = load(&port.rx_reserved).await;
    let Released { head, long } = Released::of(reserved);
    let released = Released::of(load(&to.ring.ring().receiver.rx_released).await);
    let mut start = long;
    if slots > 0 && !m.has(Mutation::SkipForgotten) {
        start = long_start(long);
    }
    let end = start.wrapping_add(slots);
    let area = port.long_slots.get();
    let used = end.wrapping_sub(released.long);
    let is_off = m.has(Mutation::AreaOffByAFrame);
    let bound = if is_off { area + slots } else { area };
    if head.wrapping_sub(released.head) > port.mask.get() || slots > 0 && used > bound {
        return RoomEnd::Full;
    }
    let next = Released {
        head: head.wrapping_add(1),
        long: end,
    };
    if m.has(Mutation::LongReservedApart) && slots > 0 {
        let long = Released { head, ..next }.word();
        if swap(&port.rx_reserved, reserved, long).await != reserved {
            return RoomEnd::Again;
        }
        let head = add_head(m, to).await;
        return RoomEnd::Done(room(m, to, (head, start, slots)));
    }
    if swap(&port.rx_reserved, reserved, next.word()).await != reserved {
        return RoomEnd::Again;
    }
    RoomEnd::Done(room(m, to, (head, start, slots)))
}

/// Of a defect: a position is reserved by an addition of its own. Returns the position.
async fn add_head(m: &Memory, to: &Target) -> u32 {
    step().await;
    let word = &to.port(m).rx_reserved;
    let before = Released::of(word.get());
    let head = before.head.wrapping_add(1);
    word.set(Released { head, ..before }.word());
    before.head
}

fn room(m: &Memory, to: &Target, (position, start, slots): (u32, u32, u32)) -> Room {
    let area = to.port(m).long_slots.get();
    if slots > 0 {
        m.audit.reserved_long(to.id, position, (start, slots), area);
    }
    Room {
        to: to.clone(),
        position,
        start,
        slots,
    }
}

pub(super) async fn room_reserve(m: &Memory, to: &Target, slots: u32) -> RoomEnd {
    for _ in 0..RESERVE_TRIES {
        match reserve_once(m, to, slots).await {
            RoomEnd::Again => {}
            end => return end,
        }
    }
    RoomEnd::Again
}

/// Finds the slots that were reserved. Returns the first one's number, and `None` if the pool has no such block.
pub(super) async fn room_find(m: &Memory, room: &Room) -> (u32, Option<Place>) {
    let port = room.to.port(m);
    let slot = match room.slots {
        0 => rx_room(m, &room.to, room.position).await,
        _ => port.long_base.get() + (room.start & (port.long_slots.get() - 1)),
    };
    let cursor = cursor_block(m, port, slot / BLOCK).await;
    let place = cursor.map(|cursor| Place {
        pool: cursor.pool,
        slot,
    });
    (slot, place)
}

/// Publishes a frame of `len` bytes in the room, whose first slot is `slot`, or a hole: `len` 0.
pub(super) async fn room_publish(
    m: &Memory,
    destination: Destination,
    room: &Room,
    (slot, len): (u32, u32),
    has_offload: bool,
) {
    let port = room.to.port(m);
    let word = if room.slots == 0 {
        let bit = if has_offload { DESC_OFFLOAD as u32 } else { 0 };
        match port.group.get() {
            0 => len | bit,
            _ => in_slot(slot, len),
        }
    } else if len > 0 {
        in_slot(room.start, len)
    } else if m.has(Mutation::HoleWithoutSlots) {
        0
    } else {
        m.audit.emptied(room.to.id, room.position);
        let end = room.start.wrapping_add(room.slots);
        in_slot(end, u32::from(LONG_HOLE))
    };
    publish(m, destination, &room.to, room.position, word).await;
}

/// Copies a frame of any length. False: the frame crosses its block.
pub(super) async fn copy_between(to: &Place, (from, slot): (&Rc<Pool>, u32), len: usize) -> bool {
    if len <= FRAME_MAX {
        let slot_of = |pool: &Rc<Pool>, slot| Slot {
            pool: Rc::clone(pool),
            slot,
        };
        copy(&slot_of(from, slot), &slot_of(&to.pool, to.slot), len, None).await;
        return true;
    }
    let end = (to.slot % BLOCK) as usize * SLOT_SIZE + len;
    if slot % BLOCK > LONG_START_MAX || len > LONG_MAX || end > BLOCK_SLOTS * SLOT_SIZE {
        return false;
    }
    for (piece, at) in (0..).zip((0..len).step_by(SLOT_SIZE)) {
        step().await;
        from.copy(slot + piece, (&to.pool, to.slot + piece), len - at);
    }
    true
}

impl Place {
    pub(super) fn first(&self) -> Slot {
        Slot {
            pool: Rc::clone(&self.pool),
            slot: self.slot,
        }
    }
}

/// Publishes and counts a frame that was copied into its room.
pub(super) async fn room_deliver(
    m: &Memory,
    destination: Destination,
    (room, place): (&Room, &Place),
    checked: &Checked,
    len: usize,
) {
    let port = room.to.port(m);
    if !checked.is_none() || room.slots > 0 {
        step().await;
        let last = place.slot + room.slots.max(1) - 1;
        place.pool.set_offload(last, checked.words);
    }
    let published = (place.slot, len as u32);
    room_publish(m, destination, room, published, !checked.is_none()).await;
    if checked.more_segments() > 0 {
        add(&port.rx_more_segments, checked.more_segments()).await;
        add(&port.rx_more_bytes, checked.more_bytes()).await;
    }
    delivered(m, &room.to, 1, len as u64).await;
}
