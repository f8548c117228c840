//! Flooding of `bpf/switch/transmit.h`: a copy for every other member of the switch.

use super::deliver::{
    DEST_SWITCH, Reservation, count_drop, delivered, in_slot, port_way, publish, reserve, rx_room,
    same_switch, slot_buffer, target_find, target_unless, tx_descriptor, way_dest, way_kind,
};
use super::drop;
use super::frame::{Header, len_of, length_ok, slot_of};
use super::memory::{Destination, Memory};
use super::mutation::Mutation;
use super::schedule::step;
use super::transmit::{check_room, copy, drop_frames, entered, source_ok};

const CALL_COPIES: u32 = 4096;

async fn flood_copy(
    m: &Memory,
    (me, destination): (u32, Destination),
    to: u32,
    (position, len): (u32, usize),
    header: Header,
) {
    let Some(from) = target_unless(m, Mutation::FloodCopyCountsNothing, me).await else {
        return;
    };
    let found = target_find(m, to).await;
    let is_here = match &found {
        Some(to) => {
            let way = port_way(m, from.port(m)).await;
            m.has(Mutation::DestinationInTwoWords)
                || m.has(Mutation::NoMembershipCheck)
                || same_switch(way, port_way(m, to.port(m)).await)
        }
        None => false,
    };
    let Some(to) = found.filter(|_| is_here) else {
        return count_drop(from.port(m), drop::PORT_DOWN, 1).await;
    };
    let first = match reserve(m, &to, 1).await {
        Reservation::Done { first, .. } => first,
        Reservation::Full => return count_drop(to.port(m), drop::RING_FULL, 1).await,
        Reservation::Again => return count_drop(from.port(m), drop::CONTENDED, 1).await,
    };
    let room = rx_room(m, &to, first).await;
    let descriptor = tx_descriptor(m, &from, position).await;
    let slot = slot_buffer(m, from.port(m), slot_of(descriptor)).await;
    let buffer = slot_buffer(m, to.port(m), room).await;
    let (Some(slot), Some(buffer)) = (&slot, &buffer) else {
        publish(m, destination, &to, first, in_slot(room, 0)).await;
        let (port, reason) = match buffer {
            Some(_) => (from.port(m), drop::CHANGED),
            None => (to.port(m), drop::BAD_INDEX),
        };
        return count_drop(port, reason, 1).await;
    };
    check_room(m, &to, room);
    copy(slot, buffer, len, Some(header)).await;
    publish(m, destination, &to, first, in_slot(room, len as u32)).await;
    delivered(m, &to, 1, len as u64).await;
}

pub(super) async fn flood_frame(m: &Memory, me: u32, position: u32) {
    let Some(from) = target_unless(m, Mutation::FloodCountsNothing, me).await else {
        return;
    };
    let port = from.port(m);
    let way = port_way(m, port).await;
    let destination = m.audit.destination(me);
    if way_kind(way) != DEST_SWITCH {
        return drop_frames(port, drop::NO_ROUTE, 1).await;
    }
    let descriptor = tx_descriptor(m, &from, position).await;
    let len = len_of(descriptor);
    let slot = slot_buffer(m, port, slot_of(descriptor)).await;
    let Some(slot) = slot.filter(|_| length_ok(len)) else {
        return drop_frames(port, drop::CHANGED, 1).await;
    };
    let header = Header::read(&slot).await;
    if !source_ok(m, &from, header).await {
        return drop_frames(port, drop::FOREIGN_MAC, 1).await;
    }
    let Some(members) = m.switches.get(way_dest(way) as usize) else {
        return drop_frames(port, drop::NO_ROUTE, 1).await;
    };
    let (mut member, mut copies) = (0, 0);
    while port.copies.get() < CALL_COPIES {
        step().await;
        let Some(id) = members.borrow().get(member).copied() else {
            break;
        };
        member += 1;
        if id == me {
            continue;
        }
        copies += 1;
        port.copies.set(port.copies.get() + 1);
        flood_copy(m, (me, destination), id, (position, len), header).await;
    }
    step().await;
    if member < members.borrow().len() {
        count_drop(port, drop::FLOOD_LIMIT, 1).await;
        copies += 1;
    } else if copies == 0 {
        count_drop(port, drop::NO_ROUTE, 1).await;
        copies += 1;
    }
    m.audit.flooded(copies);
    entered(&port.tx_frames, copies);
    entered(&port.tx_bytes, len * copies);
}
