//! Channels between a transmitter's layers and a receiver's antennas, and their noise; for tests and benchmarks.

use std::f64::consts::PI;

use crate::Sample;
use crate::size::{ANTENNAS, LAYERS};

/// Random numbers that repeat with their seed (SplitMix64: Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A random bit.
    pub fn bit(&mut self) -> u8 {
        (self.bits() >> 63) as u8
    }

    /// A complex Gaussian value of power 1 (Box and Muller, 1958).
    pub fn gauss(&mut self) -> Sample {
        let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let radius = (-unit(self.bits()).ln()).sqrt();
        let angle = 2.0 * PI * unit(self.bits());
        Sample::new((radius * angle.cos()) as f32, (radius * angle.sin()) as f32)
    }
}

/// Impulse responses from each layer to each antenna, one value per tap of the user's own time axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Channel {
    taps: Vec<[[Sample; LAYERS]; ANTENNAS]>,
}

impl Channel {
    /// The four-point transform, divided by two: unitary, flat, and all antennas hear all layers.
    pub fn unitary() -> Self {
        let mut tap = [[Sample::default(); LAYERS]; ANTENNAS];
        for (antenna, row) in tap.iter_mut().enumerate() {
            for (layer, value) in row.iter_mut().enumerate() {
                let turn = -PI * (antenna * layer) as f64 / 2.0;
                *value = Sample::new(turn.cos() as f32, turn.sin() as f32) * 0.5;
            }
        }
        Self { taps: vec![tap] }
    }

    /// Independent Rayleigh fading of so many taps of equal power, which is 1 together.
    pub fn rayleigh(taps: usize, random: &mut Random) -> Self {
        let amplitude = 1.0 / (taps.max(1) as f32).sqrt();
        let mut tap =
            || [[(); LAYERS]; ANTENNAS].map(|row| row.map(|()| random.gauss() * amplitude));
        Self {
            taps: (0..taps).map(|_| tap()).collect(),
        }
    }

    /// The channel from a layer to an antenna on a subcarrier of `width`.
    pub fn at(&self, antenna: usize, layer: usize, subcarrier: usize, width: usize) -> Sample {
        let taps = self.taps.iter().enumerate();
        let taps = taps.map(|(delay, tap)| {
            let turn = -2.0 * PI * (subcarrier * delay % width) as f64 / width as f64;
            tap[antenna][layer] * Sample::new(turn.cos() as f32, turn.sin() as f32)
        });
        taps.sum()
    }
}
