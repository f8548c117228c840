//! Numbers that are in use: ports, pools, kernel users.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hands out the lowest free number. Clones share their numbers.
#[derive(Clone, Debug)]
pub struct Ids {
    /// Ranges of free numbers, first and end, none next to another.
    free: Arc<Mutex<BTreeMap<u32, u32>>>,
}

impl Ids {
    /// Numbers from `first` up to, but without, `end`.
    pub fn new(first: u32, end: u32) -> Self {
        Ids {
            free: Arc::new(Mutex::new(BTreeMap::from([(first, end)]))),
        }
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `count` free numbers, one after the other; the first of them.
    pub fn take(&self, count: u32) -> Option<u32> {
        let mut free = self.ranges();
        let wide_enough = |(first, end): &(&u32, &u32)| *end - *first >= count;
        let (first, end) = free
            .iter()
            .find(wide_enough)
            .map(|(first, end)| (*first, *end))?;
        free.remove(&first);
        if first + count < end {
            free.insert(first + count, end);
        }
        Some(first)
    }

    /// Marks a number that somebody has already.
    pub fn mark(&self, id: u32) {
        let mut free = self.ranges();
        let Some((first, end)) = range_before(&free, id).filter(|(_, end)| id < *end) else {
            return;
        };
        free.remove(&first);
        if first < id {
            free.insert(first, id);
        }
        if id + 1 < end {
            free.insert(id + 1, end);
        }
    }

    /// Gives a number back.
    pub fn free(&self, id: u32) {
        let mut free = self.ranges();
        let before = range_before(&free, id);
        if before.is_some_and(|(_, end)| id < end) {
            return;
        }
        let first = before
            .filter(|(_, end)| *end == id)
            .map_or(id, |(first, _)| first);
        let end = free.remove(&(id + 1)).unwrap_or(id + 1);
        free.insert(first, end);
    }
}

/// The last range that begins at or before `id`.
fn range_before(free: &BTreeMap<u32, u32>, id: u32) -> Option<(u32, u32)> {
    free.range(..=id)
        .next_back()
        .map(|(first, end)| (*first, *end))
}

/// The numbers that instances have.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Ports of the platform.
    pub ports: Ids,
    /// Pools of frame slots.
    pub pools: Ids,
    /// Kernel users.
    pub users: Ids,
}

/// The numbers of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its first port; the others follow.
    pub first_port: u32,
    /// Number of its ports.
    pub ports: u32,
    /// Its pool.
    pub pool: u32,
    /// Its kernel user.
    pub user: u32,
}

impl Numbers {
    /// Numbers for an instance with `ports` ports.
    ///
    /// # Errors
    /// There are not enough left of one kind; none is taken then.
    pub fn take(&self, ports: u32) -> anyhow::Result<InUse> {
        let first_port = self.ports.take(ports);
        let pool = self.pools.take(1);
        let user = self.users.take(1);
        if let (Some(first_port), Some(pool), Some(user)) = (first_port, pool, user) {
            return Ok(InUse {
                first_port,
                ports,
                pool,
                user,
            });
        }
        if let Some(first) = first_port {
            (first..first + ports).for_each(|port| self.ports.free(port));
        }
        pool.into_iter().for_each(|pool| self.pools.free(pool));
        user.into_iter().for_each(|user| self.users.free(user));
        anyhow::bail!(
            "the platform has no room for more {}; delete what is not needed",
            if first_port.is_none() {
                "ports"
            } else {
                "instances"
            }
        );
    }

    /// Marks the numbers of an instance that is there already.
    pub fn mark(&self, numbers: &InUse) {
        let ports = numbers.first_port..numbers.first_port + numbers.ports;
        ports.for_each(|port| self.ports.mark(port));
        self.pools.mark(numbers.pool);
        self.users.mark(numbers.user);
    }

    /// Gives the numbers of an instance back.
    pub fn free(&self, numbers: &InUse) {
        let ports = numbers.first_port..numbers.first_port + numbers.ports;
        ports.for_each(|port| self.ports.free(port));
        self.pools.free(numbers.pool);
        self.users.free(numbers.user);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ids, Numbers};

    #[test]
    fn the_lowest_gap_that_is_wide_enough_is_taken() {
        let ids = Ids::new(1, 10);
        assert_eq!(ids.take(2), Some(1));
        assert_eq!(ids.take(3), Some(3));
        ids.free(2);
        assert_eq!(ids.take(2), Some(6));
        assert_eq!(ids.take(1), Some(2));
        assert_eq!(ids.take(3), None);
        ids.mark(8);
        assert_eq!(ids.take(1), Some(9));
    }

    #[test]
    fn what_is_given_back_in_any_order_is_whole_again() {
        let ids = Ids::new(0, 6);
        for order in [[0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4], [2, 3, 0, 5, 4, 1]] {
            assert_eq!(ids.take(6), Some(0));
            for id in order {
                ids.free(id);
                ids.free(id);
            }
        }
        ids.mark(3);
        ids.mark(3);
        assert_eq!(ids.take(4), None);
        assert_eq!(ids.take(3), Some(0));
        assert_eq!(ids.take(2), Some(4));
        assert_eq!(ids.take(1), None);
    }

    // promise: 7.19
    #[test]
    fn whichever_number_is_exhausted_the_others_are_given_back() {
        let numbers = |ports: u32, pools: u32, users: u32| Numbers {
            ports: Ids::new(1, 1 + ports),
            pools: Ids::new(1, 1 + pools),
            users: Ids::new(0, users),
        };
        for scarce in [numbers(3, 9, 9), numbers(9, 1, 9), numbers(9, 9, 1)] {
            let first = scarce.take(2).expect("there is room for one");
            let refused = scarce.take(2).expect_err("there is none for two");
            assert!(refused.to_string().contains("no room"), "{refused}");
            scarce.free(&first);
            assert_eq!(scarce.take(2).expect("there is room again"), first);
        }
    }
}
