//! `bpf/switch/pass.h`: a frame that goes to a port alone.

use super::deliver::{
    Slot, Target, count_drop, cursor_block, port_way, same_switch, target_find, target_unless,
};
use super::drop;
use super::frame::{HEADER, Header, TAG_END, len_of, slot_of};
use super::long::{
    RoomEnd, copy_between, room_deliver, room_find, room_fits, room_publish, room_reserve,
};
use super::memory::{Destination, Memory, Pool};
use super::mutation::Mutation;
use super::offload::Checked;
use super::schedule::step;
use super::transmit::{check_room, entered, source_ok};
use nfluid_ring::layout::{BLOCK_SLOTS, DESC_OFFLOAD, FRAME_MIN, LONG_MAX, SLOT_SIZE};
use nfluid_ring::offload::OFFLOAD_BYTES;
use std::rc::Rc;

/// `struct passage`, and what `pass_find` reads.
struct Passage {
    from: Target,
    pool: Rc<Pool>,
    /// In the pool.
    slot: u32,
    /// Where the metadata lies, if there is some.
    last: Option<u32>,
    checked: Checked,
}

async fn pass_find(m: &Memory, from: Target, descriptor: u64) -> Option<Passage> {
    let (len, slot) = (len_of(descriptor), slot_of(descriptor));
    let slots = (descriptor >> 17 & 31) as u32 + 1;
    let port = from.port(m);
    if !(FRAME_MIN..=LONG_MAX).contains(&len) {
        count_drop(port, drop::BAD_LENGTH, 1).await;
        return None;
    }
    let is_there = slot % BLOCK_SLOTS as u32 + slots <= BLOCK_SLOTS as u32
        && len + OFFLOAD_BYTES <= slots as usize * SLOT_SIZE;
    let cursor = match is_there {
        true => cursor_block(m, port, slot / BLOCK_SLOTS as u32).await,
        false => None,
    };
    let Some(cursor) = cursor else {
        count_drop(port, drop::BAD_INDEX, 1).await;
        return None;
    };
    let pool = cursor.pool;
    let last = (descriptor & DESC_OFFLOAD != 0).then_some(slot + slots - 1);
    let checked = match last {
        None => Some(Checked::NONE),
        Some(last) => {
            step().await;
            Checked::of(m, pool.offload(last), len)
        }
    };
    let Some(checked) = checked else {
        count_drop(port, drop::BAD_OFFLOAD, 1).await;
        return None;
    };
    Some(Passage {
        from,
        pool,
        slot,
        last,
        checked,
    })
}

/// Reads and checks the header of a frame for a switch.
async fn pass_header(m: &Memory, p: &Passage, address: u64, len: usize) -> Option<Header> {
    let first = Slot {
        pool: Rc::clone(&p.pool),
        slot: p.slot,
    };
    let header = Header::read(&first).await;
    let reason = if header.dst_address() != address || header.is_tagged() && len < TAG_END {
        drop::CHANGED
    } else if source_ok(m, &p.from, header).await {
        return Some(header);
    } else {
        drop::FOREIGN_MAC
    };
    count_drop(p.from.port(m), reason, 1).await;
    None
}

/// Returns 0 if the receiver, at the other end of a link, has no room and the sender `keeps` the frame; else 1.
pub(super) async fn pass_frame(
    m: &Memory,
    (me, destination): (u32, Destination),
    to: u32,
    (descriptor, address): (u64, Option<u64>),
    keeps: bool,
) -> u32 {
    let len = len_of(descriptor);
    let Some(from) = target_unless(m, Mutation::FloodCopyCountsNothing, me).await else {
        return 1;
    };
    let found = target_find(m, to).await;
    let is_here = match &found {
        Some(_) if address.is_none() => true,
        Some(to) => {
            let way = port_way(m, from.port(m)).await;
            m.has(Mutation::DestinationInTwoWords)
                || m.has(Mutation::NoMembershipCheck)
                || same_switch(way, port_way(m, to.port(m)).await)
        }
        None => false,
    };
    let Some(to) = found.filter(|_| is_here) else {
        count_drop(from.port(m), drop::PORT_DOWN, 1).await;
        return 1;
    };
    let Some(mut p) = pass_find(m, from, descriptor).await else {
        return 1;
    };
    let from = p.from.port(m);
    let header = match address {
        None => None,
        Some(address) => match pass_header(m, &p, address, len).await {
            None => return 1,
            header => header,
        },
    };
    let Some(slots) = room_fits(m, &to, &p.checked, len).await else {
        return 1;
    };
    let room = match room_reserve(m, &to, slots).await {
        RoomEnd::Full if keeps && address.is_none() => return 0,
        RoomEnd::Full => {
            count_drop(to.port(m), drop::RING_FULL, 1).await;
            return 1;
        }
        RoomEnd::Again => {
            count_drop(from, drop::CONTENDED, 1).await;
            return 1;
        }
        RoomEnd::Done(room) => room,
    };
    let (slot, place) = room_find(m, &room).await;
    let Some(place) = place else {
        room_publish(m, destination, &room, (slot, 0), false).await;
        count_drop(to.port(m), drop::BAD_INDEX, 1).await;
        return 1;
    };
    check_room(m, &to, slot);
    if !copy_between(&place, (&p.pool, p.slot), len).await {
        room_publish(m, destination, &room, (slot, 0), false).await;
        count_drop(from, drop::BAD_INDEX, 1).await;
        return 1;
    }
    if let Some(header) = header {
        header.write(&place.first(), len.min(HEADER)).await;
    }
    if let Some(last) = p.last.filter(|_| m.has(Mutation::MetadataReadTwice)) {
        step().await;
        p.checked.words = p.pool.offload(last);
    }
    entered(&from.tx_bytes, len);
    entered(&from.tx_more_bytes, p.checked.more_bytes() as usize);
    entered(&from.tx_more_segments, p.checked.more_segments() as usize);
    room_deliver(m, destination, (&room, &place), &p.checked, len).await;
    1
}
