//! The body that the property test and the fuzz target share: a port table, and rings that an adversary writes.

use nfluid_ring::attach::Attached;
use nfluid_ring::batch::{Batch, Outbox, frame_at};
use nfluid_ring::engine::Engine;
use nfluid_ring::layout::{
    BATCH_MAX, FRAME_MAX, FRAME_MIN, LONG_MAX, OFFLOAD_AT, RING_MAX, Ring, SLOT_SIZE, room_slots,
};
use nfluid_ring::memory::Pool;
use nfluid_ring::offload::Offload;
use nfluid_ring::port::{Port, PortFds, TakenSlot, WhenFull};
use nfluid_ring::table::{PortEntry, Table};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Larger pools are parsed, but not made.
const POOL_SLOTS_MAX: u32 = 8192;

/// Reads `input` as a table and, if it is one, what follows as what happens at its ports: writes of the peer at any
/// place of the rings, and calls of the owner. Whatever the rings say, each frame that is handed out lies in a slot of
/// its own port, or of its group's pool, has the length of a frame, and shares its slot with no other of its batch.
pub fn table_and_rings(input: &[u8]) {
    let Ok(table) = Table::parse(input) else {
        return;
    };
    let bytes = table.to_bytes();
    assert_eq!(Table::parse(&bytes).as_ref().ok(), Some(&table));
    assert_eq!(bytes, input[..bytes.len()]);
    if table.head.pool_slots == 0 || table.head.pool_slots > POOL_SLOTS_MAX {
        return;
    }
    let Some(mut ground) = Ground::new(&table) else {
        return;
    };
    let mut script = Script(&input[bytes.len()..]);
    while !script.0.is_empty() {
        ground.step(&mut script);
    }
}

/// The rest of the input; zeros when the input is over.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

/// Ports on memory of our own. Their sockets lead to no switch: every call fails.
pub struct Ground {
    pub ports: Vec<Port>,
    pool: Arc<Pool>,
    engine: Engine,
    taken: Option<(usize, TakenSlot)>,
}

fn memory(len: usize) -> OwnedFd {
    let file = memfd_create("ring", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, len as u64).expect("it grows");
    file
}

fn io_doorbell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

fn no_switch() -> OwnedFd {
    File::open("/dev/null").expect("it is there").into()
}

impl Ground {
    pub fn new(table: &Table) -> Option<Self> {
        let slots = table.head.pool_slots;
        let memory_of_pool = memory(slots as usize * SLOT_SIZE);
        let pool = Pool::of(&table.head, memory_of_pool.as_fd()).expect("it is there");
        let pool = Arc::new(pool);
        let attach = |entry: &PortEntry| {
            let fds = PortFds {
                socket: no_switch(),
                ring: memory(size_of::<Ring>()),
                peer_doorbell: None,
                io_doorbell: Some(Arc::new(io_doorbell())),
            };
            Attached::port(entry, fds, Arc::clone(&pool)).expect("the table was checked")
        };
        // Two are enough to go from one to the other.
        let ports: Vec<Port> = table.ports.iter().take(2).map(attach).collect();
        (!ports.is_empty()).then(|| Self {
            ports,
            pool,
            engine: Engine::new(),
            taken: None,
        })
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let choice = script.byte();
        let at = usize::from(choice >> 7) % self.ports.len();
        match choice & 0x0f {
            0..4 => self.peer_publishes(at, script),
            4 | 5 => self.peer_writes(at, script),
            6 => self.receive(at, script),
            7 => self.take(at),
            8 => self.look_at_taken(),
            9 => self.ports[at].release_to(script.word()),
            10 => self.send(at, script),
            11 => self.ports[at].queue_raw(script.half(), script.word()),
            12 => self.flush(at, script),
            13 => self.ports[at].discard_queued(),
            _ => self.engine_runs(at, script),
        }
    }

    /// A descriptor that the receiver takes for the next frames, of whatever length.
    fn peer_publishes(&self, at: usize, script: &mut Script<'_>) {
        let port = &self.ports[at];
        let ahead = u32::from(script.byte() % 80);
        let position = port.taken().wrapping_add(ahead);
        let index = (position & (port.entry().ring_slots - 1)) as usize;
        let low = script.word();
        let desc = u64::from(low) | u64::from(position.wrapping_add(1)) << 32;
        port.raw_ring().rx[index].store(desc, Ordering::Release);
    }

    /// Any word of the rings.
    fn peer_writes(&self, at: usize, script: &mut Script<'_>) {
        let ring = self.ports[at].raw_ring();
        let place = script.byte();
        let index = usize::from(script.half()) % RING_MAX;
        let (low, high) = (script.word(), script.word());
        let desc = u64::from(low) | u64::from(high) << 32;
        match place % 11 {
            0 => ring.sender.tx_head.store(low, Ordering::Relaxed),
            1 => ring.switch.tx_tail.store(low, Ordering::Relaxed),
            2 => ring.switch.peer_asleep.store(low, Ordering::Relaxed),
            3 => ring.receiver.rx_released.store(desc, Ordering::Relaxed),
            4 => ring.receiver.rx_sleep.store(low, Ordering::Relaxed),
            5 => ring.tx[index].store(desc, Ordering::Relaxed),
            6 => ring.switch.served.store(low & 1, Ordering::Relaxed),
            7 => ring.switch.io_sleep.store(low, Ordering::Relaxed),
            8 => ring.sender.tx_sleep.store(low, Ordering::Relaxed),
            9 => ring.receiver.rx_seen.store(low, Ordering::Relaxed),
            _ => ring.rx[index].store(desc, Ordering::Relaxed),
        }
    }

