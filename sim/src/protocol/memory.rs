//! Memory that the actors share: the program's maps (`bpf/switch/switch_maps.h`), and the rings and pools of
//! instances.

use super::audit::Audit;
use super::mutation::Mutation;
use super::schedule::step;
use nfluid_ring::layout::{BLOCK_SLOTS, OFFLOAD_AT, Ring, SLOT_SIZE};
use nfluid_ring::memory::RingMemory;
use nfluid_ring::offload::OFFLOAD_BYTES;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// `enum nfl_drop`, by number: see `nfluid_switch::DropReason`.
pub const DROPS: usize = 32;
/// `NFL_PORT_UP` and the flags of a port's addresses.
pub const PORT_UP: u32 = 1;
/// Frames must carry the port's own address.
pub const PORT_PINNED: u32 = 2;
/// Source addresses enter the FDB.
pub const PORT_LEARN: u32 = 4;
/// The port has slots for long frames.
pub const PORT_LONG: u32 = 1 << 6;
/// The port takes frames with a partial checksum.
pub const PORT_CHECKSUMS: u32 = 1 << 7;
/// The port takes super-frames.
pub const PORT_SUPER: u32 = 1 << 8;

/// Where a port's frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere.
    #[default]
    None,
    /// To this port.
    Link(u32),
    /// Into this switch.
    Switch(u32),
}

/// `struct nfl_port`, without what the model leaves out.
#[derive(Debug, Default)]
#[allow(
    missing_docs,
    reason = "the words are explained in bpf/switch/switch_types.h"
)]
pub struct Port {
    pub flags: Cell<u32>,
    pub mask: Cell<u32>,
    pub pool: Cell<u32>,
    pub rx_base: Cell<u32>,
    pub way: Cell<u64>,
    pub mac: Cell<u64>,
    pub fdb_limit: Cell<u32>,
    pub group: Cell<u32>,
    pub busy: Cell<u32>,
    pub tx_pos: Cell<u32>,
    pub tx_frames: Cell<u64>,
    pub tx_bytes: Cell<u64>,
    pub tx_calls: Cell<u64>,
    pub tx_bad_heads: Cell<u64>,
    pub last_source: Cell<u64>,
    pub fdb_used: Cell<u32>,
    pub fdb_refused: Cell<u32>,
    pub copies: Cell<u32>,
    pub rx_reserved: Cell<u64>,
    pub rx_frames: Cell<u64>,
    pub rx_bytes: Cell<u64>,
    pub drops: [Cell<u64>; DROPS],
    pub long_base: Cell<u32>,
    pub long_slots: Cell<u32>,
    pub tx_more_segments: Cell<u64>,
    pub tx_more_bytes: Cell<u64>,
    pub rx_more_segments: Cell<u64>,
    pub rx_more_bytes: Cell<u64>,
}

/// A word that others write.
pub trait Word {
    /// The type of the value.
    type Value: Copy + PartialEq;
    /// Reads it.
    fn get(&self) -> Self::Value;
    /// Writes it.
    fn set(&self, value: Self::Value);
}

impl<T: Copy + PartialEq> Word for Cell<T> {
    type Value = T;
    fn get(&self) -> T {
        self.get()
    }
    fn set(&self, value: T) {
        self.set(value);
    }
}

impl Word for AtomicU32 {
    type Value = u32;
    fn get(&self) -> u32 {
        self.load(SeqCst)
    }
    fn set(&self, value: u32) {
        self.store(value, SeqCst);
    }
}

impl Word for AtomicU64 {
    type Value = u64;
    fn get(&self) -> u64 {
        self.load(SeqCst)
    }
    fn set(&self, value: u64) {
        self.store(value, SeqCst);
    }
}

/// `READ_ONCE`.
pub async fn load<W: Word>(word: &W) -> W::Value {
    step().await;
    word.get()
}

/// `WRITE_ONCE`.
pub async fn store<W: Word>(word: &W, value: W::Value) {
    step().await;
    word.set(value);
}

