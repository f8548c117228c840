//! What an I/O thread has consumed ends a sleep when slots are short, or when they are the sleeper's own.
#![cfg(all(feature = "port", not(loom)))]

use nfluid_ring::attach::{Attached, PortEntry, PortFds};
use nfluid_ring::doorbell::{Doorbell, Woken};
use nfluid_ring::layout::{Ring, SERVED_APART, SLOT_SIZE};
use nfluid_ring::memory::Pool;
use nfluid_ring::port::{Port, WhenFull};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const IN_SLOTS: u32 = 64;
const OUT_SLOTS: u32 = 256;
const FRAME: usize = 64;

fn memory(len: usize) -> OwnedFd {
    let file = memfd_create("room", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, len as u64).expect("it grows");
    file
}

/// A port that an I/O thread on another core serves; the test plays the thread.
fn port(pool: &Arc<Pool>, ring_slots: u32, rx_base: u32) -> Port {
    let entry = PortEntry {
        name: [0; 32],
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        queue: 0,
        queues: 1,
        socket_fd: -1,
        ring_fd: -1,
        peer_bell_fd: -1,
        ring_slots,
        rx_base,
        tx_base: rx_base + ring_slots,
        tx_slots: 64,
    };
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let fds = PortFds {
        socket: File::open("/dev/null").expect("it is there").into(),
        ring: memory(size_of::<Ring>()),
        peer_bell: None,
        io_bell: Some(Arc::new(bell)),
    };
    let port = Attached::port(&entry, fds, Arc::clone(pool)).expect("a port");
    let served = &port.raw_ring().switch.served;
    served.store(SERVED_APART, Ordering::Release);
    port
}

/// A small ring in, a large one out.
fn ports() -> [Port; 2] {
    let slots = IN_SLOTS + OUT_SLOTS + 128;
    let file = memory(slots as usize * SLOT_SIZE);
    let pool = Arc::new(Pool::map(file.as_fd(), slots).expect("a pool"));
    [
        port(&pool, IN_SLOTS, 0),
        port(&pool, OUT_SLOTS, IN_SLOTS + 64),
    ]
}

/// How a sleep ends after the I/O thread has consumed one frame of the second port.
fn after_one_is_consumed(ports: &mut [Port; 2]) -> Woken {
    let flushed = ports[1].flush(WhenFull::Drop).expect("nobody is called");
    assert_eq!(flushed, 0);
    ports[1]
        .raw_ring()
        .switch
        .tx_tail
        .fetch_add(1, Ordering::Release);
    let mut doorbell = Doorbell::new(None, None).expect("a doorbell");
    let woken = doorbell.wait(ports, None, Duration::from_millis(1));
    woken.expect("it sleeps")
}

fn pass_on(ports: &mut [Port; 2], count: u32) {
    for slot in 0..count {
        ports[1].queue_raw(FRAME as u16, slot);
    }
}

#[test]
fn who_passes_on_little_sleeps_on() {
    let mut ports = ports();
    pass_on(&mut ports, IN_SLOTS / 2 - 1);
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Nothing);
}

#[test]
fn who_passes_on_half_of_the_smallest_ring_is_woken() {
    let mut ports = ports();
    pass_on(&mut ports, IN_SLOTS / 2);
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Consumed);
}

#[test]
fn who_sends_frames_of_its_own_is_woken_until_all_are_consumed() {
    let mut ports = ports();
    for _ in 0..2 {
        assert!(ports[1].send(|_| FRAME));
    }
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Consumed);
    assert_eq!(ports[1].collect(), 1);
    pass_on(&mut ports, 1);
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Consumed);
    ports[1]
        .raw_ring()
        .switch
        .tx_tail
        .fetch_add(1, Ordering::Release);
    assert_eq!(ports[1].collect(), 2);
    pass_on(&mut ports, 2);
    assert_eq!(
        after_one_is_consumed(&mut ports),
        Woken::Nothing,
        "they are all others'"
    );
}
