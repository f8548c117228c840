//! MMSE equalisation: weights of four antennas for four layers, and their use.
//!
//! W = (H^H H + s I)^-1 H^H for each subcarrier, with the noise power s. Eight subcarriers are computed side by side: each
//! value is an array of eight, so that the compiler uses the machine's vectors.

#![expect(
    clippy::needless_range_loop,
    reason = "a lane, row or column is the index of several arrays at once"
)]

use crate::Sample;
use crate::size::{ANTENNAS, LAYERS};

/// Subcarriers that are computed side by side.
pub const LANES: usize = 8;

/// Weights of eight subcarriers: by layer, antenna, real or imaginary part, and subcarrier.
pub type Weights = [[[[f32; LANES]; 2]; ANTENNAS]; LAYERS];

/// Complex values of eight subcarriers.
#[derive(Clone, Copy)]
struct Lanes {
    re: [f32; LANES],
    im: [f32; LANES],
}

impl Lanes {
    const ZERO: Self = Self {
        re: [0.0; LANES],
        im: [0.0; LANES],
    };

    /// self += a * b
    #[inline(always)]
    fn add_product(&mut self, a: &Self, b: &Self) {
        for lane in 0..LANES {
            self.re[lane] += a.re[lane] * b.re[lane] - a.im[lane] * b.im[lane];
            self.im[lane] += a.re[lane] * b.im[lane] + a.im[lane] * b.re[lane];
        }
    }

    /// self -= a * b
    #[inline(always)]
    fn subtract_product(&mut self, a: &Self, b: &Self) {
        for lane in 0..LANES {
            self.re[lane] -= a.re[lane] * b.re[lane] - a.im[lane] * b.im[lane];
            self.im[lane] -= a.re[lane] * b.im[lane] + a.im[lane] * b.re[lane];
        }
    }

    #[inline(always)]
    fn conj(mut self) -> Self {
        for im in &mut self.im {
            *im = -*im;
        }
        self
    }

    #[inline(always)]
    fn scale(&mut self, factor: &[f32; LANES]) {
        for lane in 0..LANES {
            self.re[lane] *= factor[lane];
            self.im[lane] *= factor[lane];
        }
    }
}

/// Computes the weights of all subcarriers, and returns the mean gain of each layer: what remains of a layer's symbol after
/// combining, from 0 to 1. `channels[antenna * LAYERS + layer]` has a value per subcarrier. `weights` has an entry per
/// [`LANES`] subcarriers, the last one padded.
pub fn weights(
    channels: &[&[Sample]; ANTENNAS * LAYERS],
    noise: f32,
    weights: &mut [Weights],
) -> [f32; LAYERS] {
    // An exact zero would make an unusable channel divide by nothing.
    let noise = noise.max(1e-9);
    let width = channels[0].len();
    let mut gains = [0.0; LAYERS];
    for (group, weights) in weights.iter_mut().enumerate() {
        let first = group * LANES;
        let used = width.saturating_sub(first).min(LANES);
        let gain = solve(channels, first, used, noise, weights);
        for (sum, gain) in gains.iter_mut().zip(gain) {
            *sum += gain[..used].iter().sum::<f32>();
        }
    }
    gains.map(|sum| sum / width.max(1) as f32)
}

/// The weights of up to eight subcarriers, and each layer's gain there.
fn solve(
    channels: &[&[Sample]; ANTENNAS * LAYERS],
    first: usize,
    used: usize,
    noise: f32,
    weights: &mut Weights,
) -> [[f32; LANES]; LAYERS] {
    let mut h = [[Lanes::ZERO; LAYERS]; ANTENNAS];
    for (antenna, row) in h.iter_mut().enumerate() {
        for (layer, value) in row.iter_mut().enumerate() {
            let channel = &channels[antenna * LAYERS + layer][first..first + used];
            for (lane, sample) in channel.iter().enumerate() {
                value.re[lane] = sample.re;
                value.im[lane] = sample.im;
            }
        }
    }
    // A = H^H H + s I, of which the lower triangle is used; then A = L D L^H, in place.
    let mut a = [[Lanes::ZERO; LAYERS]; LAYERS];
    for row in 0..LAYERS {
        for column in 0..=row {
            for antenna in &h {
                a[row][column].add_product(&antenna[row].conj(), &antenna[column]);
            }
        }
        for re in &mut a[row][row].re {
            *re += noise;
        }
    }
    let mut inverse_d = [[0.0; LANES]; LAYERS];
    for column in 0..LAYERS {
        for before in 0..column {
            let mut scaled = a[column][before].conj();
            scaled.scale(&a[before][before].re);
            for row in column..LAYERS {
                let factor = a[row][before];
                a[row][column].subtract_product(&factor, &scaled);
            }
        }
        for lane in 0..LANES {
            inverse_d[column][lane] = 1.0 / a[column][column].re[lane];
        }
        for below in &mut a[column + 1..] {
            below[column].scale(&inverse_d[column]);
        }
    }
    // For each antenna: A w = (H^H)'s column, by L, D and L^H.
    let mut gains = [[0.0; LANES]; LAYERS];
    for (antenna, channel) in h.iter().enumerate() {
        let mut w = channel.map(Lanes::conj);
        for row in 1..LAYERS {
            for column in 0..row {
                let known = w[column];
                w[row].subtract_product(&a[row][column], &known);
            }
        }
        for (w, inverse) in w.iter_mut().zip(&inverse_d) {
            w.scale(inverse);
        }
        for row in (0..LAYERS).rev() {
            for below in row + 1..LAYERS {
                let known = w[below];
                w[row].subtract_product(&a[below][row].conj(), &known);
            }
        }
        for (layer, w) in w.iter().enumerate() {
            weights[layer][antenna] = [w.re, w.im];
            for lane in 0..LANES {
                let h = &channel[layer];
                gains[layer][lane] += w.re[lane] * h.re[lane] - w.im[lane] * h.im[lane];
            }
        }
    }
    gains
}

/// Combines the antennas' subcarriers into those of a layer, each divided by the layer's mean `gain`: symbols keep their size.
pub fn combine(
    weights: &[Weights],
    received: &[&[Sample]; ANTENNAS],
    layer: usize,
    gain: f32,
    combined: &mut [Sample],
) {
    let scale = 1.0 / gain.max(1e-6);
    for (group, (weights, combined)) in weights.iter().zip(combined.chunks_mut(LANES)).enumerate() {
        let first = group * LANES;
        let mut sum = Lanes::ZERO;
        for (antenna, received) in received.iter().enumerate() {
            let mut samples = Lanes::ZERO;
            for (lane, sample) in received[first..first + combined.len()].iter().enumerate() {
                samples.re[lane] = sample.re;
                samples.im[lane] = sample.im;
            }
            let [re, im] = weights[layer][antenna];
            let weight = Lanes { re, im };
            sum.add_product(&weight, &samples);
        }
        for (lane, combined) in combined.iter_mut().enumerate() {
            *combined = Sample::new(sum.re[lane] * scale, sum.im[lane] * scale);
        }
    }
}

/// Noise power of a layer's symbols after [`combine`], where a symbol has power 1.
pub fn noise_after(gain: f32) -> f32 {
    let gain = gain.clamp(1e-6, 1.0 - 1e-6);
    (1.0 - gain) / gain
}
