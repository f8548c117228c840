//! `bpf/switch/transmit.h` without flooding, `run.h`, `call.h` and `exchange.h`.

use super::deliver::{
    Cursor, DEST_LINK, DEST_SWITCH, Reservation, Slot, Target, count_drop, cursor_block,
    cursor_slot, delivered, in_slot, port_way, publish, reserve, rx_named, rx_room, rx_slot,
    same_switch, slot_buffer, target_exists, target_find, target_unless, tx_descriptor, tx_return,
    way_dest, way_kind,
};
use super::drop;
use super::fdb::{MAC_GROUP, fdb_find, fdb_learn};
use super::flood::flood_frame;
use super::frame::{
    HEADER, Header, MAC_RESERVED, MAC_RESERVED_MASK, TAG_END, is_special, len_of, length_ok,
    plain_bits, slot_of,
};
use super::memory::{
    Destination, Memory, PORT_CHECKSUMS, PORT_LEARN, PORT_LONG, PORT_PINNED, PORT_SUPER, PORT_UP,
    Port, add, load, store, swap,
};
use super::mutation::Mutation;
use super::pass::pass_frame;
use super::schedule::step;
use nfluid_ring::layout::{BLOCK_SLOTS, DESC_OFFLOAD, FRAME_MAX, FRAME_MIN, LONG_MAX, SLOT_SIZE};
use std::cell::Cell;

const CALL_FRAMES: u32 = 256;
/// Slots of long frames per call.
const CALL_SLOTS: u32 = 1024;
const RUN_FRAMES: u32 = 64;
const OWNER_MOVING: u32 = u32::MAX;
/// The error of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// `ENETDOWN`: the port is down.
    NetDown,
    /// `EBUSY`: another call is under way on this port.
    Busy,
}

/// The maker of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The instance; frames that a full link would drop stay in the ring if it `keeps` them.
    Instance {
        /// See there.
        keeps: bool,
    },
    /// An I/O thread. No grace period waits for its calls.
    IoThread,
}

/// `setsockopt`, or a run of `serve` over one port: all that is queued on port `me` is switched.
///
/// # Errors
/// As the call fails; nothing was consumed.
pub async fn hyperio(m: &Memory, me: u32, caller: Caller) -> Result<(), CallError> {
    let reader = matches!(caller, Caller::Instance { .. }).then(|| m.enter());
    let result = call_run(m, me, caller).await;
    if let Some(reader) = reader {
        m.leave(reader);
    }
    result
}

pub(super) async fn source_ok(m: &Memory, from: &Target, header: Header) -> bool {
    let (port, source) = (from.port(m), header.src_address());
    let flags = load(&port.flags).await;
    if flags & PORT_PINNED != 0 && header.src() != port.mac.get() {
        return false;
    }
    if source == load(&port.last_source).await || source == port.mac.get() {
        return true;
    }
    if flags & (PORT_LEARN | PORT_PINNED) == 0 {
        return true;
    }
    if !fdb_learn(m, port, from.id, source).await {
        return false;
    }
    store(&port.last_source, source).await;
    true
}

/// The sender's own counters: no other actor writes them.
pub(super) fn entered(word: &Cell<u64>, more: usize) {
    word.set(word.get() + more as u64);
}

pub(super) async fn drop_frames(port: &Port, reason: usize, frames: u32) {
    count_drop(port, reason, frames).await;
    entered(&port.tx_frames, frames as usize);
}

struct Run {
    from: Target,
    to: Target,
    tx: Cursor,
    address: Option<u64>,
}

/// Counts a frame that no run takes.
async fn refuse_length((from, to): (&Port, &Port), bits: usize) {
    let len = bits & 0xffff;
    let flags = load(&to.flags).await;
    let (port, reason) = if !(FRAME_MIN..=LONG_MAX).contains(&len) {
        (from, drop::BAD_LENGTH)
    } else if bits as u64 & DESC_OFFLOAD != 0 && flags & PORT_CHECKSUMS == 0 {
        (to, drop::NO_OFFLOAD)
    } else if len > FRAME_MAX && flags & PORT_LONG == 0 {
        (to, drop::TOO_LONG)
    } else {
        (from, drop::CHANGED)
    };
    count_drop(port, reason, 1).await;
}

