//! Longest prefix match for IPv4: DIR-24-8 (Gupta, Lin, McKeown, INFOCOM 1998) whose first table is
//! cut into pages.
//!
//! The 2^24 cells of the original cost 64 MiB even for ten routes and a default. Here 2^16 root
//! cells (256 KiB) point to pages of 256 cells, which exist only below prefixes longer than 16
//! bits, and those to pages for prefixes longer than 24 bits. The root stays in the core's L2
//! cache, so that a look-up misses the core's caches at most twice, and once for prefixes up to
//! /24, as in the original.
//!
//! Every cell carries the length of the prefix that wrote it; so an insertion knows what it may
//! overwrite, and a removal what it must restore, without looking at any other route.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Cells of the root: one per value of the upper 16 address bits.
const ROOT_CELLS: usize = 1 << 16;
/// Cells of a page: one per value of 8 address bits.
const PAGE_CELLS: usize = 256;
/// The cell points to a page instead of holding a value.
const PAGE: u32 = 1 << 31;
/// Position of the prefix length in a cell with a value.
const LENGTH_SHIFT: u32 = 25;
/// The value, or the index of the page, in a cell.
const INDEX: u32 = (1 << LENGTH_SHIFT) - 1;

/// The largest value that a route can have. 0 is the answer for "no route".
pub const VALUE_MAX: u32 = INDEX;

/// Routes and the table made from them.
///
/// Memory: 256 KiB, 1 KiB per distinct /16 that holds longer prefixes, 1 KiB per distinct /24 that
/// does, and about 24 bytes per route for the sorted list that removals consult.
#[derive(Debug)]
pub struct Lpm4 {
    /// The root's cells, then the pages; page `n` starts at cell `n * PAGE_CELLS`.
    cells: Vec<u32>,
    free_pages: Vec<u32>,
    routes: BTreeMap<u64, u32>,
}

impl Default for Lpm4 {
    fn default() -> Self {
        Self::new()
    }
}

/// The bits of `address` that a prefix of `length` bits keeps.
#[inline]
pub const fn masked(address: u32, length: u8) -> u32 {
    if length == 0 {
        0
    } else {
        address & (u32::MAX << (32 - length as u32))
    }
}

const fn key(address: u32, length: u8) -> u64 {
    (masked(address, length) as u64) << 8 | length as u64
}

const fn cell(length: u8, value: u32) -> u32 {
    (length as u32) << LENGTH_SHIFT | value
}

const fn length_of(cell: u32) -> u8 {
    (cell >> LENGTH_SHIFT) as u8
}

impl Lpm4 {
    /// A table without routes.
    pub fn new() -> Self {
        Lpm4 {
            cells: alloc::vec![0; ROOT_CELLS],
            free_pages: Vec::new(),
            routes: BTreeMap::new(),
        }
    }

    /// Value of the longest prefix that holds `address`, 0 if there is none.
    #[inline]
    pub fn lookup(&self, address: u32) -> u32 {
        self.finish(self.begin(address), address)
    }

    /// First step of a look-up. Callers with many addresses do this step for all of them before
    /// the second, so that their cache misses overlap.
    #[inline]
    pub fn begin(&self, address: u32) -> u32 {
        self.cells[(address >> 16) as usize]
    }

    /// Remaining steps of a look-up that [`Lpm4::begin`] began for the same address.
    #[inline]
    pub fn finish(&self, first: u32, address: u32) -> u32 {
        let found = self.descend(first, address >> 8);
        self.descend(found, address) & INDEX
    }

    /// Returns the value of the cell's page for the lower 8 of `bits`, or the cell itself if it has no page. The code
    /// has no branch: whether there is a page is as random as the address, and a misprediction costs more than
    /// reading a cell that is not needed.
    #[inline]
    fn descend(&self, cell: u32, bits: u32) -> u32 {
        let is_page = ((cell & PAGE) as i32 >> 31) as u32;
        let below = self.cells[(((cell & INDEX) << 8 | bits & 0xff) & is_page) as usize];
        below & is_page | cell & !is_page
    }

    /// Value of exactly this prefix.
    pub fn get(&self, address: u32, length: u8) -> Option<u32> {
        self.routes.get(&key(address, length)).copied()
    }

