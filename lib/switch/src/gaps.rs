//! Gaps: positions of a ring that are reserved and will never be published.
//!
//! The receiver would wait at a gap for ever, and so would all frames behind the gap. Calls of the switch publish the
//! slots that they have reserved, whatever happens; a daemon that puts frames into a ring can be killed meanwhile.
//! Gaps are looked for when a daemon starts, when an instance ends, and now and then in every ring. A reserved slot
//! that is not published when every call is over that could publish it is a gap. The gap becomes holes, which
//! receivers skip.

use crate::handover::Maps;
use crate::instance::InstanceMemory;
use crate::ports::used;
use crate::program::Switch;
use crate::{DropReason, SwitchError};
use nfluid_ring::layout::{
    FRAME_MAX, LONG_HOLE, Released, Ring, rx_desc, rx_desc_of, rx_desc_slot, rx_desc_with_slot,
};
use nfluid_ring::memory::RingMemory;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// The gaps found in one check of the rings, for the next check.
#[derive(Debug, Default)]
pub struct Gaps {
    rings: BTreeMap<u32, Seen>,
}

/// The state of a ring at a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Positions behind the last ones that are reserved: a [`Released`] word.
    reserved: u64,
    /// The first one that is not published.
    waits_for: Option<u32>,
}

impl Switch {
    /// Makes holes of the slots that are reserved in an instance's rings and will never be published, and counts each as a
    /// frame that is `reclaimed`. Returns how many there were. Senders may go on; only where there may be gaps are their calls
    /// waited for: a grace period, some 10 ms.
    ///
    /// # Errors
    /// A ring cannot be mapped, or senders cannot be waited for; gaps stay.
    pub fn fill_gaps(&self, memory: &InstanceMemory, maps: &Maps) -> Result<u64, SwitchError> {
        Ok(self.fill_gaps_of(memory, maps)?.values().sum())
    }

    /// Fills gaps, and returns the lost frames by port.
    pub(crate) fn fill_gaps_of(
        &self,
        memory: &InstanceMemory,
        maps: &Maps,
    ) -> Result<BTreeMap<u32, u64>, SwitchError> {
        let mut rings = Vec::new();
        for (part, ring) in memory.ports.iter().zip(&maps.rings) {
            let ring = RingMemory::map(ring.as_fd())
                .map_err(|error| SwitchError::Limit(error.to_string()))?;
            rings.push((part.spec.id, ring));
        }
        rings.retain(|(port, ring)| !self.gaps(*port, ring.ring()).is_empty());
        self.fill(&rings)
    }

    /// Fills gaps in the rings of these ports; to be called every few seconds. A gap that the last check has found as
    /// well is filled, as by [`Switch::fill_gaps`]. Returns the ports that had such a gap, and the number of frames
    /// that were lost.
    ///
    /// # Errors
    /// As for [`Switch::fill_gaps`].
    pub fn heal(
        &self,
        gaps: &mut Gaps,
        ports: impl IntoIterator<Item = u32>,
    ) -> Result<BTreeMap<u32, u64>, SwitchError> {
        let mut rings = BTreeMap::new();
        let mut stuck = Vec::new();
        for port in ports {
            let reserved = self.state(port).rx_reserved.load(Acquire);
            let before = gaps.rings.remove(&port);
            let is_known = |seen: &Seen| seen.reserved == reserved && seen.waits_for.is_none();
            if let Some(seen) = before.filter(is_known) {
                rings.insert(port, seen);
                continue;
            }
            let Some(ring) = self.ring_of(port) else {
                continue;
            };
            let first = self.gaps(port, ring.ring()).first().map(Gap::position);
            if first.is_some() && before.is_some_and(|seen| seen.waits_for == first) {
                stuck.push((port, ring));
            }
            let seen = Seen {
                reserved,
                waits_for: first,
            };
            rings.insert(port, seen);
        }
        gaps.rings = rings;
        self.fill(&stuck)
    }

    /// Waits until no call can publish any more the positions that are missing in these rings now, and fills the
    /// positions that are still missing.
    fn fill(&self, rings: &[(u32, RingMemory)]) -> Result<BTreeMap<u32, u64>, SwitchError> {
        if rings.is_empty() {
            return Ok(BTreeMap::new());
        }
        let depositing = self.depositing.write();
        let _nobody_is = depositing.unwrap_or_else(PoisonError::into_inner);
        let missing = |(port, ring): &(u32, RingMemory)| self.gaps(*port, ring.ring());
        let before: Vec<Vec<Gap>> = rings.iter().map(missing).collect();
        let ends: Vec<Released> = rings.iter().map(|(port, _)| self.reserved(*port)).collect();
        self.await_quiet()?;
        let mut filled = BTreeMap::new();
        for (((port, ring), gaps), end) in rings.iter().zip(before).zip(ends) {
            let state = self.state(*port);
            let rows = Rows {
                ring: ring.ring(),
                mask: state.mask.load(Acquire),
                end,
                area: state.long_slots.load(Acquire),
            };
            // From the last one on: where the slots of a gap end is where those of the next frame begin.
            let holes = gaps.iter().rev().filter(|gap| gap.fill(&rows)).count() as u64;
            self.count_drop(*port, DropReason::Reclaimed, holes);
            if holes > 0 {
                filled.insert(*port, holes);
            }
        }
        Ok(filled)
    }

