//! The decoder: both constituent codes in turn, each by the max-log-MAP algorithm (Robertson, Villebrun and Hoeher, ICC
//! 1995).
//!
//! A block is cut into eight windows, and a step is made in all of them at once: a lane of a vector of 128 bits for each. Nothing
//! is known of the states between windows; they are found out by some steps of the window beside, as sliding windows do
//! (Viterbi, IEEE JSAC 16(2), 1998). Values lie by step, then by window: bit `window * length + step` is at
//! `step * 8 + window`.
//!
//! State `4 a + 2 b + c` has the bits a, b, c in its delays. From it, feeding f leads to state `4 f + 2 a + b`; the step's bit is
//! `f ^ b ^ c`, its parity `f ^ a ^ c`: feeding 1 instead of 0 turns both, and so negates the step's metric.

use std::cell::RefCell;

use bytemuck::{cast_slice, cast_slice_mut};
use wide::i16x8;

use super::qpp::Interleaver;
use super::{STREAM_TAIL, TAIL};
use crate::crc;

/// Windows of a block. Each block size is a multiple of it.
const WINDOWS: usize = 8;
/// Steps in which the state at a window's edge is found out: ten times the code's memory, and a little more.
const TRAINING: usize = 32;

/// Metrics of all states, in all windows. Sums stop at the type's bounds.
type States = [i16x8; 8];

/// Metric of a state in which the code cannot be; far below what soft bits add up to.
const IMPOSSIBLE: i16 = -16_384;
/// Steps of a soft bit's metric within one unit of the log-likelihood ratio.
const STEPS: f32 = 8.0;
/// Largest metric of a soft bit: as sure as 32 units.
const SURE: f32 = 256.0;
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
    /// For each place of the second code's bits, the place of the bit in the first code.
    sources: Box<[u16]>,
}

/// Working memory of a thread.
#[derive(Default)]
struct Work {
    /// Metrics of all states before each step.
    forward: Vec<States>,
    /// Soft bits of the block, as the first and the second encoder saw them.
    bits: [Vec<i16x8>; 2],
    /// Soft parity bits of both codes.
    parity: [Vec<i16x8>; 2],
    /// Soft value of each bit by the other code.
    before: Vec<i16x8>,
    /// Soft value of each bit by each code.
    extrinsic: [Vec<i16x8>; 2],
}

thread_local! {
    static WORK: RefCell<Work> = RefCell::default();
}

/// Soft bits of one constituent code.
struct Code<'a> {
    bits: &'a [i16x8],
    parity: &'a [i16x8],
    tail: [(i16, i16); TAIL],
}

impl Decoder {
    /// A decoder for blocks of the interleaver's size.
    pub fn new(interleaver: &Interleaver) -> Self {
        let sources = interleaver.sources();
        let length = sources.len() / WINDOWS;
        let place = |bit: usize| bit % length * WINDOWS + bit / length;
        let mut placed = vec![0; sources.len()];
        for (bit, &source) in sources.iter().enumerate() {
            placed[place(bit)] = place(usize::from(source)) as u16;
        }
        Self {
            sources: placed.into(),
        }
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
        let block = self.sources.len();
        let [first, second, third] = [0, 1, 2].map(|at| {
            let stream = block + STREAM_TAIL;
            &soft[at * stream..][..stream]
        });
        let tail = |at: usize| {
            let pair = |x: f32, z: f32| (quantised(x), quantised(z));
            [
                pair(first[at], second[at]),
                pair(first[at + 1], third[at]),
                pair(second[at + 1], third[at + 1]),
            ]
        };
        let tails = [tail(block), tail(block + 2)];
        transpose(&first[..block], &mut work.bits[0]);
        transpose(&second[..block], &mut work.parity[0]);
        transpose(&third[..block], &mut work.parity[1]);
        for memory in [&mut work.bits[1], &mut work.before]
            .into_iter()
            .chain(&mut work.extrinsic)
        {
            memory.clear();
            memory.resize(block / WINDOWS, i16x8::ZERO);
        }
        let [own, interleaved] = &mut work.bits;
        self.interleave(own, interleaved);
        let mut decoded = Decoded {
            iterations: 0,
            is_right: false,
        };
        while decoded.iterations < settings.iterations_max.max(1) {
            decoded.iterations += 1;
            for (code, tail) in tails.into_iter().enumerate() {
                let of = Code {
                    bits: &work.bits[code],
                    parity: &work.parity[code],
                    tail,
                };
                let extrinsic = &mut work.extrinsic[code];
                of.decode(&work.before, &mut work.forward, extrinsic);
                match code {
                    0 => self.interleave(extrinsic, &mut work.before),
                    _ => self.restore(extrinsic, &mut work.before),
                }
            }
            // The sum of what was received and of what both codes say decides.
            let sums = work.bits[0].iter().zip(&work.extrinsic[0]);
            let length = block / WINDOWS;
            for (step, ((&bit, &own), &other)) in sums.zip(&work.before).enumerate() {
                let sum = bit.saturating_add(own.saturating_add(other)).to_array();
                for (window, sum) in sum.iter().enumerate() {
                    bits[window * length + step] = u8::from(*sum < 0);
                }
            }
            if settings.stops_early && crc::is_right(bits) {
                break;
            }
        }
        decoded.is_right = crc::is_right(bits);
        decoded
    }