    /// The longest prefix that holds `address` and is at most `length_max` long: (length, value).
    pub fn covering(&self, address: u32, length_max: u8) -> Option<(u8, u32)> {
        (0..=length_max)
            .rev()
            .find_map(|length| Some((length, self.get(address, length)?)))
    }

    /// Number of routes.
    pub fn route_count(&self) -> usize {
        self.routes.len()
    }

    /// Bytes of the look-up table, without the list of routes.
    pub fn table_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }

    /// All routes from `address`/`length` on, as (address, length, value), sorted by address and
    /// then length.
    pub fn routes_from(
        &self,
        address: u32,
        length: u8,
    ) -> impl Iterator<Item = (u32, u8, u32)> + '_ {
        self.routes
            .range(key(address, length)..)
            .map(|(key, value)| ((key >> 8) as u32, *key as u8, *value))
    }

    /// Adds the route, or changes its value; returns the old one. Bits of `address` beyond
    /// `length` are ignored.
    ///
    /// # Panics
    /// If `length` exceeds 32 or `value` is 0 or above [`VALUE_MAX`].
    pub fn insert(&mut self, address: u32, length: u8, value: u32) -> Option<u32> {
        assert!(length <= 32 && (1..=VALUE_MAX).contains(&value));
        let (first, count) = self.cells_of(masked(address, length), length, true);
        let written = cell(length, value);
        self.write(first, count, written, |held| held <= length);
        self.routes.insert(key(address, length), value)
    }

    /// Removes the route and returns its value.
    pub fn remove(&mut self, address: u32, length: u8) -> Option<u32> {
        if length > 32 {
            return None;
        }
        let removed = self.routes.remove(&key(address, length))?;
        let address = masked(address, length);
        let below = match length {
            0 => None,
            _ => self.covering(address, length - 1),
        };
        let restored = below.map_or(0, |(length, value)| cell(length, value));
        let (first, count) = self.cells_of(address, length, false);
        self.write(first, count, restored, |held| held == length);
        self.give_back_pages(address, length);
        Some(removed)
    }

    /// The cells that the prefix covers on its own level: (first, count). With `make_pages`, pages
    /// on the way are made where they are missing; without, they exist since the insertion.
    fn cells_of(&mut self, address: u32, length: u8, make_pages: bool) -> (usize, usize) {
        let mut first = (address >> 16) as usize;
        let mut level_end = 16u8;
        while length > level_end {
            if self.cells[first] & PAGE == 0 {
                if !make_pages {
                    return (first, 1);
                }
                self.make_page(first);
            }
            level_end += 8;
            let byte = (address >> (32 - level_end)) & 0xff;
            first = ((self.cells[first] & INDEX) << 8 | byte) as usize;
        }
        (first, 1 << (level_end - length))
    }

    /// Writes `written` to the cells, and all below them, whose prefix length passes `replaces`.
    fn write(&mut self, first: usize, count: usize, written: u32, replaces: impl Fn(u8) -> bool) {
        for at in first..first + count {
            let held = self.cells[at];
            if held & PAGE == 0 {
                if replaces(length_of(held)) {
                    self.cells[at] = written;
                }
                continue;
            }
            let page = ((held & INDEX) << 8) as usize;
            for at in page..page + PAGE_CELLS {
                let held = self.cells[at];
                if held & PAGE == 0 {
                    if replaces(length_of(held)) {
                        self.cells[at] = written;
                    }
                    continue;
                }
                let page = ((held & INDEX) << 8) as usize;
                for held in &mut self.cells[page..page + PAGE_CELLS] {
                    if replaces(length_of(*held)) {
                        *held = written;
                    }
                }
            }
        }
    }

    /// Puts a page, filled with what the cell held, below the cell.
    fn make_page(&mut self, at: usize) {
        let held = self.cells[at];
        let page = match self.free_pages.pop() {
            Some(page) => {
                let start = page as usize * PAGE_CELLS;
                self.cells[start..start + PAGE_CELLS].fill(held);
                page
            }
            None => {
                let page = self.cells.len() / PAGE_CELLS;
                if self.cells.capacity() - self.cells.len() < PAGE_CELLS {
                    // Doubling would waste half of a table of 64 MiB.
                    self.cells.reserve_exact((page / 8).max(16) * PAGE_CELLS);
                }
                self.cells.resize(self.cells.len() + PAGE_CELLS, held);
                page as u32
            }
        };
        self.cells[at] = PAGE | page;
    }

    /// Frees the pages on the way to `address` that hold nothing longer than the cell above them.
    fn give_back_pages(&mut self, address: u32, length: u8) {
        let root = (address >> 16) as usize;
        if length > 24 && self.cells[root] & PAGE != 0 {
            let second = ((self.cells[root] & INDEX) << 8 | (address >> 8) & 0xff) as usize;
            self.merge_page(second, 24);
        }
        if length > 16 {
            self.merge_page(root, 16);
        }
    }

    fn merge_page(&mut self, at: usize, level_end: u8) {
        let held = self.cells[at];
        if held & PAGE == 0 {
            return;
        }
        let start = ((held & INDEX) << 8) as usize;
        let first = self.cells[start];
        let uniform = first & PAGE == 0
            && length_of(first) <= level_end
            && self.cells[start..start + PAGE_CELLS]
                .iter()
                .all(|cell| *cell == first);
        if uniform {
            self.cells[at] = first;
            self.free_pages.push(held & INDEX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Prefixes close together, so that they nest, and lengths on both sides of each level.
    fn prefix() -> impl Strategy<Value = (u32, u8)> {
        let address = (
            0u32..3,
            0u32..3,
            prop::sample::select(vec![0u32, 1, 127, 128, 255]),
            any::<u8>(),
        )
            .prop_map(|(a, b, c, d)| (10 + a) << 24 | b << 16 | c << 8 | u32::from(d));
        (address, 0u8..=32).prop_map(|(address, length)| (masked(address, length), length))
    }

    fn naive(routes: &[(u32, u8, u32)], address: u32) -> u32 {
        routes
            .iter()
            .filter(|(prefix, length, _)| masked(address, *length) == *prefix)
            .max_by_key(|(_, length, _)| *length)
            .map_or(0, |(_, _, value)| *value)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        // promise: 10.13
        #[test]
        fn equals_naive_longest_match_through_updates(
            updates in prop::collection::vec((prefix(), 0u32..6), 1..60),
            probes in prop::collection::vec(prefix(), 20),
        ) {
            let mut table = Lpm4::new();
            let mut routes: Vec<(u32, u8, u32)> = Vec::new();
            for ((address, length), value) in updates {
                let old = routes.iter().position(|r| (r.0, r.1) == (address, length));
                let old_value = old.map(|at| routes.remove(at).2);
                if value == 0 {
                    prop_assert_eq!(table.remove(address, length), old_value);
                } else {
                    routes.push((address, length, value));
                    prop_assert_eq!(table.insert(address, length, value), old_value);
                }
                let edges = [address, address.wrapping_sub(1), address | !masked(!0, length)];
                let past = edges[2].wrapping_add(1);
                for probe in edges.into_iter().chain([past]).chain(probes.iter().map(|p| p.0)) {
                    prop_assert_eq!(table.lookup(probe), naive(&routes, probe));
                }
                prop_assert_eq!(table.route_count(), routes.len());
            }
            for (address, length, _) in routes {
                table.remove(address, length);
            }
            prop_assert!(table.route_count() == 0);
            prop_assert!(table.cells[..ROOT_CELLS].iter().all(|cell| *cell == 0), "pages leak");
        }
    }

    #[test]
    fn pages_are_reused_after_removal() {
        let mut table = Lpm4::new();
        for _ in 0..1000 {
            table.insert(0x0a00_0001, 32, 7);
            table.remove(0x0a00_0001, 32);
        }
        assert_eq!(table.cells.len(), ROOT_CELLS + 2 * PAGE_CELLS);
    }

    #[test]
    fn routes_are_listed_in_order() {
        let mut table = Lpm4::new();
        table.insert(0x0b00_0000, 8, 3);
        table.insert(0x0a00_0000, 24, 2);
        table.insert(0x0a00_0000, 8, 1);
        let listed: Vec<_> = table.routes_from(0, 0).collect();
        assert_eq!(
            listed,
            [
                (0x0a00_0000, 8, 1),
                (0x0a00_0000, 24, 2),
                (0x0b00_0000, 8, 3)
            ]
        );
    }
}
