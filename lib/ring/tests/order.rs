//! The order in which frames leave: what an NF makes stays among the frames that it passes on where it was made.
#![cfg(all(feature = "port", not(loom)))]

mod served;

use nfluid_ring::engine::Engine;
use nfluid_ring::layout::{rx_desc_of, tx_desc_slot};
use nfluid_ring::port::Port;
use nfluid_ring::{Batch, Outbox, frame_at};
use served::{IN_SLOTS, ports};
use std::sync::atomic::Ordering;

const FRAME: u16 = 64;
const FRAMES: u32 = 4;

/// Frames wait in the first port's ring.
fn arrive(ports: &[Port; 2]) {
    for position in 0..FRAMES {
        let desc = rx_desc_of(FRAME, position + 1);
        ports[0].raw_ring().rx[position as usize].store(desc, Ordering::Release);
    }
}

/// Returns the frames that were queued on the second port, in order: the number of a frame that was passed on, `None`
/// for a frame that the NF made.
fn left(ports: &[Port; 2]) -> Vec<Option<u32>> {
    let ring = ports[1].raw_ring();
    let until = ring.sender.tx_head.load(Ordering::Acquire);
    let slot = |at: u32| tx_desc_slot(ring.tx[at as usize].load(Ordering::Acquire));
    let passed = |slot: u32| (slot < IN_SLOTS).then_some(slot);
    (0..until).map(|at| passed(slot(at))).collect()
}

// Catches: made frames queued at once, before those decided about; or all of them behind the batch.
// promise: 10.25
#[test]
fn what_is_made_leaves_where_it_was_made() {
    let mut ports = ports();
    arrive(&ports);
    let taken = Engine::new().run_once(&mut ports, 0, &mut |batch: &mut Batch<'_, '_>| {
        let (frames, outbox) = batch.split();
        for at in 0..frames.len() {
            let (frame, mut outbox) = frame_at(frames, at, outbox);
            match at {
                // In its place: two frames.
                1 => assert!((0..2).all(|_| outbox.emit(1, frame.bytes()))),
                // Besides.
                3 => {
                    assert!(outbox.emit(1, frame.bytes()));
                    frame.send(1);
                }
                _ => frame.send(1),
            }
        }
    });
    assert_eq!(taken, FRAMES as usize);
    assert_eq!(left(&ports), [Some(0), None, None, Some(2), None, Some(3)]);
}

// Catches: frames queued twice, or not at all, when an NF has committed them.
// promise: 10.25
#[test]
fn emitted_frames_precede_the_batch_and_every_frame_leaves_once() {
    let mut ports = ports();
    arrive(&ports);
    let mut engine = Engine::new();
    engine.run_once(&mut ports, 0, &mut |batch: &mut Batch<'_, '_>| {
        let (frames, outbox) = batch.split();
        assert!(outbox.emit(1, frames[0].bytes()));
        frames.iter_mut().for_each(|frame| frame.send(1));
        outbox.commit(&frames[..2]);
        outbox.commit(&frames[..1]);
        frames[3].discard();
    });
    assert_eq!(left(&ports), [None, Some(0), Some(1), Some(2)]);
    let stats = engine.stats();
    assert_eq!(
        (stats.received, stats.forwarded, stats.discarded),
        (4, 3, 1)
    );
}

// Catches: descriptors written over those that an I/O thread has not consumed, when an NF makes more than it takes.
// promise: 10.26
#[test]
fn a_ring_that_is_full_of_what_was_made_takes_nothing_on_top() {
    let mut ports = ports();
    let [small, large] = &mut ports;
    std::mem::swap(small, large);
    arrive(&ports);
    let mut engine = Engine::new();
    let mut made = 0;
    engine.run_once(&mut ports, 0, &mut |batch: &mut Batch<'_, '_>| {
        let (frames, outbox) = batch.split();
        while outbox.emit(1, frames[0].bytes()) {
            made += 1;
        }
        frames.iter_mut().for_each(|frame| frame.send(1));
    });
    assert_eq!(made, ports[1].queued());
    assert_eq!(made, IN_SLOTS);
    assert_eq!(engine.stats().no_room, u64::from(FRAMES));
}
