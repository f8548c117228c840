//! The queue under loom's exhaustive scheduler: messages arrive once, in order, with what was written before them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p nfluid-dataflow --release --test loom_queue`
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use nfluid_dataflow::queue::{Word, queue};

/// One more than the queue's two lines of two slots hold: the producer has to reuse a slot.
const MESSAGES: u64 = 5;

// promise: 29.3
#[test]
fn messages_arrive_once_in_order_with_what_was_written_before() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut producer, mut consumer) = queue(2);
        let payload = Arc::new([UnsafeCell::new(0_u64), UnsafeCell::new(0_u64)]);
        let sent = payload.clone();
        let sender = thread::spawn(move || {
            for message in 1..=MESSAGES {
                if message >= MESSAGES - 1 {
                    let at = (MESSAGES - message) as usize;
                    // SAFETY: the receiver reads this cell after this message only.
                    sent[at].with_mut(|cell| unsafe { *cell = message });
                }
                while !producer.push(Word::new(message).unwrap()) {
                    thread::yield_now();
                }
            }
        });
        for expected in 1..=MESSAGES {
            let message = loop {
                match consumer.pop() {
                    Some(message) => break message.get(),
                    None => thread::yield_now(),
                }
            };
            assert_eq!(message, expected);
            if message >= MESSAGES - 1 {
                let at = (MESSAGES - message) as usize;
                // SAFETY: the sender wrote this cell before this message, and never again.
                assert_eq!(payload[at].with(|cell| unsafe { *cell }), message);
            }
        }
        assert!(consumer.pop().is_none());
        sender.join().unwrap();
    });
}
