//! The decoder: both constituent codes in turn, each by the max-log-MAP algorithm (Robertson, Villebrun and Hoeher, ICC
//! 1995).
//!
//! The eight states of a step are an array of eight 16-bit numbers: as many as a vector register of 128 bits holds. State `4 a + 2 b + c`
//! has the bits a, b, c in its delays. From it, feeding f leads to state `4 f + 2 a + b`; the step's bit is `f ^ b ^ c`, its
//! parity `f ^ a ^ c`: feeding 1 instead of 0 turns both, and so negates the step's metric.

use std::cell::RefCell;

use super::qpp::Interleaver;
use super::{STREAM_TAIL, TAIL};
use crate::crc;

/// Metrics of all states. Sums stop at the type's bounds.
type States = [i16; 8];

/// Metric of a state in which the code cannot be; far below what soft bits add up to.
const IMPOSSIBLE: i16 = -16_384;
/// Steps of a soft bit's metric within one unit of the log-likelihood ratio.
const STEPS: f32 = 8.0;
/// Largest metric of a soft bit: as sure as 32 units.
const SURE: f32 = 256.0;
/// The step's bit in each state, where a 0 is fed: all ones for a 0, zero for a 1. Below, the same for the parity.
const BIT_IS_0: States = [-1, 0, 0, -1, -1, 0, 0, -1];
const PARITY_IS_0: States = [-1, 0, -1, 0, 0, -1, 0, -1];

/// How a decoder works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most iterations, each of both constituent codes.
    pub iterations_max: usize,
    /// End as soon as the block's checksum is right.
    pub stops_early: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            iterations_max: 5,
            stops_early: true,
        }
    }
}

/// The result of decoding a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Iterations that were made.
    pub iterations: usize,
    /// The block ends with the checksum of its bits.
    pub is_right: bool,
}

/// A decoder for one block size.
pub struct Decoder {
    interleaver: Interleaver,
}

/// Working memory of a thread.
#[derive(Default)]
struct Work {
    /// Metrics of all states before each step.
    forward: Vec<States>,
    /// The soft bits, stream by stream.
    soft: Vec<i16>,
    /// Soft bits of the block as the second encoder saw them.
    interleaved: Vec<i16>,
    /// The other code's soft value of each bit.
    before: Vec<i16>,
    /// This code's soft value of each bit.
    extrinsic: Vec<i16>,
}

thread_local! {
    static WORK: RefCell<Work> = RefCell::default();
}

/// Soft bits of one constituent code.
struct Code<'a> {
    bits: &'a [i16],
    parity: &'a [i16],
    tail: [(i16, i16); TAIL],
}

impl Decoder {
    /// A decoder for blocks of the interleaver's size.
    pub fn new(interleaver: Interleaver) -> Self {
        Self { interleaver }
    }

    /// Decodes 3 (K + 4) soft bits, stream by stream, into K bits, one per byte.
    pub fn decode(&self, soft: &[f32], settings: Settings, bits: &mut [u8]) -> Decoded {
        WORK.with_borrow_mut(|work| self.iterate(soft, settings, bits, work))
    }

    fn iterate(
        &self,
        soft: &[f32],
        settings: Settings,
        bits: &mut [u8],
        work: &mut Work,
    ) -> Decoded {
        let sources = self.interleaver.sources();
        let block = sources.len();
        let stream = block + STREAM_TAIL;
        work.soft.clear();
        // A value that is no number becomes 0: nothing is known of its bit.
        let quantised = soft
            .iter()
            .map(|soft| (soft * STEPS).clamp(-SURE, SURE) as i16);
        work.soft.extend(quantised);
        let [first, second, third] = [0, 1, 2].map(|at| &work.soft[at * stream..][..stream]);
        let tail = |at: usize| {
            let [x0, z1] = [first[at], first[at + 1]];
            let [z0, x2] = [second[at], second[at + 1]];
            let [x1, z2] = [third[at], third[at + 1]];
            [(x0, z0), (x1, z1), (x2, z2)]
        };
        work.interleaved.clear();
        work.interleaved
            .extend(sources.iter().map(|&source| first[usize::from(source)]));
        work.before.clear();
        work.before.resize(block, 0);
        work.extrinsic.resize(block, 0);
        let mut decoded = Decoded {
            iterations: 0,
            is_right: false,
        };
        while decoded.iterations < settings.iterations_max.max(1) {
            decoded.iterations += 1;
            let code = Code {
                bits: &first[..block],
                parity: &second[..block],
                tail: tail(block),
            };
            code.decode(&work.before, &mut work.forward, &mut work.extrinsic);
            for (before, &source) in work.before.iter_mut().zip(sources) {
                *before = work.extrinsic[usize::from(source)];
            }
            let code = Code {
                bits: &work.interleaved,
                parity: &third[..block],
                tail: tail(block + 2),
            };
            code.decode(&work.before, &mut work.forward, &mut work.extrinsic);
            // The sum of what was received and of what both codes say decides; then the second code's word is the first's
            // prior knowledge.
            for (at, &source) in sources.iter().enumerate() {
                let sum = i32::from(work.interleaved[at])
                    + i32::from(work.before[at])
                    + i32::from(work.extrinsic[at]);
                bits[usize::from(source)] = u8::from(sum < 0);
            }
            for (at, &source) in sources.iter().enumerate() {
                work.before[usize::from(source)] = work.extrinsic[at];
            }
            if settings.stops_early && crc::is_right(bits) {
                break;
            }
        }
        decoded.is_right = crc::is_right(bits);
        decoded
    }
}

