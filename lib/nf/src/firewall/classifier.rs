//! Finding the first matching rule among thousands: bit vectors with aggregation.
//!
//! On each axis the rules' edges cut the numbers into intervals; each interval has a row of bits,
//! one per rule, set if the rule admits the interval. The rules that match a packet are the AND of
//! one row per axis, and the first set bit is the first match (Lakshman and Stiliadis, "High-speed
//! policy-based packet forwarding using efficient multi-dimensional range matching", SIGCOMM '98).
//! A summary in each row, one bit per 64 rules, skips the words that cannot match (Baboescu and
//! Varghese, "Scalable packet classification", SIGCOMM '01).
//!
//! Why this and not a tuple space or a decision tree: lists, ranges and negations cost nothing
//! extra, priority is the position, and no rule set is bad: a look-up reads at most
//! `axes x rules / 64` words, and memory is bounded by splitting the list into blocks where rows
//! would grow beyond [`BYTES_PER_RULE`].

use super::interval::{Coordinate, Set};
use super::packet::{Addresses, Packet};
use super::rows::{Row, Rows, RowsFull, Shape};
use super::rule::{Rule, RuleAction};
use super::search::{Direct, Search, SearchHalves, SearchTree};
use super::space::{self, Region};
use alloc::vec;
use alloc::vec::Vec;
use nfluid_ring::layout::BATCH_MAX;

/// Memory that the rows of a block may take, per rule; more splits the block.
const BYTES_PER_RULE: usize = 4096;
/// Rules in the smallest block.
const BLOCK_MIN: usize = 512;
/// Rules in the largest block: bounds the time to compile, which grows with their square.
const BLOCK_MAX: usize = 16_384;
/// Axes at most: two addresses, two ports, kind, flags, VLAN.
const AXES: usize = 7;

/// A rule list compiled for look-up.
#[derive(Debug)]
pub struct Classifier {
    blocks: Vec<Block>,
}

impl Classifier {
    /// Compiles `rules`: about 0.1 s for 10,000.
    pub fn new(rules: &[Rule]) -> Self {
        Self::with_blocks(rules, BLOCK_MAX)
    }

    /// With blocks of at most `max` rules.
    fn with_blocks(rules: &[Rule], mut max: usize) -> Self {
        let regions: Vec<Region> = rules.iter().map(region).collect();
        let mut blocks = Vec::new();
        let mut first = 0;
        while first < regions.len() {
            let block = largest_block(first, &regions[first..], max);
            let len = block.shape.rules;
            // Neighbouring blocks are alike: a length that has just been too large is not tried again.
            max = len;
            first += len;
            blocks.push(block);
        }
        Classifier { blocks }
    }

    /// Index of the first rule from `start` on that matches; `check-state` rules never do.
    #[inline]
    pub fn first_match(&self, packet: &Packet, start: usize) -> Option<usize> {
        self.blocks.iter().find_map(|block| {
            let start = start.saturating_sub(block.first);
            let found = block.first_match(packet, start)?;
            Some(block.first + found)
        })
    }

    /// As [`Classifier::first_match`] from the first rule on, for at most [`BATCH_MAX`] packets.
    #[inline]
    pub fn first_matches<'p>(
        &self,
        packets: impl Iterator<Item = &'p Packet> + Clone,
        found: &mut [Option<usize>],
    ) {
        let [block] = &self.blocks[..] else {
            for (packet, found) in packets.zip(found) {
                *found = self.first_match(packet, 0);
            }
            return;
        };
        // Each loop's steps are short and do not depend on each other, so that the processor works
        // on several packets while one of them waits for memory.
        let mut selected = [Selected::NONE; BATCH_MAX];
        let mut candidates = [0; BATCH_MAX];
        for (packet, selected) in packets.zip(&mut selected) {
            block.select(packet, selected);
        }
        for (selected, candidates) in selected.iter().zip(&mut candidates).take(found.len()) {
            *candidates = block.first_candidates(selected.rows());
        }
        for ((selected, candidates), found) in selected.iter().zip(candidates).zip(found) {
            *found = block.first_of(selected.rows(), candidates, 0);
        }
    }
}

