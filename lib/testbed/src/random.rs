//! Random numbers from a seed: the same in every run.

use std::sync::LazyLock;

/// SplitMix64 (Steele et al., *Fast splittable pseudorandom number generators*, OOPSLA 2014).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) % u64::from(n)) as u32
    }

    /// Returns true once in `n` calls on average.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u32) as usize]
    }
}

/// Bytes of a stream. Within a megabyte of it, no two blocks of a frame's length are alike.
///
/// The bytes are copied from a table: tests are not optimised, and a loop over bytes would take longer there than the code
/// under test.
#[derive(Debug)]
pub struct Bytes(usize);

static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random(0);
    let words = (0..TABLE_LEN / 4).map(|_| random.below(u32::MAX));
    words.flat_map(u32::to_le_bytes).collect()
});
const TABLE_LEN: usize = (1 << 20) - 12;

impl Bytes {
    /// Returns the stream of a number; those of two numbers that are near differ in each block.
    pub fn of(number: u64) -> Self {
        Bytes((number.wrapping_mul(61) % TABLE_LEN as u64) as usize)
    }

    /// Writes the next bytes.
    pub fn fill(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let len = bytes.len().min(TABLE_LEN - self.0);
            let (now, later) = bytes.split_at_mut(len);
            now.copy_from_slice(&TABLE[self.0..][..len]);
            self.0 = (self.0 + len) % TABLE_LEN;
            bytes = later;
        }
    }

    /// Returns the next bytes.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, TABLE_LEN};

    #[test]
    fn a_stream_is_the_same_in_pieces_and_goes_on_beyond_its_table() {
        let whole = Bytes::of(7).take(3 * TABLE_LEN);
        let mut pieces = Bytes::of(7);
        for piece in whole.chunks(100_001) {
            assert!(pieces.take(piece.len()) == piece);
        }
        assert!(Bytes::of(8).take(60) != whole[..60]);
    }
}
