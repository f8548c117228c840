//! The ring of many producers, explored: in every order of the producers' and the consumer's steps, and
//! with a producer that stops for ever at any of them, each value arrives once, in its producer's order.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p nfluid-ring --release --test loom_mpsc`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use nfluid_ring::mpsc::{Full, Mpsc};

/// Interruptions of running threads within one order of steps.
const PREEMPTIONS_MAX: usize = 3;

fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(body);
}

fn drain<const SLOTS: usize>(ring: &Mpsc<SLOTS>) -> Vec<u32> {
    std::iter::from_fn(|| ring.pop()).collect()
}

// promise: 1.20
#[test]
fn two_producers_and_the_consumer_at_once() {
    explore(|| {
        // Positions wrap on the way.
        let ring = Arc::new(Mpsc::<4>::starting_at(u32::MAX));
        let producers = [10, 20].map(|first| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                assert_eq!(ring.push(first), Ok(()));
                assert_eq!(ring.push(first + 1), Ok(()));
            })
        });
        let mut got = drain(&ring);
        for producer in producers {
            producer.join().unwrap();
        }
        got.extend(drain(&ring));
        let of = |first| got.iter().copied().filter(move |value| value / 10 == first);
        assert_eq!(of(1).collect::<Vec<_>>(), [10, 11]);
        assert_eq!(of(2).collect::<Vec<_>>(), [20, 21]);
    });
}

#[test]
fn producers_at_a_ring_that_is_nearly_full() {
    explore(|| {
        let ring = Arc::new(Mpsc::<2>::starting_at(0));
        assert_eq!(ring.push(9), Ok(()));
        let producers = [1, 2].map(|value| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || (value, ring.push(value)))
        });
        let mut got = drain(&ring);
        let ended = producers.map(|producer| producer.join().unwrap());
        got.extend(drain(&ring));
        let mut accepted = vec![9];
        accepted.extend(
            ended
                .iter()
                .filter(|(_, end)| end.is_ok())
                .map(|(value, _)| value),
        );
        let refused = ended.iter().any(|(_, end)| *end == Err(Full));
        got.sort_unstable();
        accepted.sort_unstable();
        assert_eq!(got, accepted);
        assert_eq!(ring.overflowed(), refused);
    });
}
