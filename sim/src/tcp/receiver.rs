//! The other end: counts what arrives, once.

use std::collections::BTreeSet;

/// A receiver of a subflow. The receiver acknowledges every packet by the number of its transmission, with the
/// packet's mark.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    /// All before this have arrived.
    next: u64,
    /// Packets that arrived beyond a hole. The sender has at most a window in flight, which bounds this set.
    early: BTreeSet<u64>,
    /// Packets that arrived for the first time.
    pub delivered: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
}

impl Receiver {
    /// A packet arrives.
    pub fn accept(&mut self, sequence: u64) {
        if sequence == self.next {
            self.next += 1;
            while self.early.remove(&self.next) {
                self.next += 1;
            }
        } else if sequence < self.next || !self.early.insert(sequence) {
            self.duplicates += 1;
            return;
        }
        self.delivered += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::Receiver;

    #[test]
    fn each_packet_counts_once_in_any_order() {
        let mut receiver = Receiver::default();
        for sequence in [0, 2, 3, 2, 1, 0, 5, 4, 5] {
            receiver.accept(sequence);
        }
        assert_eq!((receiver.delivered, receiver.duplicates), (6, 3));
        assert!(receiver.early.is_empty() && receiver.next == 6);
    }
}
