//! Senders that lie: what a sender says beside a frame is checked, and its descriptors reach no byte of others.

use crate::switch_fixture::for_each_form;
use crate::{content, instance, linked, offload_for, received, send};
use nfluid_ring::layout::{
    DESC_OFFLOAD, LONG_MAX, OFFLOAD_AT, SLOT_SIZE, frame_slots, tx_desc_long,
};
use nfluid_ring::offload::OFFLOAD_BYTES;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_ring::{Level, Offload};
use nfluid_switch::DropReason;
use nfluid_testbed::random::Random;
use std::sync::atomic::Ordering::Relaxed;

/// Writes a descriptor and words beside the frame as no library would.
pub fn queue_hostile(port: &mut Port, desc: u64, words: [u8; OFFLOAD_BYTES]) {
    let slot = (desc >> 32) as u32;
    let last = slot as usize + (desc >> 17 & 31) as usize;
    let (start, len) = port.pool().as_raw_parts();
    let at = last * SLOT_SIZE + OFFLOAD_AT;
    if at + OFFLOAD_BYTES <= len {
        // SAFETY: the bytes lie in the pool's mapping; in this thread alone the port's owner writes there, and the
        // switch reads them once.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), start.add(at), OFFLOAD_BYTES) };
    }
    let mask = port.entry().ring_slots - 1;
    port.queue_raw(60, 0);
    let index = (port.raw_ring().sender.tx_head.load(Relaxed) + port.queued() - 1) & mask;
    port.raw_ring().tx[index as usize].store(desc, Relaxed);
}

// promise: 1.44
#[test]
fn metadata_that_lies_is_refused_and_what_arrives_was_checked() {
    for_each_form("lies", |scratch| {
        let [(a, mut from), (b, mut to)] = linked(scratch, 256, Level::Super);
        let base = from.entry().tx_long_base;
        let mut random = Random(7);
        let (mut arrived, mut refused) = (0, 0);
        for round in 0..20_000 {
            let len = [60, 1514, 2032, 2033, 9014, 65_520][random.below(6) as usize];
            let good = offload_for(len, random.below(2)).words(len);
            let mut words: [u8; OFFLOAD_BYTES] = std::array::from_fn(|_| random.below(256) as u8);
            // Most lies are near the truth.
            if !random.one_in(4) {
                let lies = words;
                words = good;
                for _ in 0..1 + random.below(3) {
                    let at = random.below(10) as usize;
                    words[at] = lies[at];
                }
            }
            let slots = frame_slots(len) as u8;
            queue_hostile(
                &mut from,
                tx_desc_long(len as u16, base, slots) | DESC_OFFLOAD,
                words,
            );
            from.flush(WhenFull::Drop).expect("flush");
            let want = Offload::check(words, len);
            let got = received(&mut to);
            match want {
                Ok(offload) => {
                    assert_eq!(got.len(), 1, "round {round}: {words:?}");
                    assert_eq!((got[0].0.len(), got[0].1), (len, offload), "{words:?}");
                    arrived += 1;
                }
                Err(_) => {
                    assert!(got.is_empty(), "round {round}: {words:?}");
                    refused += 1;
                }
            }
        }
        let (sender, receiver) = (
            scratch.switch.counters(a.id(0)),
            scratch.switch.counters(b.id(0)),
        );
        assert!(arrived > 1000 && refused > 1000, "{arrived} {refused}");
        assert_eq!(sender.dropped(DropReason::BadOffload), refused);
        assert_eq!((sender.tx_frames, receiver.rx_frames), (20_000, arrived));
        assert_eq!(receiver.dropped_total(), 0);
        assert_eq!(sender.tx_more_bytes, receiver.rx_more_bytes);
    });
}

// promise: 1.44
#[test]
fn descriptors_that_lie_reach_no_byte_of_others() {
    for_each_form("descriptors", |scratch| {
        let [(a, mut from), (b, mut to)] = linked(scratch, 256, Level::Super);
        // A neighbour whose memory must not change.
        let mut witness = instance(scratch, 64, Level::Super);
        let [(_, mut other), (_, _)] = linked(scratch, 64, Level::Super);
        let mut peer = instance(scratch, 64, Level::Super);
        scratch
            .link((&mut witness, 0), (&mut peer, 0))
            .expect("link");
        let witness_port = witness.attach().expect("attach").ports.remove(0);
        let (start, len) = witness_port.pool().as_raw_parts();
        // SAFETY: the mapping lives as long as the port; no other thread uses this memory.
        let memory = unsafe { std::slice::from_raw_parts_mut(start, len) };
        memory.fill(0xc3);
        let mut random = Random(11);
        let pool_slots = from.pool().slots();
        for _ in 0..20_000 {
            let slot = match random.below(4) {
                0 => random.below(u32::MAX),
                _ => random.below(pool_slots + 64),
            };
            let len = random.below(1 << 16) as u16;
            let desc = tx_desc_long(len, slot, 1 + random.below(32) as u8)
                | if random.one_in(2) { DESC_OFFLOAD } else { 0 };
            queue_hostile(&mut from, desc, [0; OFFLOAD_BYTES]);
            if random.one_in(3) {
                from.flush(WhenFull::Drop).expect("flush");
                for (bytes, _) in received(&mut to) {
                    assert!((14..=LONG_MAX).contains(&bytes.len()));
                }
            }
        }
        from.flush(WhenFull::Drop).expect("flush");
        received(&mut to);
        assert!(memory.iter().all(|byte| *byte == 0xc3));
        let (sender, receiver) = (
            scratch.switch.counters(a.id(0)),
            scratch.switch.counters(b.id(0)),
        );
        let accounted = receiver.rx_frames + receiver.dropped_total() + sender.dropped_total();
        assert_eq!(sender.tx_frames, accounted, "{sender:?} {receiver:?}");
        assert!(sender.dropped(DropReason::BadIndex) > 0);
        // The neighbours' link works on.
        send(&mut other, &(content(40_000, 3), Offload::NONE));
        assert_eq!(other.flush(WhenFull::Drop).expect("flush"), 1);
    });
}
