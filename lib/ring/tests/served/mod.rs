//! Two ports that an I/O thread on another core serves; the test plays the thread.

use nfluid_ring::attach::Attached;
use nfluid_ring::layout::{Ring, SERVED_FROM_ANY_CORE, SLOT_SIZE};
use nfluid_ring::memory::Pool;
use nfluid_ring::port::{Port, PortFds};
use nfluid_ring::table::PortEntry;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Slots of the first port's ring.
pub const IN_SLOTS: u32 = 64;
/// Slots of the second port's ring.
pub const OUT_SLOTS: u32 = 256;

fn memory(len: usize) -> OwnedFd {
    let file = memfd_create("room", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, len as u64).expect("it grows");
    file
}

fn port(pool: &Arc<Pool>, ring_slots: u32, rx_base: u32) -> Port {
    let entry = PortEntry {
        name: [0; 32],
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        queue: 0,
        queues: 1,
        socket_fd: -1,
        ring_fd: -1,
        peer_doorbell_fd: -1,
        ring_slots,
        rx_base,
        tx_base: rx_base + ring_slots,
        tx_slots: 64,
        ..PortEntry::default()
    };
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let fds = PortFds {
        socket: File::open("/dev/null").expect("it is there").into(),
        ring: memory(size_of::<Ring>()),
        peer_doorbell: None,
        io_doorbell: Some(Arc::new(doorbell)),
    };
    let port = Attached::port(&entry, fds, Arc::clone(pool)).expect("a port");
    let served = &port.raw_ring().switch.served;
    served.store(SERVED_FROM_ANY_CORE, Ordering::Release);
    port
}

/// A small ring in, a large one out.
pub fn ports() -> [Port; 2] {
    let slots = IN_SLOTS + OUT_SLOTS + 128;
    let file = memory(slots as usize * SLOT_SIZE);
    let pool = Arc::new(Pool::map(file.as_fd(), slots).expect("a pool"));
    [
        port(&pool, IN_SLOTS, 0),
        port(&pool, OUT_SLOTS, IN_SLOTS + 64),
    ]
}
