//! The connections of a table whose handshake is not over, in the order in which they began.
//!
//! Anybody can make such connections with forged SYNs. So the oldest of them gives way when the table is full: an established
//! connection, and a new one, never pay for a flood. Each operation is a few words, whatever the table's size.

use alloc::vec;
use alloc::vec::Vec;

/// No neighbour. A place that is in no queue has two zeros, so that memory which was never used is never touched.
const END: u32 = u32::MAX;

/// A queue of places of a table.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    /// For each place of the table the next older and the next newer one in the queue, plus one.
    links: Vec<[u32; 2]>,
    oldest: u32,
    newest: u32,
    len: usize,
}

const OLDER: usize = 0;
const NEWER: usize = 1;

impl HalfOpen {
    /// An empty queue for the places of a table below `places`.
    pub(crate) fn new(places: usize) -> HalfOpen {
        HalfOpen {
            links: vec![[0; 2]; places],
            oldest: END,
            newest: END,
            len: 0,
        }
    }

    /// Number of half-open connections.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Says of the connection at `place` whether it is half-open. One that becomes half-open is the newest.
    #[inline]
    pub(crate) fn set(&mut self, place: u32, is_half_open: bool) {
        if self.is_in(place) != is_half_open {
            if is_half_open {
                self.push(place);
            } else {
                self.remove(place);
            }
        }
    }

    /// The oldest ones first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let at = |link: u32| (link != END && link != 0).then(|| link - 1);
        core::iter::successors(at(self.oldest), move |&place| {
            at(self.links.get(place as usize)?[NEWER])
        })
    }

    #[inline]
    fn is_in(&self, place: u32) -> bool {
        self.links
            .get(place as usize)
            .is_some_and(|links| *links != [0; 2])
    }

    fn push(&mut self, place: u32) {
        let Some(links) = self.links.get_mut(place as usize) else {
            return;
        };
        *links = [self.newest, END];
        *self.link(self.newest, NEWER) = place + 1;
        self.newest = place + 1;
        self.len += 1;
    }

    fn remove(&mut self, place: u32) {
        let Some(links) = self.links.get_mut(place as usize) else {
            return;
        };
        let [older, newer] = core::mem::take(links);
        *self.link(older, NEWER) = newer;
        *self.link(newer, OLDER) = older;
        self.len -= 1;
    }

    /// What points from a neighbour, or from the queue's end, to a place.
    fn link(&mut self, neighbour: u32, direction: usize) -> &mut u32 {
        match (neighbour, direction) {
            (END, NEWER) => &mut self.oldest,
            (END, _) => &mut self.newest,
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
        fn it_behaves_like_a_list(steps in proptest::collection::vec((0u32..12, any::<bool>()), 0..200)) {
            let mut queue = HalfOpen::new(12);
            let mut model: Vec<u32> = Vec::new();
            for (place, half_open) in steps {
                queue.set(place, half_open);
                let known = model.contains(&place);
                if half_open && !known {
                    model.push(place);
                } else if !half_open {
                    model.retain(|other| *other != place);
                }
                prop_assert_eq!(&queue.iter().collect::<Vec<_>>(), &model);
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
