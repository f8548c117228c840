//! Random numbers from a seed: the same in every run.

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