    /// From the first code's order to the second's.
    fn interleave(&self, from: &[i16x8], to: &mut [i16x8]) {
        let (from, to): (&[i16], &mut [i16]) = (cast_slice(from), cast_slice_mut(to));
        for (value, &source) in to.iter_mut().zip(&self.sources) {
            *value = from[usize::from(source)];
        }
    }

    /// From the second code's order to the first's.
    fn restore(&self, from: &[i16x8], to: &mut [i16x8]) {
        let (from, to): (&[i16], &mut [i16]) = (cast_slice(from), cast_slice_mut(to));
        for (value, &source) in from.iter().zip(&self.sources) {
            to[usize::from(source)] = *value;
        }
    }
}

/// A soft bit as a metric. A value that is no number becomes 0: nothing is known of its bit.
fn quantised(soft: f32) -> i16 {
    (soft * STEPS).clamp(-SURE, SURE) as i16
}

/// Soft bits by step, then by window.
fn transpose(soft: &[f32], to: &mut Vec<i16x8>) {
    let length = soft.len() / WINDOWS;
    to.clear();
    to.extend((0..length).map(|step| {
        let of_window = |window: usize| quantised(soft[window * length + step]);
        i16x8::from(std::array::from_fn::<i16, WINDOWS, _>(of_window))
    }));
}

impl Code<'_> {
    /// Computes what this code says about each bit beyond what was received and known `before`.
    fn decode(&self, before: &[i16x8], forward: &mut Vec<States>, extrinsic: &mut [i16x8]) {
        forward.clear();
        let mut states = self.trained(before, known_start(), true);
        for step in 0..self.bits.len() {
            forward.push(states);
            states = step_forward(&states, &self.metric(before, step));
        }
        let mut end = known_start();
        for &(bit, parity) in self.tail.iter().rev() {
            let metric = Metric::of(i16x8::splat(bit), i16x8::splat(parity));
            end = step_back(&end, &metric);
        }
        let mut states = self.trained(before, end, false);
        for step in (0..self.bits.len()).rev() {
            let metric = self.metric(before, step);
            let both = difference(&forward[step], &metric, &states);
            let new = both.saturating_sub(self.known(before, step));
            let bound = i16x8::splat(EXTRINSIC_MAX);
            let new = new.max(-bound).min(bound);
            // The algorithm takes the larger of two terms for their sum, and is too sure of itself: three quarters.
            extrinsic[step] = new - (new >> 2);
            states = step_back(&states, &metric);
        }
    }

    /// The states at the begin of each window, or at its end. At the block's own edge they are `edge`.
    fn trained(&self, before: &[i16x8], edge: States, is_forward: bool) -> States {
        let length = self.bits.len();
        let mut states = [i16x8::ZERO; 8];
        for away in (0..TRAINING).rev() {
            // The step lies so many windows beside, at this place in there.
            let windows = 1 + away / length;
            let step = match is_forward {
                true => length - 1 - away % length,
                false => away % length,
            };
            // Behind the block's edge lie zeros.
            let beside = |values: i16x8| {
                let values = values.to_array();
                i16x8::from(std::array::from_fn::<i16, WINDOWS, _>(|window| {
                    let there = match is_forward {
                        true => window.checked_sub(windows),
                        false => Some(window + windows),
                    };
                    let value = there.and_then(|there| values.get(there));
                    value.copied().unwrap_or(0)
                }))
            };
            let known = beside(self.known(before, step));
            let metric = Metric::of(known, beside(self.parity[step]));
            states = match is_forward {
                true => step_forward(&states, &metric),
                false => step_back(&states, &metric),
            };
            // Windows at the block's edge wait there.
            let is_inner = beside(i16x8::splat(-1));
            for (state, edge) in states.iter_mut().zip(edge) {
                *state = (*state & is_inner) | (edge & !is_inner);
            }
        }
        states
    }

    /// A step's bits as they were received and as the other code says, together.
    #[inline(always)]
    fn known(&self, before: &[i16x8], step: usize) -> i16x8 {
        self.bits[step].saturating_add(before[step])
    }

    #[inline(always)]
    fn metric(&self, before: &[i16x8], step: usize) -> Metric {
        Metric::of(self.known(before, step), self.parity[step])
    }
}

