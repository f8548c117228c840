//! Consistent hashing: which server each slot of a table has.
//!
//! Eisenbud et al., *Maglev: A Fast and Reliable Software Network Load Balancer*, NSDI 2016, section 3.4. Servers take
//! slots in turn, each those that it likes best among the free ones; one of twice the weight has twice as many turns.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Slots of a table (`EVNF_MAGLEV_SLOTS`): a prime.
pub const SLOTS: usize = 65537;

/// A server of a service, as the table sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The server's number.
    pub server: u32,
    /// The server's identity: its preferred slots follow from this number alone.
    pub identity: u64,
    /// Its share of connections relative to the others; 0: none.
    pub weight: u32,
}

/// The table of these servers; empty, if none has a weight.
pub fn table(candidates: &[Candidate]) -> Vec<u32> {
    let mut turns: Vec<Turn> = candidates
        .iter()
        .filter(|candidate| candidate.weight > 0)
        .map(|candidate| Turn::new(*candidate))
        .collect();
    let Some(most) = turns.iter().map(|turn| turn.weight).max() else {
        return Vec::new();
    };
    // The order of turns is the servers' own, not that in which they were named.
    turns.sort_by_key(|turn| (turn.first, turn.skip));
    let mut slots: Vec<Option<u32>> = vec![None; SLOTS];
    let mut free = SLOTS;
    loop {
        for turn in &mut turns {
            turn.credit += turn.weight;
            if turn.credit < most {
                continue;
            }
            turn.credit -= most;
            let slot = turn.next_free(&slots);
            slots[slot] = Some(turn.server);
            free -= 1;
            if free == 0 {
                return slots.into_iter().flatten().collect();
            }
        }
    }
}

/// A server while the table is filled.
struct Turn {
    server: u32,
    weight: u64,
    credit: u64,
    first: usize,
    skip: usize,
    tried: usize,
}

impl Turn {
    fn new(candidate: Candidate) -> Self {
        let identity = candidate.identity.to_le_bytes();
        let hash = |seed| xxh3_64_with_seed(&identity, seed) as usize;
        Turn {
            server: candidate.server,
            weight: u64::from(candidate.weight),
            credit: 0,
            first: hash(0) % SLOTS,
            skip: hash(1) % (SLOTS - 1) + 1,
            tried: 0,
        }
    }

    /// Returns the first free slot in its order of preference. A free slot exists.
    fn next_free(&mut self, slots: &[Option<u32>]) -> usize {
        loop {
            let slot = (self.first + self.tried * self.skip) % SLOTS;
            self.tried += 1;
            if slots[slot].is_none() {
                return slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(weights: &[u32]) -> Vec<Candidate> {
        let candidates = weights.iter().zip(0..);
        let candidates = candidates.map(|(weight, server)| Candidate {
            server,
            identity: u64::from(server) + 1000,
            weight: *weight,
        });
        candidates.collect()
    }

    fn count(table: &[u32], server: u32) -> usize {
        table.iter().filter(|own| **own == server).count()
    }

    // promise: 15.7
    #[test]
    fn each_server_has_its_part() {
        let table = table(&servers(&[1, 2, 0, 5]));
        assert_eq!(table.len(), SLOTS);
        for (server, weight) in [(0, 1), (1, 2), (2, 0), (3, 5)] {
            let expected = SLOTS * weight / 8;
            assert!(count(&table, server).abs_diff(expected) < 20, "{server}");
        }
    }

    // promise: 15.7
    #[test]
    fn a_server_that_leaves_moves_hardly_any_slot_of_the_others() {
        let all = table(&servers(&[1; 10]));
        let without = table(&servers(&[1; 10])[..9]);
        let moved = all
            .iter()
            .zip(&without)
            .filter(|(before, after)| **before != 9 && before != after);
        assert!(moved.count() < SLOTS / 20);
    }

    #[test]
    fn the_order_in_which_servers_are_named_does_not_matter() {
        let mut turned = servers(&[3, 1, 2]);
        turned.reverse();
        assert_eq!(table(&turned), table(&servers(&[3, 1, 2])));
        assert!(table(&[]).is_empty());
    }
}