/// `__sync_val_compare_and_swap`: returns what was there.
pub async fn swap<W: Word>(word: &W, old: W::Value, new: W::Value) -> W::Value {
    step().await;
    let was = word.get();
    if was == old {
        word.set(new);
    }
    was
}

/// `__sync_fetch_and_add`.
pub async fn add<T: Copy + std::ops::Add<Output = T>>(word: &Cell<T>, more: T) {
    step().await;
    word.set(word.get() + more);
}

/// A port's rings: real ones, which instances attach to.
#[derive(Debug)]
pub struct RingFile {
    fd: OwnedFd,
    memory: RingMemory,
}

impl RingFile {
    /// Makes rings.
    ///
    /// # Panics
    /// When the kernel has no memory.
    pub fn create() -> Rc<Self> {
        let fd = memory_file(size_of::<Ring>());
        let memory = RingMemory::map(fd.as_fd()).expect("a ring can be mapped");
        Rc::new(RingFile { fd, memory })
    }

    /// The rings.
    pub fn ring(&self) -> &Ring {
        self.memory.ring()
    }

    /// For who attaches to them.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// # Panics
/// When the kernel has no memory.
pub(crate) fn memory_file(len: usize) -> OwnedFd {
    let fd = memfd_create("nfluid-model", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&fd, len as u64).expect("it grows");
    fd
}

/// The content of the slots. The real pool of an instance is mapped, and never touched.
#[derive(Debug)]
pub struct Pool(Vec<RefCell<Content>>);

/// A slot: the bytes of a frame, as far as they were written (zeros follow), and the last bytes.
#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    offload: [u8; OFFLOAD_BYTES],
}

impl Pool {
    /// A pool of so many slots, rounded up to blocks.
    pub fn create(slots: u32) -> Rc<Self> {
        let slots = (slots as usize).next_multiple_of(BLOCK_SLOTS);
        Rc::new(Pool(vec![RefCell::default(); slots]))
    }

    /// Slots.
    pub fn slots(&self) -> u32 {
        self.0.len() as u32
    }

    /// The `len` bytes from the start of a slot on. Behind the pool's end are zeros.
    pub fn read(&self, slot: u32, len: usize) -> Vec<u8> {
        let mut read = Vec::with_capacity(len);
        for content in self.0.iter().skip(slot as usize) {
            let content = content.borrow();
            let want = (len - read.len()).min(SLOT_SIZE);
            let head = want.min(OFFLOAD_AT);
            let written = head.min(content.bytes.len());
            read.extend_from_slice(&content.bytes[..written]);
            read.resize(read.len() + head - written, 0);
            read.extend_from_slice(&content.offload[..want - head]);
            if read.len() == len {
                break;
            }
        }
        read.resize(len, 0);
        read
    }

    /// Writes a frame from the start of a slot on; the bytes behind the frame stay.
    pub fn write(&self, slot: u32, frame: &[u8]) {
        for (content, part) in self.0[slot as usize..].iter().zip(frame.chunks(SLOT_SIZE)) {
            let mut content = content.borrow_mut();
            let (bytes, rest) = part.split_at(part.len().min(OFFLOAD_AT));
            if content.bytes.len() < bytes.len() {
                content.bytes.resize(bytes.len(), 0);
            }
            content.bytes[..bytes.len()].copy_from_slice(bytes);
            content.offload[..rest.len()].copy_from_slice(rest);
        }
    }