/// The code begins, and ends, in state 0.
fn known_start() -> States {
    let mut states = [i16x8::splat(IMPOSSIBLE); 8];
    states[0] = i16x8::ZERO;
    states
}

/// Bound of what a code says about a bit: eight metrics of this size fit into a sum.
const EXTRINSIC_MAX: i16 = 2_048;

/// The metric of a step where a 0 is fed: half of bit and parity, each with its sign.
struct Metric {
    /// Both of one sign: in states 0 and 7, and negative in 1 and 6.
    same: i16x8,
    /// Of different signs: in states 3 and 4, and negative in 2 and 5.
    different: i16x8,
}

impl Metric {
    #[inline(always)]
    fn of(bit: i16x8, parity: i16x8) -> Self {
        let (bit, parity): (i16x8, i16x8) = (bit >> 1, parity >> 1);
        Metric {
            same: bit.saturating_add(parity),
            different: bit.saturating_sub(parity),
        }
    }

    /// `from_0` plus the metric of each state, and `from_1` minus it.
    #[inline(always)]
    fn branches(&self, from_0: &States, from_1: &States) -> (States, States) {
        let (s, d) = (self.same, self.different);
        let metric = [s, -s, -d, d, d, -d, -s, s];
        (
            std::array::from_fn(|state| from_0[state].saturating_add(metric[state])),
            std::array::from_fn(|state| from_1[state].saturating_sub(metric[state])),
        )
    }
}

/// The states after a step: state `4 f + 2 a + b` comes from `4 a + 2 b` and from `4 a + 2 b + 1`.
#[inline(always)]
fn step_forward(states: &States, metric: &Metric) -> States {
    let (fed_0, fed_1) = metric.branches(states, states);
    above_first(std::array::from_fn(|state| {
        let fed = if state < 4 { &fed_0 } else { &fed_1 };
        fed[state % 4 * 2].max(fed[state % 4 * 2 + 1])
    }))
}

/// The states before a step: the better of feeding 0, to state `s / 2`, and 1, to `4 + s / 2`.
#[inline(always)]
fn step_back(states: &States, metric: &Metric) -> States {
    let (fed_0, fed_1) = metric.branches(&after_0(states), &after_1(states));
    above_first(std::array::from_fn(|state| fed_0[state].max(fed_1[state])))
}

/// For each state, the state to which feeding a 0 leads.
#[inline(always)]
fn after_0(states: &States) -> States {
    std::array::from_fn(|state| states[state / 2])
}

/// For each state, the state to which feeding a 1 leads.
#[inline(always)]
fn after_1(states: &States) -> States {
    std::array::from_fn(|state| states[4 + state / 2])
}

/// Metrics grow with each step; only their differences count.
#[inline(always)]
fn above_first(states: States) -> States {
    let first = states[0];
    states.map(|state| state.saturating_sub(first))
}

/// The better path with a 0, minus the better path with a 1.
#[inline(always)]
fn difference(forward: &States, metric: &Metric, back: &States) -> i16x8 {
    let (fed_0, fed_1) = metric.branches(forward, forward);
    let sum = |fed: &States, after: States| -> States {
        std::array::from_fn(|state| fed[state].saturating_add(after[state]))
    };
    let (fed_0, fed_1) = (sum(&fed_0, after_0(back)), sum(&fed_1, after_1(back)));
    // In states 0, 3, 4 and 7, feeding a 0 is a bit 0.
    let is_0 = |state: usize| [0, 3, 4, 7].contains(&state);
    let zero = std::array::from_fn(|state| {
        if is_0(state) {
            fed_0[state]
        } else {
            fed_1[state]
        }
    });
    let one = std::array::from_fn(|state| {
        if is_0(state) {
            fed_1[state]
        } else {
            fed_0[state]
        }
    });
    largest(zero).saturating_sub(largest(one))
}

#[inline(always)]
fn largest(states: States) -> i16x8 {
    let pairs: [i16x8; 4] = std::array::from_fn(|at| states[at].max(states[at + 4]));
    pairs[0].max(pairs[2]).max(pairs[1].max(pairs[3]))
}
