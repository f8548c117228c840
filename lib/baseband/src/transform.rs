//! Discrete Fourier transforms of any size, scaled so that they keep power.

use std::cell::RefCell;
use std::sync::Arc;

use rustfft::{Fft, FftPlanner};

use crate::Sample;

/// A transform of one size and its inverse.
#[derive(Clone)]
pub struct Transform {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    scale: f32,
}

thread_local! {
    /// Working memory of this thread's transforms.
    static SCRATCH: RefCell<Vec<Sample>> = const { RefCell::new(Vec::new()) };
}

impl Transform {
    /// Prepares transforms of `size` samples; best for products of small primes.
    pub fn new(size: usize) -> Self {
        let mut planner = FftPlanner::new();
        Self {
            forward: planner.plan_fft_forward(size),
            inverse: planner.plan_fft_inverse(size),
            scale: 1.0 / (size.max(1) as f32).sqrt(),
        }
    }

    /// From time to frequency, in place. `samples` has whole blocks of the size.
    pub fn forward(&self, samples: &mut [Sample]) {
        self.run(&*self.forward, samples);
    }

    /// From frequency to time, in place.
    pub fn inverse(&self, samples: &mut [Sample]) {
        self.run(&*self.inverse, samples);
    }

    fn run(&self, fft: &dyn Fft<f32>, samples: &mut [Sample]) {
        SCRATCH.with_borrow_mut(|scratch| {
            let needs = fft.get_inplace_scratch_len();
            if scratch.len() < needs {
                scratch.resize(needs, Sample::default());
            }
            fft.process_with_scratch(samples, &mut scratch[..needs]);
        });
        for sample in samples {
            *sample *= self.scale;
        }
    }
}