impl Code<'_> {
    /// Computes what this code says about each bit beyond what was received and known `before`.
    fn decode(&self, before: &[i16], forward: &mut Vec<States>, extrinsic: &mut [i16]) {
        forward.clear();
        let mut states = [IMPOSSIBLE; 8];
        states[0] = 0;
        for ((&bit, &prior), &parity) in self.bits.iter().zip(before).zip(self.parity) {
            forward.push(states);
            states = step_forward(&states, &metric(bit.saturating_add(prior), parity));
        }
        let mut states = [IMPOSSIBLE; 8];
        states[0] = 0;
        for &(bit, parity) in self.tail.iter().rev() {
            states = step_back(&states, &metric(bit, parity));
        }
        let steps = self.bits.iter().zip(before).zip(self.parity);
        let steps = steps.zip(forward.iter()).zip(extrinsic);
        for ((((&bit, &prior), &parity), forward), extrinsic) in steps.rev() {
            let known = bit.saturating_add(prior);
            let metric = metric(known, parity);
            let both = difference(forward, &metric, &states);
            let new = both
                .saturating_sub(known)
                .clamp(-EXTRINSIC_MAX, EXTRINSIC_MAX);
            // The algorithm takes the larger of two terms for their sum, and is too sure of itself: three quarters.
            *extrinsic = new - new / 4;
            states = step_back(&states, &metric);
        }
    }
}

/// Bound of what a code says about a bit: eight metrics of this size fit into a sum.
const EXTRINSIC_MAX: i16 = 2_048;

/// The metric of a step from each state, where a 0 is fed: half of bit and parity, each with its sign.
#[inline(always)]
fn metric(bit: i16, parity: i16) -> States {
    let (bit, parity) = (bit / 2, parity / 2);
    let signed = |value: i16, is_0: i16| (value & is_0) - (value & !is_0);
    std::array::from_fn(|state| {
        signed(bit, BIT_IS_0[state]).saturating_add(signed(parity, PARITY_IS_0[state]))
    })
}

/// The states after a step: state `4 f + 2 a + b` comes from `4 a + 2 b` and from `4 a + 2 b + 1`.
#[inline(always)]
fn step_forward(states: &States, metric: &States) -> States {
    let fed_0: States = std::array::from_fn(|state| states[state].saturating_add(metric[state]));
    let fed_1: States = std::array::from_fn(|state| states[state].saturating_sub(metric[state]));
    let even: States = [
        fed_0[0], fed_0[2], fed_0[4], fed_0[6], fed_1[0], fed_1[2], fed_1[4], fed_1[6],
    ];
    let odd: States = [
        fed_0[1], fed_0[3], fed_0[5], fed_0[7], fed_1[1], fed_1[3], fed_1[5], fed_1[7],
    ];
    above_first(std::array::from_fn(|state| even[state].max(odd[state])))
}

/// The states before a step: the better of feeding 0, to state `s / 2`, and 1, to `4 + s / 2`.
#[inline(always)]
fn step_back(states: &States, metric: &States) -> States {
    above_first(std::array::from_fn(|state| {
        let fed_0 = states[state / 2].saturating_add(metric[state]);
        let fed_1 = states[4 + state / 2].saturating_sub(metric[state]);
        fed_0.max(fed_1)
    }))
}

/// Metrics grow with each step; only their differences count.
#[inline(always)]
fn above_first(states: States) -> States {
    let first = states[0];
    states.map(|state| state.saturating_sub(first))
}

/// The better path with a 0, minus the better path with a 1.
#[inline(always)]
fn difference(forward: &States, metric: &States, back: &States) -> i16 {
    let fed_0: States = std::array::from_fn(|state| {
        let sum = forward[state].saturating_add(metric[state]);
        sum.saturating_add(back[state / 2])
    });
    let fed_1: States = std::array::from_fn(|state| {
        let sum = forward[state].saturating_sub(metric[state]);
        sum.saturating_add(back[4 + state / 2])
    });
    // In states 0, 3, 4 and 7, feeding a 0 is a bit 0.
    let zero: States = [
        fed_0[0], fed_1[1], fed_1[2], fed_0[3], fed_0[4], fed_1[5], fed_1[6], fed_0[7],
    ];
    let one: States = [
        fed_1[0], fed_0[1], fed_0[2], fed_1[3], fed_1[4], fed_0[5], fed_0[6], fed_1[7],
    ];
    largest(zero).saturating_sub(largest(one))
}

#[inline(always)]
fn largest(states: States) -> i16 {
    let pairs: [i16; 4] = std::array::from_fn(|at| states[at].max(states[at + 4]));
    pairs[0].max(pairs[2]).max(pairs[1].max(pairs[3]))
}
