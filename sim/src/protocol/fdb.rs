//! `bpf/switch/fdb.h`. Addresses do not age here.

use super::deliver::{DEST_SWITCH, owner_on, port_way, way_dest, way_kind};
use super::memory::{Entry, Memory, Port, add, load, swap};
use super::mutation::Mutation;
use super::schedule::step;
use std::cell::Cell;
use std::rc::Rc;

pub(super) const OWNER_PINNED: u64 = 1 << 63;
pub(super) const MAC_GROUP: u64 = 1;
/// Entries of the table.
pub(super) const FDB_MAX: usize = 65536;

async fn entry_of(m: &Memory, sw: u32, address: u64) -> Option<Rc<Entry>> {
    step().await;
    m.fdb.borrow().get(&(sw, address)).cloned()
}

/// Do addresses of this owner count? The look-up and the daemon ask.
pub async fn counts(m: &Memory, owner: u64) -> bool {
    if owner & OWNER_PINNED != 0
        || m.has(Mutation::EntryWithoutGeneration)
        || m.has(Mutation::NoMembershipCheck)
    {
        return true;
    }
    let id = owner as u32;
    owner_on(id, port_way(m, m.port(id)).await) == owner
}

pub(super) async fn fdb_find(m: &Memory, sw: u32, address: u64) -> Option<u32> {
    let entry = entry_of(m, sw, address).await?;
    let owner = load(&entry.owner).await;
    counts(m, owner).await.then_some(owner as u32)
}

async fn fdb_move(m: &Memory, entry: &Entry, was: u64, owner: u64, port: &Port) -> bool {
    let is_own = was as u32 == owner as u32;
    if !is_own && load(&port.fdb_used).await >= port.fdb_limit.get() {
        add(&port.fdb_refused, 1).await;
        return false;
    }
    if swap(&entry.owner, was, owner).await != was || is_own {
        return true;
    }
    let before = &m.port(was as u32).fdb_used;
    if load(before).await > 0 {
        step().await;
        before.set(before.get().wrapping_sub(1));
    }
    add(&port.fdb_used, 1).await;
    true
}

pub(super) async fn fdb_learn(m: &Memory, port: &Port, me: u32, address: u64) -> bool {
    let way = port_way(m, port).await;
    if address & MAC_GROUP != 0 {
        return false;
    }
    if way_kind(way) != DEST_SWITCH {
        return true;
    }
    let (sw, fresh) = (way_dest(way), owner_on(me, way));
    if let Some(entry) = entry_of(m, sw, address).await {
        let owner = load(&entry.owner).await;
        if owner & OWNER_PINNED != 0 {
            return owner as u32 == me;
        }
        if owner != fresh {
            fdb_move(m, &entry, owner, fresh, port).await;
        }
        return true;
    }
    let is_full = load(&port.fdb_used).await >= port.fdb_limit.get();
    if is_full || !insert(m, (sw, address), fresh).await {
        add(&port.fdb_refused, 1).await;
    } else {
        add(&port.fdb_used, 1).await;
    }
    true
}

/// An update with `BPF_NOEXIST`.
async fn insert(m: &Memory, key: (u32, u64), owner: u64) -> bool {
    step().await;
    let mut table = m.fdb.borrow_mut();
    if table.contains_key(&key) || table.len() >= FDB_MAX {
        return false;
    }
    let owner = Cell::new(owner);
    table.insert(key, Rc::new(Entry { owner }));
    true
}
