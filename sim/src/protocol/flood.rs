//! Flooding of `bpf/switch/transmit.h`: a copy for every other member of the switch.

use super::deliver::{
    DEST_SWITCH, count_drop, port_way, slot_buffer, target_unless, tx_descriptor, way_dest,
    way_kind,
};
use super::drop;
use super::frame::{Header, len_of, slot_of};
use super::memory::Memory;
use super::mutation::Mutation;
use super::pass::pass_frame;
use super::schedule::step;
use super::transmit::{drop_frames, entered};
use nfluid_ring::layout::{FRAME_MIN, SLOT_SIZE};

const CALL_COPIES: u32 = 4096;

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
    let Some(slot) = slot.filter(|_| len >= FRAME_MIN) else {
        return drop_frames(port, drop::CHANGED, 1).await;
    };
    let address = Header::read(&slot).await.dst_address();
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
        port.copies
            .set(port.copies.get() + 1 + (len / SLOT_SIZE) as u32);
        pass_frame(m, (me, destination), id, (descriptor, Some(address)), false).await;
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
}