    fn ring_of(&self, port: u32) -> Option<RingMemory> {
        RingMemory::map(self.ring_map(port)?.as_fd()).ok()
    }

    fn reserved(&self, port: u32) -> Released {
        Released::of(self.state(port).rx_reserved.load(Acquire))
    }

    /// Returns the positions of a port's ring that are reserved and not published now, in order.
    fn gaps(&self, port: u32, ring: &Ring) -> Vec<Gap> {
        let state = self.state(port);
        let slots = state.mask.load(Acquire).wrapping_add(1);
        let reserved = self.reserved(port).head;
        // The owner's word: believed only as far as its ring goes.
        let head = Released::of(ring.receiver.rx_released.load(Acquire)).head;
        let unread = used(reserved, head, slots);
        let positions = (1..=unread).rev().map(|back| reserved.wrapping_sub(back));
        let gaps = positions.map(|position| {
            let index = position & slots.wrapping_sub(1);
            Gap {
                index: index as usize,
                sequence: position.wrapping_add(1),
                before: ring.rx[index as usize].load(Acquire),
            }
        });
        gaps.filter(Gap::is_open).collect()
    }
}

/// A ring whose gaps are filled.
struct Rows<'a> {
    ring: &'a Ring,
    mask: u32,
    /// The positions behind the last ones that were reserved when the gaps were found.
    end: Released,
    /// The number of slots for long frames.
    area: u32,
}

impl Rows<'_> {
    /// Returns the lower half of the position, of the slots for long frames, at which those of a hole at `position` end:
    /// where those of the next frame begin that has some, or those of the next hole end.
    fn long_end(&self, position: u32) -> u32 {
        let count = self.end.head.wrapping_sub(position).min(self.mask + 1);
        let behind = (1..count).map(|step| position.wrapping_add(step));
        let descriptors = behind.map(|position| {
            let desc = self.ring.rx[(position & self.mask) as usize].load(Acquire);
            (desc, position.wrapping_add(1))
        });
        let mut long = descriptors.filter(|(desc, sequence)| {
            let (len, published) = rx_desc(*desc);
            published == *sequence && (len == LONG_HOLE || usize::from(len) > FRAME_MAX)
        });
        let next = long.next();
        next.map_or(self.end.long, |(desc, _)| rx_desc_slot(desc))
    }
}

/// A slot that is reserved and not published.
struct Gap {
    index: usize,
    /// The sequence number that the descriptor of the slot will have, and the one that it has now.
    sequence: u32,
    before: u64,
}

impl Gap {
    /// Returns true if the position is not published. A descriptor with a later sequence was published after the ring had
    /// gone round since `rx_reserved` was read.
    fn is_open(&self) -> bool {
        let published = rx_desc(self.before).1;
        published.wrapping_sub(self.sequence).cast_signed() < 0
    }

    fn position(&self) -> u32 {
        self.sequence.wrapping_sub(1)
    }

    /// Makes a hole of the position, unless a sender has published it meanwhile. The hole keeps the slot, which a
    /// trust group's member names, and has all slots for long frames that nothing behind it has.
    fn fill(&self, rows: &Rows<'_>) -> bool {
        let hole = if rows.area == 0 {
            rx_desc_with_slot(rx_desc_of(0, self.sequence), rx_desc_slot(self.before))
        } else {
            let end = rows.long_end(self.position());
            rx_desc_with_slot(rx_desc_of(LONG_HOLE, self.sequence), end)
        };
        rows.ring.rx[self.index]
            .compare_exchange(self.before, hole, AcqRel, Acquire)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 1.40
    #[test]
    fn a_descriptor_of_a_later_round_is_no_gap() {
        let is_open = |published: u32, sequence: u32| {
            let before = rx_desc_of(60, published);
            let gap = Gap {
                index: 0,
                sequence,
                before,
            };
            gap.is_open()
        };
        assert!(is_open(0, 1), "a new ring");
        assert!(is_open(5, 69), "the round before");
        assert!(!is_open(69, 69), "published");
        assert!(!is_open(133, 69), "the round after");
        assert!(
            is_open(u32::MAX - 3, 60) && !is_open(60, u32::MAX - 3),
            "positions wrap"
        );
    }
}