/// A `check-state` rule admits nothing.
fn region(rule: &Rule) -> Region {
    let mut region = Region::of(rule);
    if rule.action == RuleAction::CheckState {
        region.kind = Some(Set::union([]));
    }
    region
}

/// A block of as many of `regions`, at most `max`, as memory allows.
fn largest_block(first: usize, regions: &[Region], max: usize) -> Block {
    let mut len = regions.len().min(max);
    loop {
        let budget = if len > BLOCK_MIN {
            len * BYTES_PER_RULE
        } else {
            usize::MAX
        };
        if let Ok(block) = Block::new(first, &regions[..len], budget) {
            return block;
        }
        len = (len / 2).max(BLOCK_MIN);
    }
}

/// Consecutive rules with rows of their own.
#[derive(Debug)]
struct Block {
    first: usize,
    shape: Shape,
    rows: Vec<u64>,
    src_v4: Option<Axis<SearchTree>>,
    dst_v4: Option<Axis<SearchTree>>,
    src_v6: Option<Axis<SearchHalves>>,
    dst_v6: Option<Axis<SearchHalves>>,
    src_port: Option<Axis<SearchTree>>,
    service: Option<Axis<SearchTree>>,
    kind: Option<Axis<Direct>>,
    flags: Option<Axis<Direct>>,
    vlan: Option<Axis<Direct>>,
}

/// An axis on which at least one rule of the block asks for something.
#[derive(Debug)]
struct Axis<S> {
    search: S,
    /// Start of the row of each interval.
    row_of: Vec<u32>,
    /// Start of the row of the rules that do not ask, if the others' rows are sparse.
    base: Option<u32>,
}

impl Block {
    fn new(first: usize, regions: &[Region], budget: usize) -> Result<Self, RowsFull> {
        let shape = Shape::of(regions.len());
        let mut rows = Rows::new(shape, budget);
        let mut block = Block {
            first,
            shape,
            src_v4: axis(regions, |r| &r.src_v4, &mut rows)?,
            dst_v4: axis(regions, |r| &r.dst_v4, &mut rows)?,
            src_v6: axis(regions, |r| &r.src_v6, &mut rows)?,
            dst_v6: axis(regions, |r| &r.dst_v6, &mut rows)?,
            src_port: axis(regions, |r| &r.src_port, &mut rows)?,
            service: axis(regions, |r| &r.service, &mut rows)?,
            kind: axis(regions, |r| &r.kind, &mut rows)?,
            flags: axis(regions, |r| &r.flags, &mut rows)?,
            vlan: axis(regions, |r| &r.vlan, &mut rows)?,
            rows: Vec::new(),
        };
        block.rows = rows.into_words();
        Ok(block)
    }

    #[inline]
    fn first_match(&self, packet: &Packet, start: usize) -> Option<usize> {
        if start >= self.shape.rules {
            return None;
        }
        let mut selected = Selected::NONE;
        self.select(packet, &mut selected);
        let rows = selected.rows();
        self.first_of(rows, self.first_candidates(rows), start)
    }

