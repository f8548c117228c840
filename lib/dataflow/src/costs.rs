//! Measured costs: how long a task of a kind takes on a PE, as a running quantile.

use alloc::vec::Vec;

/// The share of runs, in 1/256, that an expected cost covers: nine of ten.
const QUANTILE: u64 = 230;
/// A step is this part of the value, as a shift: an estimate follows a change within some hundred runs.
const STEP_SHIFT: u32 = 4;
/// Most kinds of tasks whose costs are kept.
pub const KINDS_MAX: usize = 256;

/// A running quantile, in 1/256 ns: each sample moves it up or down by a step, in the ratio of the quantile (stochastic
/// approximation: Robbins and Monro, 1951).
#[derive(Debug, Clone, Copy, Default)]
struct Quantile {
    value: u64,
    samples: u64,
}

impl Quantile {
    fn add(&mut self, sample: u64) {
        let sample = sample.min(u64::MAX >> 16) << 8;
        self.samples += 1;
        if self.samples == 1 {
            self.value = sample;
            return;
        }
        let step = (self.value >> STEP_SHIFT).max(256);
        if sample > self.value {
            self.value += (step * QUANTILE) >> 8;
        } else {
            self.value -= ((step * (256 - QUANTILE)) >> 8).min(self.value);
        }
    }
}

/// Measured costs of one slice's tasks, by kind and PE.
#[derive(Debug, Clone)]
pub struct CostBook {
    pes: usize,
    cells: Vec<Quantile>,
}

/// A measured cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Nanoseconds within which nine of ten runs ended.
    pub cost: u64,
    /// Runs that were measured.
    pub samples: u64,
}

impl CostBook {
    /// Returns a book without samples.
    pub fn new(pes: usize) -> Self {
        Self {
            pes,
            cells: Vec::new(),
        }
    }

    /// Adds a run of `nanoseconds`. Kinds from [`KINDS_MAX`] on share the last entry.
    pub fn add(&mut self, kind: u16, pe: usize, nanoseconds: u64) {
        let at = self.at(kind, pe);
        if at >= self.cells.len() {
            self.cells.resize(at + 1, Quantile::default());
        }
        self.cells[at].add(nanoseconds);
    }

    /// The cost of a kind on a PE, or `None` if none has run there.
    pub fn on(&self, kind: u16, pe: usize) -> Option<Measured> {
        let cell = self.cells.get(self.at(kind, pe))?;
        (cell.samples > 0).then_some(Measured {
            cost: cell.value >> 8,
            samples: cell.samples,
        })
    }

    /// The cost of a kind on whatever PE, weighted by how often each has run it.
    pub fn of(&self, kind: u16) -> Option<Measured> {
        let cells = (0..self.pes).filter_map(|pe| self.on(kind, pe));
        let (mut sum, mut samples) = (0_u128, 0);
        for cell in cells {
            sum += u128::from(cell.cost) * u128::from(cell.samples);
            samples += cell.samples;
        }
        let cost = sum.checked_div(u128::from(samples))? as u64;
        Some(Measured { cost, samples })
    }

    /// All kinds that have run, with their costs.
    pub fn kinds(&self) -> Vec<(u16, Measured)> {
        let kinds = 0..(self.cells.len().div_ceil(self.pes.max(1))) as u16;
        let measured = kinds.filter_map(|kind| Some((kind, self.of(kind)?)));
        measured.collect()
    }

    fn at(&self, kind: u16, pe: usize) -> usize {
        usize::from(kind).min(KINDS_MAX - 1) * self.pes + pe.min(self.pes.saturating_sub(1))
    }
}
