//! The queue of events: what happens next, and when. Events of the same time come in the order in
//! which they were put in, so that a run depends on nothing but its plan and its seed.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events by time, in nanoseconds since the beginning.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    put: u64,
    now_ns: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> Events<E> {
    /// No events; the time is 0.
    pub fn new() -> Self {
        Events {
            heap: BinaryHeap::new(),
            put: 0,
            now_ns: 0,
        }
    }

    /// The time of the event that was taken last.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Events that are waiting.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns true if no event is left.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// `event` happens `after_ns` from now.
    pub fn put(&mut self, after_ns: u64, event: E) {
        self.heap.push(Reverse(Entry {
            at_ns: self.now_ns.saturating_add(after_ns),
            number: self.put,
            event,
        }));
        self.put += 1;
    }

    /// Takes the next event, and goes on to its time.
    pub fn take(&mut self) -> Option<E> {
        let Reverse(entry) = self.heap.pop()?;
        self.now_ns = entry.at_ns;
        Some(entry.event)
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Events::new()
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::Events;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_of_one_time_in_their_order(
            script in proptest::collection::vec((0_u64..50, 0_usize..3), 1..200),
        ) {
            let mut events = Events::new();
            let mut taken = Vec::new();
            let mut take = |events: &mut Events<(u64, usize)>| {
                let event = events.take();
                taken.extend(event.inspect(|(at_ns, _)| assert_eq!(*at_ns, events.now_ns())));
                event.is_some()
            };
            for (number, (after_ns, takes)) in script.iter().enumerate() {
                events.put(*after_ns, (events.now_ns() + after_ns, number));
                for _ in 0..*takes {
                    take(&mut events);
                }
            }
            while take(&mut events) {}
            prop_assert!(events.is_empty());
            prop_assert_eq!(taken.len(), script.len());
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", taken);
        }
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        let mut events = Events::new();
        for after_ns in [1, u64::MAX, u64::MAX] {
            events.put(after_ns, after_ns);
            assert_eq!(events.take(), Some(after_ns));
        }
        assert_eq!(events.now_ns(), u64::MAX);
    }
}
