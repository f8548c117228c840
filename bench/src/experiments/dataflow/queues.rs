//! B1, B2 of Superfluidity D5.2: what a 64-bit message between two threads costs, by kind of queue.
//!
//! All queues carry the same words between the same two cores, in turn within each round. The rivals are used as their
//! documentation advises: rtrb in chunks where a batch is sent.

use super::rows::Rows;
use crate::host::cpu::{pin, require_two_cores};
use crate::host::distance::core_to_core_ns;
use crate::report::Report;
use crossbeam_queue::ArrayQueue;
use nfluid_dataflow::queue::{Consumer, Producer, Word, queue};

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// Room of each queue, in messages.
const ROOM: usize = 1024;
/// Messages of a batch.
const BATCH: usize = 32;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, messages) = report.effort((15, 4_000_000), (5, 400_000));
    let mut rows = Rows::default();
    for _ in 0..rounds {
        report.settle();
        let hand_over = core_to_core_ns([0, 1]).unwrap_or(f64::NAN);
        rows.add(
            "dataflow.hand_over_ns",
            "a cache line from core to core",
            "ns",
            hand_over,
        );
        round(&mut rows, messages);
    }
    let over = "dataflow.hand_over_ns";
    rows.ratio(
        "dataflow.queue.oneway.vs_hand_over",
        "ours, one way, over a cache line",
        "dataflow.queue.oneway_ns",
        over,
    );
    rows.ratio(
        "dataflow.queue.vs_mutex",
        "ours over mutex and condition variable, stream",
        "dataflow.queue.stream1_mps",
        "dataflow.queue.mutex.stream1_mps",
    );
    rows.ratio(
        "dataflow.queue.vs_rtrb",
        "ours over rtrb, stream in batches",
        "dataflow.queue.stream32_mps",
        "dataflow.queue.rtrb.stream32_mps",
    );
    rows.finish(
        report,
        "A message of 64 bits between threads",
        "cores 0 and 1, room for 1024 messages",
    );
    Ok(())
}

fn round(rows: &mut Rows, messages: usize) {
    same_thread(rows, messages);
    let mut add = |queue: &str, name: &str, measured: Measured| {
        let id =
            |figure: &str| format!("dataflow.queue{queue}.{figure}").replace("queue..", "queue.");
        rows.add(
            &id("stream1_mps"),
            &format!("{name}, stream, one by one"),
            "M/s",
            measured.one,
        );
        rows.add(
            &id("stream32_mps"),
            &format!("{name}, stream, batches of 32"),
            "M/s",
            measured.batch,
        );
        rows.add(
            &id("oneway_ns"),
            &format!("{name}, one way, one in flight"),
            "ns",
            measured.one_way,
        );
    };
    add("", "ours", measure(ours, messages));
    add(".rtrb", "rtrb", measure(rtrb_ends, messages));
    add(".array", "ArrayQueue", measure(array_ends, messages));
    // Slower by two orders: fewer messages.
    add(
        ".mutex",
        "mutex and condition variable",
        measure(mutex_ends, messages / 10),
    );
    completions(rows, messages);
}

struct Measured {
    one: f64,
    batch: f64,
    one_way: f64,
}

fn measure<S, R>(ends: impl Fn() -> (S, R), messages: usize) -> Measured
where
    S: FnMut(&[Word]) + Send,
    R: FnMut(&mut [Word]) + Send,
{
    Measured {
        one: stream::<1, S, R>(ends(), messages),
        batch: stream::<BATCH, S, R>(ends(), messages),
        one_way: ping_pong(ends(), ends(), messages / 20),
    }
}

/// Million messages per second from core 1 to core 0.
fn stream<const N: usize, S, R>((mut send, mut receive): (S, R), messages: usize) -> f64
where
    S: FnMut(&[Word]) + Send,
    R: FnMut(&mut [Word]) + Send,
{
    let batches = messages / N;
    let seconds = thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let words = [Word::MAX; N];
            for _ in 0..batches {
                send(&words);
            }
        });
        let receiver = scope.spawn(move || {
            pin(0);
            let mut words = [Word::MIN; N];
            receive(&mut words);
            let begun = Instant::now();
            for _ in 1..batches {
                receive(&mut words);
            }
            begun.elapsed().as_secs_f64()
        });
        receiver.join().unwrap_or(f64::NAN)
    });
    (batches - 1) as f64 * N as f64 / seconds / 1e6
}

/// Nanoseconds of one way, as half of a round trip.
fn ping_pong<S, R>(to: (S, R), back: (S, R), trips: usize) -> f64
where
    S: FnMut(&[Word]) + Send,
    R: FnMut(&mut [Word]) + Send,
{
    let ((mut send, mut receive_there), (mut send_back, mut receive)) = (to, back);
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let mut word = [Word::MIN];
            for _ in 0..trips {
                receive_there(&mut word);
                send_back(&word);
            }
        });
        let here = scope.spawn(move || {
            pin(0);
            let mut word = [Word::MAX];
            let begun = Instant::now();
            for _ in 0..trips {
                send(&[Word::MAX]);
                receive(&mut word);
            }
            begun.elapsed().as_nanos() as f64 / (2 * trips) as f64
        });
        here.join().unwrap_or(f64::NAN)
    })
}

