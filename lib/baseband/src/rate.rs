//! Rate matching (TS 36.212, section 5.1.4.1) and the channel interleaver (section 5.2.2.8), and their inverses.

use crate::size::{BITS, DATA_SYMBOLS, SLOTS};
use crate::turbo::STREAM_TAIL;

/// Columns of the sub-block interleaver.
const COLUMNS: usize = 32;
/// The order of its columns: table 5.1.4-1.
const ORDER: [usize; COLUMNS] = [
    0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30, 1, 17, 9, 25, 5, 21, 13, 29, 3, 19,
    11, 27, 7, 23, 15, 31,
];
/// Columns of the channel interleaver: the data symbols of a subframe.
const SYMBOLS: usize = DATA_SYMBOLS * SLOTS;

/// Which of the 3 (K + 4) coded bits each sent bit is: redundancy version 0, the whole soft buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateMatch {
    /// Index of the coded bit by sent bit; coded bits lie stream by stream.
    coded: Box<[u32]>,
    coded_bits: usize,
}

impl RateMatch {
    /// From a block of `block` bits to `sent` bits.
    pub fn new(block: usize, sent: usize) -> Self {
        let stream = block + STREAM_TAIL;
        let rows = stream.div_ceil(COLUMNS);
        let size = rows * COLUMNS;
        let padding = size - stream;
        // A position of the sub-block's matrix, which is padded at its begin, as an index into the stream.
        let bit = |position: usize| position.checked_sub(padding);
        let by_column = |index: usize| bit(index % rows * COLUMNS + ORDER[index / rows]);
        let shifted =
            |index: usize| bit((ORDER[index / rows] + COLUMNS * (index % rows) + 1) % size);
        let mut buffer = Vec::with_capacity(3 * size);
        buffer.extend((0..size).map(by_column));
        for index in 0..size {
            buffer.push(by_column(index).map(|bit| stream + bit));
            buffer.push(shifted(index).map(|bit| 2 * stream + bit));
        }
        let begin = rows * 2;
        let around = (0..buffer.len()).cycle().skip(begin);
        let bits = around.filter_map(|at| buffer[at]);
        Self {
            coded: bits.take(sent).map(|bit| bit as u32).collect(),
            coded_bits: 3 * stream,
        }
    }

    /// Selects the bits that are sent.
    pub fn select(&self, coded: &[u8]) -> Vec<u8> {
        self.coded.iter().map(|&bit| coded[bit as usize]).collect()
    }

    /// Puts soft bits back where they come from. A bit that was sent more than once is the sum, one that was not is 0.
    pub fn restore(&self, sent: &[f32], coded: &mut [f32]) {
        coded.fill(0.0);
        for (&bit, soft) in self.coded.iter().zip(sent) {
            coded[bit as usize] += soft;
        }
    }

    /// Number of coded bits: 3 (K + 4).
    pub fn coded_bits(&self) -> usize {
        self.coded_bits
    }
}

/// The order in which the channel interleaver sends groups of six bits: row by row in, column by column out. A column is a
/// symbol. `sent` groups in all, a multiple of twelve.
fn groups(sent: usize) -> impl Iterator<Item = usize> {
    let rows = sent / SYMBOLS;
    (0..SYMBOLS).flat_map(move |column| (0..rows).map(move |row| row * SYMBOLS + column))
}

/// Interleaves bits over the symbols of a subframe.
pub fn interleave(bits: &[u8]) -> Vec<u8> {
    let groups = groups(bits.len() / BITS);
    groups
        .flat_map(|group| bits[group * BITS..][..BITS].iter().copied())
        .collect()
}

/// Puts soft bits back, and takes the scrambling away: `signs` is 1 or -1 per sent bit. `received` are the soft bits of
/// both slots.
pub fn restore(received: [&[f32]; SLOTS], signs: &[i8], bits: &mut [f32]) {
    let all = received.iter().flat_map(|slot| slot.as_chunks::<BITS>().0);
    let signs = signs.as_chunks::<BITS>().0;
    let places = bits.as_chunks_mut::<BITS>().0;
    for ((group, soft), signs) in groups(places.len()).zip(all).zip(signs) {
        for bit in 0..BITS {
            places[group][bit] = soft[bit] * f32::from(signs[bit]);
        }
    }
}
