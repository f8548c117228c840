//! The connections of a table whose handshake is not over, in the order in which they began.
//!
//! Any host can make such connections with forged SYNs. So the oldest of them gives way when the table is full: an
//! established connection, and a new one, never pay for a flood. Each operation is a few words, whatever the table's
//! size. A table whose connections belong to hosts with a quota each has a queue for each host beside the queue of
//! all.

use alloc::vec;
use alloc::vec::Vec;

/// No neighbour. A place that is in no queue has two zeros, so that memory which was never used is never touched.
const END: u32 = u32::MAX;

/// Queues of places of a table. A place is in one queue at most.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    /// For each place of the table the next older and the next newer one in its queue, plus one.
    links: Vec<[u32; 2]>,
    /// Of each queue the oldest and the newest place, plus one; two zeros, too, while it is empty.
    ends: Vec<[u32; 2]>,
    len: usize,
}

const OLDER: usize = 0;
const NEWER: usize = 1;

impl HalfOpen {
    /// An empty queue for the places of a table below `places`.
    pub(crate) fn new(places: usize) -> HalfOpen {
        HalfOpen::queues(1, places)
    }

    /// So many empty queues for the places of a table below `places`.
    pub(crate) fn queues(count: usize, places: usize) -> HalfOpen {
        HalfOpen {
            links: vec![[0; 2]; places],
            ends: vec![[0; 2]; count],
            len: 0,
        }
    }

    /// Number of half-open connections.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Notes whether the connection at `place` is half-open. A connection that becomes half-open is the newest.
    #[inline]
    pub(crate) fn set(&mut self, place: u32, is_half_open: bool) {
        self.set_in(0, place, is_half_open);
    }

    /// Notes it in the queue that the place belongs to, of several queues; the place stays in that queue as long as
    /// it is half-open.
    #[inline]
    pub(crate) fn set_in(&mut self, queue: u32, place: u32, is_half_open: bool) {
        if self.is_in(place) != is_half_open && (queue as usize) < self.ends.len() {
            if is_half_open {
                self.push(queue, place);
            } else {
                self.remove(queue, place);
            }
        }
    }

    /// The oldest ones first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter_in(0)
    }

    /// The oldest ones of a queue first.
    pub(crate) fn iter_in(&self, queue: u32) -> impl Iterator<Item = u32> + '_ {
        let at = |link: u32| (link != END && link != 0).then(|| link - 1);
        let ends = self.ends.get(queue as usize).copied().unwrap_or_default();
        core::iter::successors(at(ends[OLDER]), move |&place| {
            at(self.links.get(place as usize)?[NEWER])
        })
    }

    #[inline]
    fn is_in(&self, place: u32) -> bool {
        self.links
            .get(place as usize)
            .is_some_and(|links| *links != [0; 2])
    }

    fn push(&mut self, queue: u32, place: u32) {
        let (Some(links), Some(ends)) = (
            self.links.get_mut(place as usize),
            self.ends.get_mut(queue as usize),
        ) else {
            return;
        };
        if *ends == [0; 2] {
            *ends = [END; 2];
        }
        let newest = ends[NEWER];
        *links = [newest, END];
        *self.link(queue, newest, NEWER) = place + 1;
        *self.link(queue, END, OLDER) = place + 1;
        self.len += 1;
    }

    fn remove(&mut self, queue: u32, place: u32) {
        let Some(links) = self.links.get_mut(place as usize) else {
            return;
        };
        let [older, newer] = core::mem::take(links);
        *self.link(queue, older, NEWER) = newer;
        *self.link(queue, newer, OLDER) = older;
        self.len -= 1;
    }

    /// Returns the link from a neighbour, or from the queue's end, to a place.
    fn link(&mut self, queue: u32, neighbour: u32, direction: usize) -> &mut u32 {
        match (neighbour, direction) {
            (END, NEWER) => &mut self.ends[queue as usize][OLDER],
            (END, _) => &mut self.ends[queue as usize][NEWER],
            _ => &mut self.links[neighbour as usize - 1][direction],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        /// Catches a wrong link after a removal from the middle or an end.
        #[test]
        fn each_behaves_like_a_list(steps in proptest::collection::vec((0u32..12, any::<bool>()), 0..200)) {
            let mut queues = HalfOpen::queues(3, 12);
            let mut models: [Vec<u32>; 3] = Default::default();
            for (place, half_open) in steps {
                let of = place % 3;
                queues.set_in(of, place, half_open);
                let model = &mut models[of as usize];
                if half_open && !model.contains(&place) {
                    model.push(place);
                } else if !half_open {
                    model.retain(|other| *other != place);
                }
                for (queue, model) in models.iter().enumerate() {
                    prop_assert_eq!(&queues.iter_in(queue as u32).collect::<Vec<_>>(), model);
                }
                prop_assert_eq!(queues.len(), models.iter().map(Vec::len).sum::<usize>());
            }
            prop_assert_eq!(queues.iter_in(3).next(), None, "no such queue");
        }
    }
}