    fn receive(&mut self, at: usize, script: &mut Script<'_>) {
        let max = usize::from(script.half());
        let entry = *self.ports[at].entry();
        let pool = Arc::clone(&self.pool);
        let before = self.ports[at].stats();
        let mut bytes = 0;
        let count = self.ports[at].receive_offload(max, |frame, offload| {
            check(&pool, &entry, frame);
            assert!(Offload::check(offload.words(frame.len()), frame.len()).is_ok());
            bytes += frame.len() as u64;
            frame.fill(0x5a);
        });
        let after = self.ports[at].stats();
        assert!(count <= max.min(entry.ring_slots as usize));
        assert_eq!(after.rx_frames - before.rx_frames, count as u64);
        assert_eq!(after.rx_bytes - before.rx_bytes, bytes);
    }

    fn take(&mut self, at: usize) {
        if let Some(taken) = self.ports[at].take_slot() {
            self.taken = Some((at, taken));
        }
    }

    fn look_at_taken(&self) {
        let Some((at, taken)) = &self.taken else {
            return;
        };
        let port = &self.ports[*at];
        if let Some(frame) = port.taken_frame(taken) {
            check(&self.pool, port.entry(), frame);
        }
    }

    fn send(&mut self, at: usize, script: &mut Script<'_>) {
        let len = usize::from(script.half());
        let port = &mut self.ports[at];
        port.collect();
        let (room, queued) = (port.room(), port.queued());
        // In a shared pool, the port has as many slots as it was given, which is any number here.
        let has_slot = port.next_tx_slot().is_some();
        assert!(has_slot == (room > 0) || self.pool.is_shared() && !has_slot);
        let sent = port.send(|slot| {
            assert_eq!(slot.len(), FRAME_MAX);
            slot.fill(0xa5);
            len
        });
        let is_frame = (FRAME_MIN..=FRAME_MAX).contains(&len);
        assert_eq!(sent, has_slot && is_frame);
        assert_eq!(port.queued(), queued.wrapping_add(u32::from(sent)));
        let entry = *port.entry();
        let pool = Arc::clone(&self.pool);
        let queued = port.queued();
        let sent = port.send_long(|slots| {
            let area = entry.tx_long_base..entry.tx_long_base + entry.tx_long_slots;
            assert_eq!(slots.len(), LONG_MAX);
            let first = slot_of(&pool, slots);
            assert!(area.contains(&first) && area.contains(&(first + 31)));
            slots.fill(0xb6);
            (len, Offload::NONE)
        });
        assert!(!sent || (entry.tx_long_slots > 0 && (FRAME_MIN..=LONG_MAX).contains(&len)));
        assert_eq!(port.queued(), queued.wrapping_add(u32::from(sent)));
    }

    fn flush(&mut self, at: usize, script: &mut Script<'_>) {
        let when_full = [WhenFull::Drop, WhenFull::Keep][usize::from(script.byte() % 2)];
        let port = &mut self.ports[at];
        let queued = port.queued();
        let flushed = port.flush(when_full);
        if port.is_served() {
            let consumed = flushed.expect("handed over");
            assert_eq!(port.queued(), queued - consumed);
        } else {
            assert_eq!(flushed.is_err(), queued > 0, "no switch");
            assert_eq!(port.queued(), 0);
        }
    }

    fn engine_runs(&mut self, at: usize, script: &mut Script<'_>) {
        let entry = *self.ports[at].entry();
        let pool = Arc::clone(&self.pool);
        let mut decide = |batch: &mut Batch<'_, '_>| {
            let mut slots = BTreeSet::new();
            let (frames, outbox) = batch.split();
            assert!(frames.len() <= BATCH_MAX);
            for at in 0..frames.len() {
                let (frame, mut outbox) = frame_at(frames, at, outbox);
                for slot in check(&pool, &entry, frame.bytes()) {
                    assert!(slots.insert(slot), "twice");
                }
                let choice = script.byte();
                let _fits = frame.resize(usize::from(script.half()));
                match choice % 3 {
                    0 => frame.send(choice >> 4),
                    1 => frame.discard(),
                    _ => {
                        let _room = outbox.emit(choice >> 4, frame.bytes());
                    }
                }
            }
        };
        let count = self.engine.run_once(&mut self.ports, at as u8, &mut decide);
        assert!(count <= BATCH_MAX);
        let stats = self.engine.stats();
        let decided = stats.forwarded + stats.discarded + stats.no_such_port + stats.no_room;
        assert_eq!(stats.received, decided);
    }
}

/// The slot of the pool that begins where these bytes do.
fn slot_of(pool: &Pool, bytes: &[u8]) -> u32 {
    let (start, len) = pool.as_raw_parts();
    let offset = (bytes.as_ptr() as usize).wrapping_sub(start as usize);
    assert!(offset < len && offset.is_multiple_of(SLOT_SIZE), "{offset}");
    (offset / SLOT_SIZE) as u32
}

/// The slots in which a frame lies, which are the port's, or of the group's.
fn check(pool: &Pool, entry: &PortEntry, frame: &[u8]) -> Range<u32> {
    assert!((FRAME_MIN..=LONG_MAX).contains(&frame.len()));
    let first = slot_of(pool, frame);
    let slots = first..first + room_slots(frame.len()) as u32;
    let own = if pool.is_shared() {
        0..pool.slots()
    } else if frame.len() <= FRAME_MAX {
        entry.rx_base..entry.rx_base + entry.ring_slots
    } else {
        entry.rx_long_base..entry.rx_long_base + entry.rx_long_slots
    };
    assert!(
        own.start <= slots.start && slots.end <= own.end,
        "{slots:?}"
    );
    assert!(frame.len() <= (slots.len() - 1) * SLOT_SIZE + OFFLOAD_AT);
    slots
}