/// `copy_one`'s checks and `frame_checked`: returns the frame and its header. `None`: the frame is refused, and counted.
/// The descriptor's slot is looked up before the receiver's, as there.
async fn frame_checked(
    m: &Memory,
    run: &mut Run,
    descriptor: u64,
) -> Option<(Slot, Option<Header>)> {
    let (bits, port) = (plain_bits(descriptor), run.from.port(m));
    if !length_ok(bits) {
        refuse_length((port, run.to.port(m)), bits).await;
        return None;
    }
    let reason = match header_checked(m, run, (descriptor, bits)).await {
        Ok(checked) => return Some(checked),
        Err(reason) => reason,
    };
    count_drop(port, reason, 1).await;
    None
}

async fn header_checked(
    m: &Memory,
    run: &mut Run,
    (descriptor, len): (u64, usize),
) -> Result<(Slot, Option<Header>), usize> {
    let from = cursor_slot(m, &mut run.tx, run.from.port(m), slot_of(descriptor)).await;
    let from = from.ok_or(drop::BAD_INDEX)?;
    let Some(address) = run.address else {
        return Ok((from, None));
    };
    let header = Header::read(&from).await;
    if header.dst_address() != address || header.is_tagged() && len < TAG_END {
        return Err(drop::CHANGED);
    }
    if !source_ok(m, &run.from, header).await {
        return Err(drop::FOREIGN_MAC);
    }
    Ok((from, Some(header)))
}

pub(super) async fn copy(from: &Slot, to: &Slot, len: usize, header: Option<Header>) {
    let mut bytes = from.read(len).await;
    to.write(&bytes).await;
    if let Some(header) = header {
        header.over(&mut bytes);
        to.write(&bytes[..len.min(HEADER)]).await;
    }
}

/// No frame is copied into a slot of the group that is another member's, as long as members keep to the rules.
pub(super) fn check_room(m: &Memory, to: &Target, room: u32) {
    let port = to.port(m);
    let group = port.group.get();
    let is_in_group = m.pools.borrow()[port.pool.get() as usize].slots() as usize
        == m.owners[group as usize].len();
    let owner = m.owners[group as usize].get(room as usize).map(Cell::get);
    if group > 0 && is_in_group && owner != Some(port.pool.get() + 1) {
        m.audit.violated(format!(
            "a frame to port {} was put into slot {room}, which is {owner:?}'s",
            to.id
        ));
    }
}

async fn copy_one(m: &Memory, run: &mut Run, rx: &mut Cursor, position: u32, room: u32) -> u32 {
    let descriptor = tx_descriptor(m, &run.from, position).await;
    let len = len_of(descriptor);
    let Some((from, header)) = frame_checked(m, run, descriptor).await else {
        return 0;
    };
    let Some(to) = cursor_slot(m, rx, run.to.port(m), room).await else {
        count_drop(run.from.port(m), drop::BAD_INDEX, 1).await;
        return 0;
    };
    copy(&from, &to, len, header).await;
    len as u32
}

async fn void_run(m: &Memory, part: Part) {
    let Some(target) = target_exists(m, part.to).await else {
        return;
    };
    for position in (0..part.count).map(|i| part.slot.wrapping_add(i)) {
        let room = rx_room(m, &target, position).await;
        publish(m, part.destination, &target, position, in_slot(room, 0)).await;
    }
    count_drop(m.port(part.me), drop::PORT_DOWN, part.count).await;
}

/// The beginning of `copy_run` and `exchange_run`.
async fn run_begin(m: &Memory, me: u32, to: u32, address: Option<u64>) -> Option<Run> {
    let from = target_unless(m, Mutation::CopyRunReturns, me).await?;
    let to = target_unless(m, Mutation::CopyRunReturns, to).await?;
    let tx = cursor_block(m, from.port(m), 0).await?;
    Some(Run {
        from,
        to,
        tx,
        address,
    })
}

/// A run that is under way: frames, and where they come from and go.
#[derive(Clone, Copy)]
struct Part {
    me: u32,
    to: u32,
    count: u32,
    position: u32,
    slot: u32,
    address: Option<u64>,
    /// The sender's destination when its word was read, for the audit.
    destination: Destination,
}

impl Part {
    async fn void(self, m: &Memory) {
        if !m.has(Mutation::CopyRunReturns) {
            void_run(m, self).await;
        }
    }
}

