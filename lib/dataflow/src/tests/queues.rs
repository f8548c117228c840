//! Queues between threads; messages of peers that lie.

use std::thread;

use proptest::prelude::*;

use crate::message::Message;
use crate::queue::{Word, queue};

fn word(value: u64) -> Word {
    Word::new(value).unwrap()
}

// promise: 29.3
#[test]
fn a_full_queue_takes_nothing_and_loses_nothing() {
    // Two lines for the messages, one that the consumer has not freed, and what makes a power of two.
    const ROOM: usize = 32;
    let (mut producer, mut consumer) = queue(16);
    let words: Vec<Word> = (1..=40).map(word).collect();
    assert_eq!(producer.push_all(&words), ROOM);
    assert!(!producer.push(words[ROOM]));
    // A line is freed as a whole.
    for received in &words[..8] {
        assert!(!producer.push(words[ROOM]));
        assert_eq!(consumer.pop(), Some(*received));
    }
    assert_eq!(producer.push_all(&words[ROOM..]), 8);
    let mut received = [word(u64::MAX); 40];
    assert_eq!(consumer.pop_all(&mut received), ROOM);
    assert_eq!(received[..ROOM], words[8..]);
    assert_eq!(consumer.pop(), None);
}

// promise: 29.3
#[test]
fn a_stream_between_threads_arrives_once_and_in_order() {
    const MESSAGES: u64 = 300_000;
    for room in [1, 8, 64, 1000] {
        let (mut producer, mut consumer) = queue(room);
        let sender = thread::spawn(move || {
            for message in 1..=MESSAGES {
                while !producer.push(word(message)) {
                    thread::yield_now();
                }
            }
        });
        for message in 1..=MESSAGES {
            let received = loop {
                match consumer.pop() {
                    Some(received) => break received,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(received.get(), message);
        }
        sender.join().unwrap();
        assert_eq!(consumer.pop(), None);
    }
}

proptest! {
    // promise: 29.3
    #[test]
    fn a_word_is_a_message_or_refused(value in 1_u64..) {
        if let Some(message) = Message::decode(word(value)) {
            prop_assert_eq!(message.encode().get(), value);
        }
    }

    // promise: 29.3
    #[test]
    fn a_message_survives_its_encoding(slot in 0_u16.., unit in 0_u32..) {
        for message in [
            Message::Graph(slot, unit),
            Message::Run(slot, unit),
            Message::Done(slot, unit),
            Message::Failed(slot, unit),
            Message::Stop,
        ] {
            prop_assert_eq!(Message::decode(message.encode()), Some(message));
        }
    }
}
