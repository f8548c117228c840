//! Rows of bits, one bit per rule of a block, in two layouts.
//!
//! Each row begins with its summary: a bit per word of 64 rules, set if the word has a bit. A dense
//! row goes on with all words. A sparse row is to be joined with a dense one, its base (the rules
//! that ask nothing on the axis), and goes on with a summary of its own and only those words that
//! have a bit, found by counting the own summary's bits before them: rows of addresses, of which
//! there are thousands, have a handful of words each, and then stay in the caches.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Rows with fewer words than this have no summary.
const SUMMARY_FROM_WORDS: usize = 9;

/// Lengths of a block's rows in words.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rules, so many bits are in use.
    pub rules: usize,
    /// Words of bits.
    pub words: usize,
    /// Words of summary, 0 for few rules.
    pub summary: usize,
    /// Words of counters in a sparse row: for each summary word, 16 bits that say how many words
    /// stand before its first.
    counters: usize,
}

impl Shape {
    /// For so many rules.
    pub fn of(rules: usize) -> Self {
        let words = rules.div_ceil(64);
        let summary = if words < SUMMARY_FROM_WORDS {
            0
        } else {
            words.div_ceil(64)
        };
        Shape {
            rules,
            words,
            summary,
            counters: summary.div_ceil(4),
        }
    }
}

/// The rows take more memory than they may.
#[derive(Debug)]
pub struct RowsFull;

/// A row for reading.
#[derive(Clone, Copy, Debug)]
pub struct Row<'b> {
    /// From the row's first word on.
    pub words: &'b [u64],
    /// A dense row to be ORed with this one, which is sparse.
    pub base: Option<&'b [u64]>,
}

impl Row<'_> {
    /// No row.
    pub const EMPTY: Row<'static> = Row {
        words: &[],
        base: None,
    };

    /// Word `index` of the summary.
    #[inline(always)]
    pub fn summary(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// Bits of word `index` in a block of this shape with a summary.
    #[inline(always)]
    pub fn word(&self, shape: Shape, index: usize) -> u64 {
        let Some(base) = self.base else {
            return self.words[shape.summary + index];
        };
        let (group, bit) = (index / 64, index % 64);
        let own_summary = &self.words[shape.summary..];
        let summary = own_summary[group];
        let own = if summary >> bit & 1 == 0 {
            0
        } else {
            let counters = &own_summary[shape.summary..];
            let first = counters[group / 4] >> (group % 4 * 16) & 0xffff;
            let before = (summary & ((1 << bit) - 1)).count_ones();
            counters[shape.counters + first as usize + before as usize]
        };
        base[shape.summary + index] | own
    }
}

/// Rows of one block while it is built; equal rows are one.
#[derive(Debug)]
pub struct Rows {
    shape: Shape,
    budget_words: usize,
    words: Vec<u64>,
    by_hash: BTreeMap<u64, Vec<(u32, u32)>>,
    row: Vec<u64>,
}

impl Rows {
    /// No rows yet; at most `budget` bytes of them.
    pub fn new(shape: Shape, budget: usize) -> Self {
        Rows {
            shape,
            budget_words: (budget / 8).min(u32::MAX as usize),
            words: Vec::new(),
            by_hash: BTreeMap::new(),
            row: Vec::new(),
        }
    }

    /// Lengths of the rows.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// All rows, one behind the other.
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    /// Returns true if sparse rows are smaller on an axis whose sorted edges belong to these rules: estimated by the
    /// mean number of rules between opening and closing edge.
    pub fn is_sparse_better(&self, rules_of_edges: impl Iterator<Item = usize>) -> bool {
        if self.shape.summary == 0 {
            return false;
        }
        let mut open = alloc::vec![false; self.shape.rules];
        let (mut now, mut sum, mut edges) = (0_usize, 0_usize, 0_usize);
        for rule in rules_of_edges {
            open[rule] = !open[rule];
            now = if open[rule] { now + 1 } else { now - 1 };
            sum += now;
            edges += 1;
        }
        sum * 4 < edges * self.shape.words
    }

    /// Start of a dense row with these bits.
    ///
    /// # Errors
    /// [`RowsFull`].
    pub fn dense(&mut self, bits: &[u64]) -> Result<u32, RowsFull> {
        self.begin(bits);
        self.row.extend_from_slice(bits);
        self.finish()
    }

    /// Start of a sparse row with these bits, to be joined with those of `base`.
    ///
    /// # Errors
    /// [`RowsFull`].
    pub fn sparse(&mut self, bits: &[u64], base: &[u64]) -> Result<u32, RowsFull> {
        self.begin(bits);
        let own = self.row.clone();
        for (summary, base) in self.row.iter_mut().zip(summary(base, self.shape.summary)) {
            *summary |= base;
        }
        self.row.extend(&own);
        let mut counters = alloc::vec![0_u64; self.shape.counters];
        let mut before = 0_u64;
        for (group, summary) in own.iter().enumerate() {
            counters[group / 4] |= before << (group % 4 * 16);
            before += u64::from(summary.count_ones());
        }
        self.row.append(&mut counters);
        self.row.extend(bits.iter().filter(|word| **word != 0));
        self.finish()
    }

    fn begin(&mut self, bits: &[u64]) {
        self.row.clear();
        self.row.extend(summary(bits, self.shape.summary));
    }

    /// Position of `self.row`, which is added unless it is there already.
    fn finish(&mut self) -> Result<u32, RowsFull> {
        let hash = self.row.iter().fold(self.row.len() as u64, |hash, word| {
            (hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(31)
        });
        let len = self.row.len();
        let alike = self.by_hash.entry(hash).or_default();
        let same = |(at, other_len): &&(u32, u32)| {
            *other_len as usize == len && self.words[*at as usize..][..len] == self.row
        };
        if let Some((at, _)) = alike.iter().find(same) {
            return Ok(*at);
        }
        if self.words.len() + len > self.budget_words {
            return Err(RowsFull);
        }
        let at = self.words.len() as u32;
        alike.push((at, len as u32));
        self.words.extend_from_slice(&self.row);
        Ok(at)
    }
}

/// The first `len` words of the summary of `bits`.
fn summary(bits: &[u64], len: usize) -> impl Iterator<Item = u64> + '_ {
    bits.chunks(64).take(len).map(|group| {
        let set = group.iter().enumerate().filter(|(_, word)| **word != 0);
        set.fold(0, |summary, (bit, _)| summary | 1 << bit)
    })
}