/// The first frame of a run is published last.
async fn end_run(m: &Memory, part: Part, run: &Run, words: &[u32], frames: u64, bytes: u64) {
    entered(&run.from.port(m).tx_bytes, bytes as usize);
    if let Some(first) = words.first() {
        publish(m, part.destination, &run.to, part.slot, *first).await;
    }
    delivered(m, &run.to, frames, bytes).await;
}

async fn copy_run(m: &Memory, part: Part) {
    let Some(mut run) = run_begin(m, part.me, part.to, part.address).await else {
        return part.void(m).await;
    };
    let block = rx_slot(m, &run.to, part.slot) / BLOCK_SLOTS as u32;
    let Some(mut rx) = cursor_block(m, run.to.port(m), block).await else {
        return part.void(m).await;
    };
    let (mut words, mut frames, mut bytes) = (Vec::new(), 0, 0);
    for i in 0..part.count {
        let position = part.slot.wrapping_add(i);
        let room = rx_slot(m, &run.to, position);
        let len = copy_one(m, &mut run, &mut rx, part.position.wrapping_add(i), room).await;
        frames += u64::from(len > 0);
        bytes += u64::from(len);
        words.push(len);
        if i > 0 {
            publish(m, part.destination, &run.to, position, len).await;
        }
    }
    end_run(m, part, &run, &words, frames, bytes).await;
}

/// `owner_part` and `owner_exchange`; the slot that lies at the RX position from now on, and the frame's length or 0.
async fn exchange_one(m: &Memory, run: &mut Run, position: u32, rx: u32) -> (u32, u32) {
    let descriptor = tx_descriptor(m, &run.from, position).await;
    let (slot, len) = (slot_of(descriptor), len_of(descriptor));
    let room = rx_named(m, &run.to, rx).await;
    let (from, to) = (run.from.clone(), run.to.clone());
    let (from, to) = (from.port(m), to.port(m));
    if frame_checked(m, run, descriptor).await.is_none() {
        return (room, 0);
    }
    let owners = &m.owners[to.group.get() as usize];
    let (sender, receiver) = (from.pool.get() + 1, to.pool.get() + 1);
    if swap(&owners[slot as usize], sender, OWNER_MOVING).await != sender {
        count_drop(from, drop::BAD_INDEX, 1).await;
        return (room, 0);
    }
    let is_done = match owners.get(room as usize) {
        Some(owner) => swap(owner, receiver, sender).await == receiver,
        None => false,
    };
    store(
        &owners[slot as usize],
        if is_done { receiver } else { sender },
    )
    .await;
    if !is_done {
        count_drop(to, drop::BAD_INDEX, 1).await;
        return (room, 0);
    }
    tx_return(m, &run.from, position, room).await;
    (slot, len as u32)
}

async fn exchange_run(m: &Memory, part: Part) {
    let Some(mut run) = run_begin(m, part.me, part.to, part.address).await else {
        return part.void(m).await;
    };
    let (mut words, mut frames, mut bytes) = (Vec::new(), 0, 0);
    for i in 0..part.count {
        let rx = part.slot.wrapping_add(i);
        let (slot, len) = exchange_one(m, &mut run, part.position.wrapping_add(i), rx).await;
        frames += u64::from(len > 0);
        bytes += u64::from(len);
        words.push(in_slot(slot, len));
        if i > 0 {
            publish(m, part.destination, &run.to, rx, in_slot(slot, len)).await;
        }
    }
    end_run(m, part, &run, &words, frames, bytes).await;
}

async fn admit_frame(m: &Memory, part: Part, position: u32, rx: u32) {
    let Some(from) = target_unless(m, Mutation::AdmitReturns, part.me).await else {
        return;
    };
    let Some(to) = target_exists(m, part.to).await else {
        return;
    };
    let room = rx_named(m, &to, rx).await;
    let Some(tx) = cursor_block(m, from.port(m), 0).await else {
        count_drop(from.port(m), drop::PORT_DOWN, 1).await;
        return publish(m, part.destination, &to, rx, in_slot(room, 0)).await;
    };
    let descriptor = tx_descriptor(m, &from, position).await;
    let address = part.address;
    let mut run = Run {
        from,
        to,
        tx,
        address,
    };
    let checked = frame_checked(m, &mut run, descriptor).await;
    let Run { from, to, .. } = run;
    let Some((slot, header)) = checked else {
        return publish(m, part.destination, &to, rx, in_slot(room, 0)).await;
    };
    let Some(buffer) = slot_buffer(m, to.port(m), room).await else {
        count_drop(to.port(m), drop::BAD_INDEX, 1).await;
        return publish(m, part.destination, &to, rx, in_slot(room, 0)).await;
    };
    let len = len_of(descriptor);
    check_room(m, &to, room);
    copy(&slot, &buffer, len, header).await;
    entered(&from.port(m).tx_bytes, len);
    publish(m, part.destination, &to, rx, in_slot(room, len as u32)).await;
    delivered(m, &to, 1, len as u64).await;
}

