//! A queue of frames in memory that can lose, repeat, reorder and corrupt them on purpose: the checks of this crate
//! are themselves checked with it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, ManualClock};
use crate::io::{FRAME_MAX, IoError, Receiver, Sender};

/// Rate of each fault, as a probability from 0 to 1 per frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The frame never arrives.
    pub loss: f64,
    /// The frame arrives twice.
    pub duplication: f64,
    /// The frame arrives behind the `reorder_distance` frames that follow it.
    pub reordering: f64,
    /// By how many frames a reordered frame falls back.
    pub reorder_distance: usize,
    /// A bit of the frame, at `corrupt_from` or behind it, arrives flipped.
    pub corruption: f64,
    /// First byte of a frame that may be corrupted.
    pub corrupt_from: usize,
}

/// Faults made so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames taken from the sender.
    pub sent: u64,
    /// Frames that never arrive.
    pub lost: u64,
    /// Frames queued a second time.
    pub duplicated: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
}

#[derive(Debug)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    /// Frames held back: how many more frames must pass, and the frame.
    held: Vec<(usize, Vec<u8>)>,
    capacity: usize,
    faults: Faults,
    counts: FaultCounts,
    random: SplitMix,
}

/// Makes a queue of at most `capacity` frames with the given faults, drawn from `seed`.
pub fn queue(capacity: usize, faults: Faults, seed: u64) -> (MemorySender, MemoryReceiver) {
    let queue = Arc::new((
        Mutex::new(Queue {
            frames: VecDeque::new(),
            held: Vec::new(),
            capacity,
            faults,
            counts: FaultCounts::default(),
            random: SplitMix(seed),
        }),
        Condvar::new(),
    ));
    let sender = MemorySender {
        queue: Arc::clone(&queue),
        slot: Box::new([0; FRAME_MAX]),
    };
    (sender, MemoryReceiver { queue, clock: None })
}

type Shared = Arc<(Mutex<Queue>, Condvar)>;

fn lock(queue: &Shared) -> MutexGuard<'_, Queue> {
    queue.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    fn push(&mut self, mut frame: Vec<u8>) {
        self.counts.sent += 1;
        self.release_held();
        if self.random.chance(self.faults.loss) {
            self.counts.lost += 1;
            return;
        }
        if frame.len() > self.faults.corrupt_from && self.random.chance(self.faults.corruption) {
            self.counts.corrupted += 1;
            let span = frame.len() - self.faults.corrupt_from;
            let offset = self.faults.corrupt_from + self.random.below(span);
            frame[offset] ^= 1 << self.random.below(8);
        }
        if self.random.chance(self.faults.duplication) {
            self.counts.duplicated += 1;
            self.frames.push_back(frame.clone());
        }
        if self.random.chance(self.faults.reordering) {
            self.counts.reordered += 1;
            self.held.push((self.faults.reorder_distance, frame));
        } else {
            self.frames.push_back(frame);
        }
    }

    /// Counts one passing frame against every frame held back; those whose time has come follow.
    fn release_held(&mut self) {
        for (remaining, _) in &mut self.held {
            *remaining = remaining.saturating_sub(1);
        }
        while self
            .held
            .first()
            .is_some_and(|(remaining, _)| *remaining == 0)
        {
            let (_, frame) = self.held.remove(0);
            self.frames.push_back(frame);
        }
    }
}

/// The sending end of a [`queue`].
#[derive(Debug)]
pub struct MemorySender {
    queue: Shared,
    slot: Box<[u8; FRAME_MAX]>,
}

impl MemorySender {
    /// Returns the faults made so far.
    pub fn counts(&self) -> FaultCounts {
        lock(&self.queue).counts
    }

    /// Lets all frames go that are held back for reordering.
    pub fn release(&self) {
        let mut queue = lock(&self.queue);
        let held: Vec<_> = queue.held.drain(..).map(|(_, frame)| frame).collect();
        queue.frames.extend(held);
        self.queue.1.notify_one();
    }
}

impl Sender for MemorySender {
    fn send(
        &mut self,
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, IoError> {
        let mut queue = lock(&self.queue);
        for position in 0..count {
            if queue.frames.len() >= queue.capacity {
                return Ok(position);
            }
            let length = fill(position, &mut self.slot[..]);
            if length == 0 {
                return Ok(position);
            }
            queue.push(self.slot[..length.min(FRAME_MAX)].to_vec());
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.queue.1.notify_one();
        Ok(())
    }
}

/// The receiving end of a [`queue`].
#[derive(Debug)]
pub struct MemoryReceiver {
    queue: Shared,
    clock: Option<ManualClock>,
}

impl MemoryReceiver {
    /// Makes waiting pass time on `clock` instead of really waiting.
    #[must_use]
    pub fn with_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }
}

impl Receiver for MemoryReceiver {
    fn receive(&mut self, max: usize, mut handle: impl FnMut(&[u8])) -> Result<usize, IoError> {
        let mut queue = lock(&self.queue);
        let count = queue.frames.len().min(max);
        let frames: Vec<_> = queue.frames.drain(..count).collect();
        drop(queue);
        frames.iter().for_each(|frame| handle(frame));
        Ok(count)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        let queue = lock(&self.queue);
        if !queue.frames.is_empty() {
            return Ok(());
        }
        match &self.clock {
            Some(clock) => clock.pause(timeout.as_nanos() as u64),
            None => drop(self.queue.1.wait_timeout(queue, timeout)),
        }
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send_numbers(sender: &mut MemorySender, count: u8) -> usize {
        sender
            .send(usize::from(count), |position, slot| {
                slot[0] = position as u8;
                14
            })
            .unwrap()
    }

    fn receive_numbers(receiver: &mut MemoryReceiver) -> Vec<u8> {
        let mut numbers = Vec::new();
        receiver
            .receive(usize::MAX, |frame| numbers.push(frame[0]))
            .unwrap();
        numbers
    }

    #[test]
    fn without_faults_frames_arrive_as_sent() {
        let (mut sender, mut receiver) = queue(100, Faults::default(), 1);
        assert_eq!(send_numbers(&mut sender, 100), 100);
        assert_eq!(receive_numbers(&mut receiver), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let (mut sender, _receiver) = queue(10, Faults::default(), 1);
        assert_eq!(send_numbers(&mut sender, 100), 10);
        assert_eq!(send_numbers(&mut sender, 1), 0);
    }

    #[test]
    fn a_held_frame_falls_back_by_the_distance() {
        let faults = Faults {
            reordering: 1.0,
            reorder_distance: 3,
            ..Faults::default()
        };
        let (mut sender, mut receiver) = queue(100, faults, 1);
        send_numbers(&mut sender, 1);
        lock(&sender.queue).faults = Faults::default();
        for number in 1..5 {
            sender
                .send(1, |_, slot| {
                    slot[0] = number;
                    14
                })
                .unwrap();
        }
        assert_eq!(receive_numbers(&mut receiver), [1, 2, 0, 3, 4]);
    }

    #[test]
    fn losses_and_copies_add_up() {
        let faults = Faults {
            loss: 0.3,
            duplication: 0.2,
            ..Faults::default()
        };
        let (mut sender, mut receiver) = queue(10_000, faults, 7);
        for _ in 0..20 {
            send_numbers(&mut sender, 200);
        }
        let counts = sender.counts();
        assert!(counts.lost > 0 && counts.duplicated > 0);
        let arrived = receive_numbers(&mut receiver).len() as u64;
        assert_eq!(arrived, counts.sent - counts.lost + counts.duplicated);
    }
}