    /// The first word of the common summary.
    #[inline(always)]
    fn first_candidates(&self, rows: &[Row<'_>]) -> u64 {
        if self.shape.summary == 0 {
            return 0;
        }
        rows.iter()
            .fold(u64::MAX, |bits, row| bits & row.summary(0))
    }

    /// The first rule at or behind `start` that all rows have; `candidates` is the first word of
    /// their common summary.
    #[inline(always)]
    fn first_of(&self, rows: &[Row<'_>], candidates: u64, start: usize) -> Option<usize> {
        match self.shape.summary {
            _ if rows.is_empty() => Some(start),
            0 => self.first_in_words(rows, start),
            _ => self.first_summarised(rows, candidates, start),
        }
    }

    /// Chooses the packet's row on each axis.
    #[inline(always)]
    fn select<'b>(&'b self, packet: &Packet, selected: &mut Selected<'b>) {
        match packet.addresses {
            Addresses::V4 { src, dst } => {
                self.select_one(&self.src_v4, || src, selected);
                self.select_one(&self.dst_v4, || dst, selected);
            }
            Addresses::V6 { src, dst } => {
                self.select_one(&self.src_v6, || src, selected);
                self.select_one(&self.dst_v6, || dst, selected);
            }
        }
        self.select_one(&self.src_port, || space::src_port(packet), selected);
        self.select_one(&self.service, || space::service(packet), selected);
        self.select_one(&self.kind, || space::kind(packet), selected);
        self.select_one(&self.flags, || space::flags(packet), selected);
        self.select_one(&self.vlan, || space::vlan(packet), selected);
    }

    #[inline(always)]
    fn select_one<'b, S: Search>(
        &'b self,
        axis: &Option<Axis<S>>,
        x: impl FnOnce() -> S::Number,
        selected: &mut Selected<'b>,
    ) {
        if let Some(axis) = axis {
            let at = axis.row_of[axis.search.rank(x())] as usize;
            selected.rows[selected.count] = Row {
                words: &self.rows[at..],
                base: axis.base.map(|base| &self.rows[base as usize..]),
            };
            selected.count += 1;
        }
    }