/// Where the frame at the head goes on a switch.
enum Route {
    To(u32, u64),
    Flood,
    Dropped,
}

async fn route(m: &Memory, from: &Target, position: u32, way: u64) -> Route {
    let (reason, found) = route_checked(m, from, position, way).await;
    if matches!(found, Route::Dropped) {
        drop_frames(from.port(m), reason, 1).await;
    }
    found
}

async fn route_checked(m: &Memory, from: &Target, position: u32, way: u64) -> (usize, Route) {
    let descriptor = tx_descriptor(m, from, position).await;
    let len = len_of(descriptor);
    let Some(slot) = slot_buffer(m, from.port(m), slot_of(descriptor)).await else {
        return (drop::BAD_INDEX, Route::Dropped);
    };
    let header = Header::read(&slot).await;
    let is_frame = (FRAME_MIN..=LONG_MAX).contains(&len);
    if !is_frame || header.is_tagged() && len < TAG_END {
        return (drop::BAD_LENGTH, Route::Dropped);
    }
    if !source_ok(m, from, header).await {
        return (drop::FOREIGN_MAC, Route::Dropped);
    }
    if header.dst() & MAC_RESERVED_MASK == MAC_RESERVED {
        return (drop::RESERVED_MAC, Route::Dropped);
    }
    let address = header.dst_address();
    if address & MAC_GROUP != 0 {
        return (0, Route::Flood);
    }
    match fdb_find(m, way_dest(way), address).await {
        None => (0, Route::Flood),
        Some(id) if id == from.id => (drop::SAME_PORT, Route::Dropped),
        Some(id) => (0, Route::To(id, address)),
    }
}

/// How far the run goes that begins at `position`: `extend_run`.
async fn run_length(
    m: &Memory,
    (from, to): (&Target, &Target),
    position: u32,
    limit: u32,
    address: Option<u64>,
) -> u32 {
    let most = limit.min(RUN_FRAMES);
    let takes_special = PORT_LONG | PORT_CHECKSUMS | PORT_SUPER;
    if address.is_none() && load(&to.port(m).flags).await & takes_special == 0 {
        return most;
    }
    let Some(mut tx) = cursor_block(m, from.port(m), 0).await else {
        return 1;
    };
    for length in 1..most {
        let descriptor = tx_descriptor(m, from, position.wrapping_add(length)).await;
        if is_special(descriptor) {
            return length;
        }
        let Some(address) = address else {
            continue;
        };
        let slot = cursor_slot(m, &mut tx, from.port(m), slot_of(descriptor)).await;
        let Some(slot) = slot else {
            return length;
        };
        if Header::read(&slot).await.dst_address() != address {
            return length;
        }
    }
    most
}

enum Switched {
    Done(u32),
    /// Frames that are done with, and slots of a long one.
    Passed(u32, u32),
    Flood,
}