fn send_all(producer: &mut Producer, mut words: &[Word]) {
    while !words.is_empty() {
        let sent = producer.push_all(words);
        words = &words[sent..];
        if sent == 0 {
            spin_loop();
        }
    }
}

fn receive_all(consumer: &mut Consumer, words: &mut [Word]) {
    let mut received = 0;
    while received < words.len() {
        let more = consumer.pop_all(&mut words[received..]);
        received += more;
        if more == 0 {
            spin_loop();
        }
    }
}

fn ours() -> (impl FnMut(&[Word]) + Send, impl FnMut(&mut [Word]) + Send) {
    let (mut producer, mut consumer) = queue(ROOM);
    (
        move |words: &[Word]| send_all(&mut producer, words),
        move |words: &mut [Word]| receive_all(&mut consumer, words),
    )
}

fn rtrb_ends() -> (impl FnMut(&[Word]) + Send, impl FnMut(&mut [Word]) + Send) {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<Word>::new(ROOM);
    let send = move |words: &[Word]| {
        if let [word] = words {
            while producer.push(*word).is_err() {
                spin_loop();
            }
            return;
        }
        let chunk = loop {
            match producer.write_chunk_uninit(words.len()) {
                Ok(chunk) => break chunk,
                Err(_) => spin_loop(),
            }
        };
        chunk.fill_from_iter(words.iter().copied());
    };
    let receive = move |words: &mut [Word]| {
        if let [word] = words {
            *word = loop {
                match consumer.pop() {
                    Ok(word) => break word,
                    Err(_) => spin_loop(),
                }
            };
            return;
        }
        let chunk = loop {
            match consumer.read_chunk(words.len()) {
                Ok(chunk) => break chunk,
                Err(_) => spin_loop(),
            }
        };
        for (place, word) in words.iter_mut().zip(chunk) {
            *place = word;
        }
    };
    (send, receive)
}

fn array_ends() -> (impl FnMut(&[Word]) + Send, impl FnMut(&mut [Word]) + Send) {
    let sender = std::sync::Arc::new(ArrayQueue::new(ROOM));
    let receiver = sender.clone();
    let send = move |words: &[Word]| {
        for &word in words {
            while sender.push(word).is_err() {
                spin_loop();
            }
        }
    };
    let receive = move |words: &mut [Word]| {
        for place in words {
            *place = loop {
                match receiver.pop() {
                    Some(word) => break word,
                    None => spin_loop(),
                }
            };
        }
    };
    (send, receive)
}

/// A queue under a mutex: a condition variable for each side, the lock taken once per batch.
#[derive(Default)]
struct Locked {
    words: Mutex<VecDeque<Word>>,
    filled: Condvar,
    emptied: Condvar,
}

fn mutex_ends() -> (impl FnMut(&[Word]) + Send, impl FnMut(&mut [Word]) + Send) {
    let sender = std::sync::Arc::new(Locked::default());
    let receiver = sender.clone();
    let send = move |words: &[Word]| {
        let queue = sender.words.lock().unwrap_or_else(PoisonError::into_inner);
        let room = |queue: &mut VecDeque<Word>| queue.len() + words.len() > ROOM;
        let queue = sender.emptied.wait_while(queue, room);
        queue.unwrap_or_else(PoisonError::into_inner).extend(words);
        sender.filled.notify_one();
    };
    let receive = move |words: &mut [Word]| {
        let queue = receiver
            .words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let empty = |queue: &mut VecDeque<Word>| queue.len() < words.len();
        let queue = receiver.filled.wait_while(queue, empty);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        let count = words.len();
        for (place, word) in words.iter_mut().zip(queue.drain(..count)) {
            *place = word;
        }
        receiver.emptied.notify_one();
    };
    (send, receive)
}

/// Push and pop by one thread: instructions, without a cache line that moves.
fn same_thread(rows: &mut Rows, messages: usize) {
    let (mut producer, mut consumer) = queue(ROOM);
    let begun = Instant::now();
    let mut received = 0;
    for _ in 0..messages {
        producer.push(Word::MAX);
        received += usize::from(consumer.pop().is_some());
    }
    let took = begun.elapsed().as_nanos() as f64 / received.max(1) as f64;
    rows.add(
        "dataflow.queue.same_thread_ns",
        "ours, push and pop by one thread",
        "ns",
        took,
    );
}

/// Completions of two producers to one consumer: a queue for each, which the consumer reads in turn. One thread on core 1
/// plays both producers.
fn completions(rows: &mut Rows, messages: usize) {
    let ((mut first, mut from_first), (mut second, mut from_second)) = (queue(ROOM), queue(ROOM));
    let took = thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            for message in 0..messages {
                let producer = if message % 2 == 0 {
                    &mut first
                } else {
                    &mut second
                };
                send_all(producer, &[Word::MAX]);
            }
        });
        let consumer = scope.spawn(move || {
            pin(0);
            let mut received = 0;
            let mut begun = Instant::now();
            while received < messages {
                let before = received;
                received += usize::from(from_first.pop().is_some());
                received += usize::from(from_second.pop().is_some());
                if before == 0 && received > 0 {
                    begun = Instant::now();
                }
            }
            begun.elapsed().as_nanos() as f64 / messages as f64
        });
        consumer.join().unwrap_or(f64::NAN)
    });
    rows.add(
        "dataflow.queue.completions_ns",
        "ours, completions of two producers",
        "ns",
        took,
    );
}