    /// Copies the first `len` bytes of a slot into a slot of another pool.
    pub(super) fn copy(&self, slot: u32, to: (&Pool, u32), len: usize) {
        let (Some(from), Some(to)) = (self.0.get(slot as usize), to.0.0.get(to.1 as usize)) else {
            return;
        };
        if std::ptr::eq(from, to) {
            return;
        }
        let (from, mut to) = (from.borrow(), to.borrow_mut());
        let len = len.min(SLOT_SIZE);
        let written = len.min(from.bytes.len());
        if to.bytes.len() < written {
            to.bytes.resize(written, 0);
        }
        to.bytes[..written].copy_from_slice(&from.bytes[..written]);
        let end = len.min(to.bytes.len());
        to.bytes[written..end].fill(0);
        let rest = len.saturating_sub(OFFLOAD_AT);
        to.offload[..rest].copy_from_slice(&from.offload[..rest]);
    }

    /// The last bytes of a slot. Behind the pool's end are zeros.
    pub fn offload(&self, slot: u32) -> [u8; OFFLOAD_BYTES] {
        let content = self.0.get(slot as usize);
        content.map_or([0; OFFLOAD_BYTES], |content| content.borrow().offload)
    }

    /// Writes the last bytes of a slot.
    pub fn set_offload(&self, slot: u32, words: [u8; OFFLOAD_BYTES]) {
        if let Some(content) = self.0.get(slot as usize) {
            content.borrow_mut().offload = words;
        }
    }
}

/// `struct nfl_fdb_entry`.
#[derive(Debug)]
pub struct Entry {
    /// The port, and how it was connected.
    pub owner: Cell<u64>,
}

/// All that is shared.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "the maps are explained in bpf/switch/switch_maps.h"
)]
pub struct Memory {
    pub ports: Vec<Port>,
    pub rings: RefCell<Vec<Rc<RingFile>>>,
    pub pools: RefCell<Vec<Rc<Pool>>>,
    pub switches: Vec<RefCell<Vec<u32>>>,
    pub fdb: RefCell<BTreeMap<(u32, u64), Rc<Entry>>>,
    /// The owner of each slot of a group's pool, by group.
    pub owners: Vec<Vec<Cell<u32>>>,
    /// Calls under way that the kernel's grace periods wait for.
    readers: RefCell<BTreeSet<u64>>,
    next_reader: Cell<u64>,
    pub placeholder: (Rc<RingFile>, Rc<Pool>),
    pub mutation: Option<Mutation>,
    pub audit: Audit,
}

/// Trust groups of a model: number 0 is none.
const GROUPS: usize = 2;

impl Memory {
    /// Ports 0 to `ports` - 1, none of which is there yet, as many pools, and switches.
    pub fn new(
        ports: usize,
        switches: usize,
        group_slots: u32,
        mutation: Option<Mutation>,
    ) -> Rc<Self> {
        let placeholder = (RingFile::create(), Pool::create(BLOCK_SLOTS as u32));
        Rc::new(Memory {
            ports: (0..ports).map(|_| Port::default()).collect(),
            rings: RefCell::new(vec![Rc::clone(&placeholder.0); ports]),
            pools: RefCell::new(vec![Rc::clone(&placeholder.1); ports]),
            switches: (0..switches).map(|_| RefCell::default()).collect(),
            fdb: RefCell::default(),
            owners: vec![vec![Cell::new(0); group_slots as usize]; GROUPS],
            readers: RefCell::default(),
            next_reader: Cell::new(0),
            placeholder,
            mutation,
            audit: Audit::new(ports),
        })
    }

    /// Has the run this defect?
    pub fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// A port; numbers are instances' words nowhere.
    pub fn port(&self, number: u32) -> &Port {
        &self.ports[number as usize]
    }

    /// A call begins that grace periods wait for.
    pub fn enter(&self) -> u64 {
        let reader = self.next_reader.get();
        self.next_reader.set(reader + 1);
        self.readers.borrow_mut().insert(reader);
        reader
    }

    /// Notes that the call is over.
    pub fn leave(&self, reader: u64) {
        self.readers.borrow_mut().remove(&reader);
    }

    /// A grace period of the kernel.
    pub async fn synchronize(&self) {
        let begun = self.next_reader.get();
        while self.readers.borrow().first().is_some_and(|it| *it < begun) {
            step().await;
        }
    }
}