async fn switch_run(m: &Memory, me: u32, position: u32, end: u32, keeps: bool) -> Switched {
    let limit = end.wrapping_sub(position);
    let Some(from) = target_find(m, me).await else {
        return Switched::Done(0);
    };
    let port = from.port(m);
    let way = port_way(m, port).await;
    let destination = m.audit.destination(me);
    let is_link = way_kind(way) == DEST_LINK;
    if !is_link && way_kind(way) != DEST_SWITCH {
        drop_frames(port, drop::NO_ROUTE, 1).await;
        return Switched::Done(1);
    }
    let (id, address) = if is_link {
        (way_dest(way), None)
    } else {
        match route(m, &from, position, way).await {
            Route::To(id, address) => (id, Some(address)),
            Route::Flood => return Switched::Flood,
            Route::Dropped => return Switched::Done(1),
        }
    };
    let found = target_find(m, id).await;
    let is_here = match &found {
        Some(to) => {
            is_link
                || m.has(Mutation::DestinationInTwoWords)
                || m.has(Mutation::NoMembershipCheck)
                || same_switch(way, port_way(m, to.port(m)).await)
        }
        None => false,
    };
    let Some(to) = found.filter(|_| is_here) else {
        drop_frames(port, drop::PORT_DOWN, 1).await;
        return Switched::Done(1);
    };
    let descriptor = tx_descriptor(m, &from, position).await;
    if is_special(descriptor) {
        let done = pass_frame(m, (me, destination), id, (descriptor, address), keeps).await;
        entered(&port.tx_frames, done as usize);
        let slots = len_of(descriptor) / SLOT_SIZE + 1;
        return Switched::Passed(done, slots as u32);
    }
    let want = run_length(m, (&from, &to), position, limit, address).await;
    let (first, got) = match reserve(m, &to, want).await {
        Reservation::Again => {
            drop_frames(port, drop::CONTENDED, want).await;
            return Switched::Done(want);
        }
        Reservation::Full => (0, 0),
        Reservation::Done { first, got } => (first, got),
    };
    if got > 0 {
        entered(&port.tx_frames, got as usize);
        let part = Part {
            me,
            to: id,
            count: got,
            position,
            slot: first,
            address,
            destination,
        };
        deliver_run(m, part, port.group.get(), to.port(m).group.get()).await;
    }
    if keeps && is_link {
        return Switched::Done(got);
    }
    count_drop(to.port(m), drop::RING_FULL, want - got).await;
    entered(&port.tx_frames, (want - got) as usize);
    Switched::Done(want)
}

async fn deliver_run(m: &Memory, part: Part, from: u32, to: u32) {
    if to == 0 {
        copy_run(m, part).await;
    } else if to == from {
        exchange_run(m, part).await;
    } else {
        for i in 0..part.count {
            admit_frame(
                m,
                part,
                part.position.wrapping_add(i),
                part.slot.wrapping_add(i),
            )
            .await;
        }
    }
}

async fn call_run(m: &Memory, me: u32, caller: Caller) -> Result<(), CallError> {
    let port = m.port(me);
    step().await;
    if !is_up(port) {
        return Err(CallError::NetDown);
    }
    if swap(&port.busy, 0, 1).await != 0 {
        return Err(CallError::Busy);
    }
    add(&port.tx_calls, 1).await;
    let found = if m.has(Mutation::CallSeenLate) {
        target_exists(m, me).await
    } else {
        target_find(m, me).await
    };
    let Some(from) = found else {
        store(&port.busy, 0).await;
        return Err(CallError::NetDown);
    };
    let ring = from.ring.ring();
    let kind = way_kind(port_way(m, port).await);
    port.copies.set(0);
    store(&port.last_source, 0).await;
    let head = load(&ring.sender.tx_head).await;
    let mut frames = head.wrapping_sub(port.tx_pos.get());
    if frames > port.mask.get() + 1 {
        port.tx_bad_heads.set(port.tx_bad_heads.get() + 1);
        port.tx_pos.set(head);
        frames = 0;
    } else if kind != DEST_LINK && kind != DEST_SWITCH {
        drop_frames(port, drop::NO_ROUTE, frames).await;
        m.audit.consumed(frames);
        port.tx_pos.set(head);
        frames = 0;
    }
    let keeps = match caller {
        Caller::Instance { keeps } => keeps,
        Caller::IoThread => load(&ring.sender.tx_keep).await != 0,
    };
    let mut position = port.tx_pos.get();
    let end = position.wrapping_add(frames.min(CALL_FRAMES));
    let mut slots = 0;
    while position != end && slots < CALL_SLOTS {
        let done = match switch_run(m, me, position, end, keeps).await {
            Switched::Done(done) => done,
            Switched::Passed(done, more) => {
                slots += more;
                done
            }
            Switched::Flood => {
                flood_frame(m, me, position).await;
                1
            }
        };
        m.audit.consumed(done);
        position = position.wrapping_add(done);
        if done == 0 {
            break;
        }
    }
    step().await;
    port.tx_pos.set(position);
    if let Some(from) = target_unless(m, Mutation::TailNotWritten, me).await {
        store(&from.ring.ring().switch.tx_tail, position).await;
    }
    store(&port.busy, 0).await;
    Ok(())
}

/// Is the port in service?
pub(super) fn is_up(port: &Port) -> bool {
    port.flags.get() & PORT_UP != 0
}
