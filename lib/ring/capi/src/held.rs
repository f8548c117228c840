//! Which frames a program holds of a port.

use nfluid_ring::layout::RING_MAX;

/// Positions of held frames, the oldest first.
#[derive(Debug)]
pub(crate) struct Held {
    /// Position behind each frame; a ring, as no port has more.
    ends: Box<[u32]>,
    first: usize,
    count: usize,
}

impl Default for Held {
    fn default() -> Self {
        Held {
            ends: vec![0; RING_MAX].into(),
            first: 0,
            count: 0,
        }
    }
}

impl Held {
    /// Notes a frame at this position.
    #[inline]
    pub fn push(&mut self, position: u32) {
        let at = (self.first + self.count) % self.ends.len();
        self.ends[at] = position.wrapping_add(1);
        self.count = (self.count + 1).min(self.ends.len());
    }

    /// The position behind the first `count` frames, which are held no longer; `None` if fewer are.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<u32> {
        if count == 0 || count > self.count {
            return None;
        }
        let last = (self.first + count - 1) % self.ends.len();
        self.first = (last + 1) % self.ends.len();
        self.count -= count;
        Some(self.ends[last])
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Held;
    use nfluid_ring::layout::RING_MAX;

    #[test]
    fn frames_go_in_the_order_in_which_they_came() {
        let mut held = Held::default();
        assert_eq!(held.take(1), None);
        let mut next = u32::MAX - 5;
        for _ in 0..3 * RING_MAX {
            // A hole lies between every two.
            for _ in 0..2 {
                held.push(next);
                next = next.wrapping_add(2);
            }
            assert_eq!(held.take(3), None);
            assert_eq!(held.take(2), Some(next.wrapping_sub(1)));
        }
        held.push(7);
        held.clear();
        assert_eq!(held.take(1), None);
    }
}
