//! `lib/switch/src/gaps.rs`: positions that are reserved and will never be published.

use super::*;
use nfluid_ring::layout::{FRAME_MAX, LONG_HOLE};

/// A position that is reserved and not published.
pub(super) struct Gap {
    index: usize,
    /// The sequence number that its descriptor will have, and the descriptor as it is now.
    sequence: u32,
    before: u64,
}

impl Gap {
    fn position(&self) -> u32 {
        self.sequence.wrapping_sub(1)
    }
}

impl Daemon {
    /// The positions that are reserved and not published now.
    async fn gaps(&self, number: u32, ring: &Ring) -> Vec<Gap> {
        let port = self.port(number);
        let slots = port.mask.get() + 1;
        let reserved = load(&port.rx_reserved).await as u32;
        let head = Released::of(load(&ring.receiver.rx_released).await).head;
        let mut gaps = Vec::new();
        for back in (1..=used(reserved, head, slots)).rev() {
            let position = reserved.wrapping_sub(back);
            let (index, sequence) = ((position & (slots - 1)) as usize, position.wrapping_add(1));
            let before = load(&ring.rx[index]).await;
            // A later one: the ring has gone round since the look at `rx_reserved`.
            if rx_desc(before).1.wrapping_sub(sequence).cast_signed() < 0 {
                gaps.push(Gap {
                    index,
                    sequence,
                    before,
                });
            }
        }
        gaps
    }

    /// As `Rows::long_end`: the lower half of the position at which the slots of a hole at `position` end.
    async fn long_end(&self, number: u32, ring: &Ring, (position, end): (u32, Released)) -> u32 {
        let mask = self.port(number).mask.get();
        let count = end.head.wrapping_sub(position).min(mask + 1);
        for position in (1..count).map(|step| position.wrapping_add(step)) {
            let desc = load(&ring.rx[(position & mask) as usize]).await;
            let (len, sequence) = rx_desc(desc);
            let is_long = len == LONG_HOLE || usize::from(len) > FRAME_MAX;
            if is_long && sequence == position.wrapping_add(1) {
                return rx_desc_slot(desc);
            }
        }
        end.long
    }

    /// As `Switch::fill`, of one ring. Returns how many holes there are.
    pub(super) async fn fill(&self, number: u32, ring: &Ring) -> u64 {
        while self.depositing.get() != 0 {
            step().await;
        }
        self.depositing.set(-1);
        let gaps = self.gaps(number, ring).await;
        let end = Released::of(load(&self.port(number).rx_reserved).await);
        if !self.m.has(Mutation::GapFilledAtOnce) {
            self.await_quiet().await;
        }
        let mut holes = 0;
        let has_slots =
            self.port(number).long_slots.get() > 0 && !self.m.has(Mutation::GapWithoutSlots);
        for gap in gaps.iter().rev() {
            let hole = if has_slots {
                let end = self.long_end(number, ring, (gap.position(), end)).await;
                rx_desc_with_slot(rx_desc_of(LONG_HOLE, gap.sequence), end)
            } else {
                rx_desc_with_slot(rx_desc_of(0, gap.sequence), rx_desc_slot(gap.before))
            };
            if swap(&ring.rx[gap.index], gap.before, hole).await == gap.before {
                self.m.audit.healed(number, gap.position());
                holes += 1;
            }
        }
        self.depositing.set(0);
        add(&self.port(number).drops[drop::RECLAIMED], holes).await;
        holes
    }

    /// As `Switch::fill_gaps`. Returns how many holes there are.
    pub async fn fill_gaps(&self, instance: &Instance) -> u64 {
        let ring = instance.ring.ring();
        if self.gaps(instance.number, ring).await.is_empty() {
            return 0;
        }
        self.fill(instance.number, ring).await
    }

    /// As `Switch::heal`, of one ring.
    pub async fn heal(&self, number: u32) {
        let reserved = load(&self.port(number).rx_reserved).await;
        let before = self.seen.borrow_mut().remove(&number);
        if before == Some((reserved, None)) {
            self.seen.borrow_mut().insert(number, (reserved, None));
            return;
        }
        step().await;
        let ring = Rc::clone(&self.m.rings.borrow()[number as usize]);
        let gaps = self.gaps(number, ring.ring()).await;
        let first = gaps.first().map(Gap::position);
        self.seen.borrow_mut().insert(number, (reserved, first));
        if first.is_some() && before.is_some_and(|before| before.1 == first) {
            self.fill(number, ring.ring()).await;
        }
    }
}