    /// For few rules: word by word.
    #[inline(always)]
    fn first_in_words(&self, rows: &[Row<'_>], start: usize) -> Option<usize> {
        (start / 64..self.shape.words).find_map(|word| {
            let common = rows
                .iter()
                .fold(u64::MAX, |bits, row| bits & row.words[word]);
            first_bit(common, word, start)
        })
    }

    /// For many: only words in which every row has some bit are read.
    #[inline(always)]
    fn first_summarised(&self, rows: &[Row<'_>], first: u64, start: usize) -> Option<usize> {
        for line in start / (64 * 64)..self.shape.summary {
            let summary = match line {
                0 => first,
                _ => rows
                    .iter()
                    .fold(u64::MAX, |bits, row| bits & row.summary(line)),
            };
            let mut candidates = summary & from_bit((start / 64).saturating_sub(line * 64));
            while candidates != 0 {
                let word = line * 64 + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let common = rows
                    .iter()
                    .fold(u64::MAX, |bits, row| bits & row.word(self.shape, word));
                let found = first_bit(common, word, start);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }
}

/// A row for each axis that matters.
#[derive(Clone, Copy)]
struct Selected<'b> {
    rows: [Row<'b>; AXES],
    count: usize,
}

impl<'b> Selected<'b> {
    const NONE: Selected<'static> = Selected {
        rows: [Row::EMPTY; AXES],
        count: 0,
    };

    #[inline(always)]
    fn rows(&self) -> &[Row<'b>] {
        &self.rows[..self.count]
    }
}

/// The rule of the first bit at or behind `start`, `common` being word number `word`.
#[inline(always)]
fn first_bit(common: u64, word: usize, start: usize) -> Option<usize> {
    let bits = common & from_bit(start.saturating_sub(word * 64));
    (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
}

/// Bits at or above `bit`.
#[inline(always)]
fn from_bit(bit: usize) -> u64 {
    u64::MAX.checked_shl(bit as u32).unwrap_or(0)
}

/// Compiles one axis; `None` if no rule asks for anything on it.
fn axis<S: Search>(
    regions: &[Region],
    of: impl Fn(&Region) -> &Option<Set<S::Number>>,
    rows: &mut Rows,
) -> Result<Option<Axis<S>>, RowsFull> {
    let mut base = vec![0_u64; rows.shape().words];
    let mut edges: Vec<(S::Number, usize)> = Vec::new();
    let mut asked = false;
    for (index, region) in regions.iter().enumerate() {
        match of(region) {
            None => base[index / 64] |= 1 << (index % 64),
            Some(set) => {
                asked = true;
                for (low, high) in set.intervals() {
                    edges.push((*low, index));
                    edges.extend(high.next().map(|after| (after, index)));
                }
            }
        }
    }
    if !asked {
        return Ok(None);
    }
    edges.sort_unstable();
    let sparse = rows.is_sparse_better(edges.iter().map(|(_, index)| *index));
    let base_row = if sparse {
        Some(rows.dense(&base)?)
    } else {
        None
    };
    let mut bits = if sparse {
        vec![0; base.len()]
    } else {
        base.clone()
    };
    let mut keys = vec![S::Number::MIN];
    keys.extend(edges.iter().map(|(at, _)| *at));
    keys.dedup();
    let mut row_of = Vec::with_capacity(keys.len());
    let mut edges = edges.into_iter().peekable();
    for key in &keys {
        // Intervals of one rule are not adjacent: each of its edges is a change.
        while let Some((_, index)) = edges.next_if(|(at, _)| at == key) {
            bits[index / 64] ^= 1 << (index % 64);
        }
        row_of.push(if sparse {
            rows.sparse(&bits, &base)?
        } else {
            rows.dense(&bits)?
        });
    }
    Ok(Some(Axis {
        search: S::new(&keys),
        row_of,
        base: base_row,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::linear;
    use super::super::tests::arbitrary;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..Default::default() })]

        #[test]
        fn blocks_of_any_size_find_what_the_reference_finds(
            rules in proptest::collection::vec(arbitrary::rule(), 0..300),
            packets in proptest::collection::vec(arbitrary::packet(), 1..BATCH_MAX),
            max in 1..130_usize,
        ) {
            let classifier = Classifier::with_blocks(&rules, max);
            prop_assert!(classifier.blocks.iter().all(|block| block.shape.rules <= max));
            let mut found = vec![None; packets.len()];
            classifier.first_matches(packets.iter(), &mut found);
            for (packet, found) in packets.iter().zip(found) {
                prop_assert_eq!(found, linear::first_match(&rules, packet, 0));
                for start in (0..rules.len()).step_by(7) {
                    let expected = linear::first_match(&rules, packet, start);
                    prop_assert_eq!(classifier.first_match(packet, start), expected);
                }
            }
        }
    }

    #[test]
    fn memory_bounds_the_blocks() {
        // Each rule has edges of its own on four axes: rows of all rules would be as many as rules.
        let mut rule = Rule::any(1, RuleAction::Deny);
        let rules: Vec<Rule> = (0..10_000_u32)
            .map(|i| {
                use super::super::rule::Prefix;
                let spread = i.wrapping_mul(2_654_435_761);
                rule.from.addresses.items = vec![Prefix::V4(spread & !0x7f, 25)];
                rule.to.addresses.items = vec![Prefix::V4(spread.rotate_left(16) & !0x7f, 25)];
                let port = i as u16;
                rule.from.ports.items = vec![(port, port + 20_000)];
                let port = (spread % 30_000) as u16;
                rule.to.ports.items = vec![(port, port + 30_000)];
                rule.clone()
            })
            .collect();
        let classifier = Classifier::new(&rules);
        assert!(classifier.blocks.len() > 1, "the list was too easy");
        for block in &classifier.blocks {
            let (bytes, rules) = (block.rows.len() * 8, block.shape.rules);
            assert!(
                bytes <= rules * BYTES_PER_RULE,
                "{bytes} bytes for {rules} rules"
            );
        }
        let rules_in_blocks: usize = classifier.blocks.iter().map(|b| b.shape.rules).sum();
        assert_eq!(rules_in_blocks, rules.len());
    }
}
