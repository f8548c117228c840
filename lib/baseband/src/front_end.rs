//! The front end of a receiver: from time samples of a symbol to its subcarriers (TS 36.211, section 5.6).
//!
//! An uplink's subcarriers lie half a spacing beside the transform's: the samples are turned back by that half first.

use std::cell::RefCell;
use std::f64::consts::PI;

use crate::Sample;
use crate::size::SizeError;
use crate::transform::Transform;

thread_local! {
    /// A symbol's samples, turned.
    static WORK: RefCell<Vec<Sample>> = const { RefCell::new(Vec::new()) };
}

/// Samples of the cyclic prefix of the first symbol of a slot, of a transform of 2048; other sizes in proportion.
const FIRST_PREFIX: usize = 160;
/// The same, of the other symbols.
const PREFIX: usize = 144;
/// The transform of those figures.
const LARGEST: usize = 2048;

/// A front end for one bandwidth.
pub struct FrontEnd {
    transform: Transform,
    size: usize,
    subcarriers: usize,
    /// Half a subcarrier's turn, by sample.
    half: Box<[Sample]>,
}

impl FrontEnd {
    /// For transforms of `size` samples (a power of two from 128 to 2048), of which `subcarriers` in the middle are used.
    ///
    /// # Errors
    /// [`SizeError::Transform`].
    pub fn new(size: usize, subcarriers: usize) -> Result<Self, SizeError> {
        if !size.is_power_of_two() || !(128..=LARGEST).contains(&size) || subcarriers > size {
            return Err(SizeError::Transform { size, subcarriers });
        }
        let half = |sample: usize| {
            let turn = -PI * sample as f64 / size as f64;
            Sample::new(turn.cos() as f32, turn.sin() as f32)
        };
        Ok(Self {
            transform: Transform::new(size),
            size,
            subcarriers,
            half: (0..size).map(half).collect(),
        })
    }

    /// Samples of a symbol's cyclic prefix.
    pub fn prefix(&self, symbol: usize) -> usize {
        let prefix = if symbol == 0 { FIRST_PREFIX } else { PREFIX };
        prefix * self.size / LARGEST
    }

    /// Samples of a symbol with its prefix.
    pub fn length(&self, symbol: usize) -> usize {
        self.prefix(symbol) + self.size
    }

    /// Takes the subcarriers from the samples of a symbol, prefix included.
    pub fn receive(&self, samples: &[Sample], subcarriers: &mut [Sample]) {
        let body = &samples[samples.len() - self.size..];
        WORK.with_borrow_mut(|work| {
            work.clear();
            work.extend(
                body.iter()
                    .zip(&self.half)
                    .map(|(sample, half)| sample * half),
            );
            self.transform.forward(work);
            for (index, subcarrier) in subcarriers.iter_mut().enumerate() {
                *subcarrier = work[self.bin(index)];
            }
        });
    }

    /// The samples of a symbol with these subcarriers, with its prefix: what a transmitter sends.
    pub fn send(&self, symbol: usize, subcarriers: &[Sample]) -> Vec<Sample> {
        let mut body = vec![Sample::default(); self.size];
        for (index, &subcarrier) in subcarriers.iter().enumerate() {
            body[self.bin(index)] = subcarrier;
        }
        self.transform.inverse(&mut body);
        let prefix = self.prefix(symbol);
        let turned = |sample: usize| {
            // The half turn goes on through the prefix: sample 0 of the body has none.
            let turn = PI * (sample as f64 - prefix as f64) / self.size as f64;
            let half = Sample::new(turn.cos() as f32, turn.sin() as f32);
            body[(sample + self.size - prefix) % self.size] * half
        };
        (0..prefix + self.size).map(turned).collect()
    }

    /// The transform's bin of a subcarrier: the lower half has negative frequencies.
    fn bin(&self, subcarrier: usize) -> usize {
        (subcarrier + self.size - self.subcarriers / 2) % self.size
    }
}
