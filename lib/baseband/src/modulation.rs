//! 64-QAM with Gray mapping (TS 36.211, section 7.1.4): bits to symbols, and symbols to soft bits.

use crate::Sample;
use crate::size::BITS;

/// sqrt(42): a symbol of mean power 1 times this has odd integers for parts.
const UNIT: f32 = 6.480_740_7;

/// The amplitudes of the points of one part, by its three bits: sign, half, point.
const AMPLITUDES: [f32; 8] = [3.0, 1.0, 5.0, 7.0, -3.0, -1.0, -5.0, -7.0];

/// The symbol of six bits (0 or 1): bits 0, 2, 4 are the real part's, the others the imaginary part's.
pub fn map(bits: &[u8; BITS]) -> Sample {
    let part = |first: usize| {
        let [sign, half, point] = [0, 2, 4].map(|bit| usize::from(bits[first + bit] & 1));
        AMPLITUDES[sign << 2 | half << 1 | point] / UNIT
    };
    Sample::new(part(0), part(1))
}

/// Soft bits of symbols with this noise power: the exact log-likelihood ratio's larger terms ("max-log"), positive for 0.
/// `soft` has six values per symbol.
pub fn demap(symbols: &[Sample], noise: f32, soft: &mut [f32]) {
    let scale = 1.0 / (noise.max(1e-6) * UNIT * UNIT);
    for (symbol, soft) in symbols.iter().zip(soft.as_chunks_mut::<BITS>().0) {
        let real = part(symbol.re * UNIT, scale);
        let imaginary = part(symbol.im * UNIT, scale);
        *soft = [
            real[0],
            imaginary[0],
            real[1],
            imaginary[1],
            real[2],
            imaginary[2],
        ];
    }
}

/// The soft bits of one part: for each bit, the squared distance to the nearest point whose bit is 1, minus that to the
/// nearest whose bit is 0.
#[inline(always)]
fn part(amplitude: f32, scale: f32) -> [f32; 3] {
    let distance = AMPLITUDES.map(|point| (amplitude - point) * (amplitude - point));
    let least = |points: [usize; 4]| {
        let [a, b, c, d] = points.map(|point| distance[point]);
        a.min(b).min(c.min(d))
    };
    [
        (least([4, 5, 6, 7]) - least([0, 1, 2, 3])) * scale,
        (least([2, 3, 6, 7]) - least([0, 1, 4, 5])) * scale,
        (least([1, 3, 5, 7]) - least([0, 2, 4, 6])) * scale,
    ]
}
