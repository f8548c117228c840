//! The code: checksum, interleaver, turbo code, rate matching.

use proptest::prelude::*;

use crate::channel::Random;
use crate::crc::{CRC_BITS, attach, crc24a, is_right};
use crate::rate::{self, RateMatch};
use crate::turbo::{self, Decoder, Interleaver, Settings};

fn bits(count: usize, random: &mut Random) -> Vec<u8> {
    (0..count).map(|_| random.bit()).collect()
}

/// The definition: the remainder of the bits, with 24 zeros behind, by the polynomial.
fn remainder(bits: &[u8]) -> u32 {
    let polynomial: u32 = [24, 23, 18, 17, 14, 11, 10, 7, 6, 5, 4, 3, 1, 0]
        .iter()
        .map(|&at| 1 << at)
        .sum();
    let mut rest = 0_u32;
    for &bit in bits.iter().chain(&[0; CRC_BITS]) {
        rest = rest << 1 | u32::from(bit);
        if rest >> 24 & 1 == 1 {
            rest ^= polynomial;
        }
    }
    rest
}

proptest! {
    // promise: 30.3
    #[test]
    fn the_checksum_is_the_remainder(bits in prop::collection::vec(0_u8..2, 0..100)) {
        prop_assert_eq!(crc24a(&bits), remainder(&bits));
    }
}

// promise: 30.3
#[test]
fn any_flipped_bit_fails_the_checksum() {
    let mut block = bits(200, &mut Random::new(1));
    attach(&mut block);
    assert!(is_right(&block));
    for bit in 0..block.len() {
        block[bit] ^= 1;
        assert!(!is_right(&block), "bit {bit}");
        block[bit] ^= 1;
    }
    assert!(!is_right(&[]) && !is_right(&[0; 24]));
}

fn blocks() -> impl Iterator<Item = usize> {
    (0..=6200).filter(|&block| turbo::is_block(block))
}

// promise: 30.3
#[test]
fn the_interleaver_of_each_of_188_sizes_is_a_permutation() {
    assert_eq!(blocks().count(), 188);
    assert_eq!((blocks().next(), blocks().last()), (Some(40), Some(6144)));
    for block in blocks() {
        let interleaver = Interleaver::new(block).unwrap();
        let mut seen = vec![false; block];
        for &source in interleaver.sources() {
            assert!(
                !std::mem::replace(&mut seen[usize::from(source)], true),
                "{block}"
            );
        }
    }
    assert!(Interleaver::new(41).is_none());
    // TS 36.212, table 5.1.3-3: K = 40 has f1 = 3, f2 = 10.
    assert_eq!(Interleaver::new(40).unwrap().sources()[..4], [0, 13, 6, 19]);
    assert_eq!(turbo::block_for(2592), Some(864));
    assert_eq!(turbo::block_for(100), None);
}

/// Soft bits of sent bits over white noise of this power, with log-likelihood ratios of their size.
fn received(bits: &[u8], noise: f32, random: &mut Random) -> Vec<f32> {
    let amplitude = (noise / 2.0).sqrt() * std::f32::consts::SQRT_2;
    let soft = bits.iter().map(|&bit| {
        let value = 1.0 - 2.0 * f32::from(bit) + random.gauss().re * amplitude;
        4.0 * value / noise
    });
    soft.collect()
}

// promise: 30.3
#[test]
fn each_block_size_comes_back_without_noise() {
    let mut random = Random::new(2);
    for block in blocks().step_by(7).chain([6144]) {
        let interleaver = Interleaver::new(block).unwrap();
        let mut sent = bits(block - CRC_BITS, &mut random);
        attach(&mut sent);
        let coded = turbo::encode(&sent, &interleaver);
        assert_eq!(coded.len(), 3 * (block + 4));
        let soft: Vec<f32> = coded
            .iter()
            .map(|&bit| 4.0 - 8.0 * f32::from(bit))
            .collect();
        let mut decoded = vec![2; block];
        let result = Decoder::new(&interleaver).decode(&soft, Settings::default(), &mut decoded);
        assert!(result.is_right && result.iterations == 1, "{block}");
        assert_eq!(decoded, sent);
    }
}

// promise: 30.3
#[test]
fn the_code_ends_in_state_zero_and_a_lone_one_gives_its_impulse_response() {
    // A single 1 at the begin: the first encoder's parity is (1 + D + D^3) / (1 + D^2 + D^3).
    let block = 40;
    let interleaver = Interleaver::new(block).unwrap();
    let mut sent = vec![0; block];
    sent[0] = 1;
    let coded = turbo::encode(&sent, &interleaver);
    let mut expected = vec![0_u8; block];
    for n in 0..block {
        let input = u8::from([0, 1, 3].contains(&n));
        let back = |delay: usize| n.checked_sub(delay).map_or(0, |at| expected[at]);
        expected[n] = input ^ back(2) ^ back(3);
    }
    assert_eq!(coded[block + 4..2 * block + 4], expected);
}

// promise: 30.3
#[test]
fn long_blocks_have_their_waterfall_where_the_literature_has_it() {
    // Rate 1/3, K = 6144: hopeless at -0.5 dB, all right at 1.2 dB of Eb/N0.
    let mut random = Random::new(3);
    let interleaver = Interleaver::new(6144).unwrap();
    let mut sent = bits(6144 - CRC_BITS, &mut random);
    attach(&mut sent);
    let coded = turbo::encode(&sent, &interleaver);
    let decoder = Decoder::new(&interleaver);
    let settings = Settings {
        iterations_max: 8,
        stops_early: true,
    };
    let mut right = |decibel: f32| {
        // A real symbol per coded bit: Es = 1, N0 = 3 / (Eb/N0).
        let noise = 3.0 / 10_f32.powf(decibel / 10.0);
        let blocks = (0..6).filter(|_| {
            let soft = received(&coded, noise, &mut random);
            let mut decoded = vec![0; sent.len()];
            decoder.decode(&soft, settings, &mut decoded).is_right
        });
        blocks.count()
    };
    assert_eq!(right(-0.5), 0);
    assert_eq!(right(1.2), 6);
}

/// The decoder as it is written down: one window, no bounds, numbers as they are. Soft bits become bits.
fn reference(soft: &[f32], interleaver: &Interleaver, iterations: usize) -> Vec<u8> {
    let block = interleaver.sources().len();
    let [first, second, third] = [0, 1, 2].map(|at| &soft[at * (block + 4)..][..block + 4]);
    let source = |bit: usize| usize::from(interleaver.sources()[bit]);
    let tails = [block, block + 2].map(|at| {
        [
            (first[at], second[at]),
            (first[at + 1], third[at]),
            (second[at + 1], third[at + 1]),
        ]
    });
    let interleaved: Vec<f32> = (0..block).map(|bit| first[source(bit)]).collect();
    let (mut before, mut own) = (vec![0.0; block], Vec::new());
    for _ in 0..iterations {
        own = constituent(&first[..block], &second[..block], &before, tails[0]);
        let told: Vec<f32> = (0..block).map(|bit| own[source(bit)]).collect();
        let other = constituent(&interleaved, &third[..block], &told, tails[1]);
        (0..block).for_each(|bit| before[source(bit)] = other[bit]);
    }
    let sums = (0..block).map(|bit| first[bit] + own[bit] + before[bit]);
    sums.map(|sum| u8::from(sum < 0.0)).collect()
}

/// What one code says about each bit.
fn constituent(bits: &[f32], parity: &[f32], before: &[f32], tail: [(f32, f32); 3]) -> Vec<f32> {
    // From a state, feeding f: the next state, and the metric.
    let branch = |state: usize, fed: usize, (bit, parity): (f32, f32)| {
        let [a, b, c] = [state >> 2, state >> 1 & 1, state & 1];
        let sign = |bit: usize| if bit == 0 { 0.5 } else { -0.5 };
        let metric = sign(fed ^ b ^ c) * bit + sign(fed ^ a ^ c) * parity;
        (fed << 2 | a << 1 | b, fed ^ b ^ c, metric)
    };
    let branches = || (0..8).flat_map(|state| [(state, 0), (state, 1)]);
    let steps = bits.iter().zip(before).zip(parity);
    let steps: Vec<(f32, f32)> = steps
        .map(|((bit, known), parity)| (bit + known, *parity))
        .collect();
    let start = || {
        let mut states = [f32::NEG_INFINITY; 8];
        states[0] = 0.0;
        states
    };
    let mut forward = vec![start()];
    for &step in &steps {
        let mut next = [f32::NEG_INFINITY; 8];
        for (state, fed) in branches() {
            let (to, _, metric) = branch(state, fed, step);
            next[to] = next[to].max(forward[forward.len() - 1][state] + metric);
        }
        forward.push(next);
    }
    let back = |states: [f32; 8], step: (f32, f32)| {
        let mut before = [f32::NEG_INFINITY; 8];
        for (state, fed) in branches() {
            let (to, _, metric) = branch(state, fed, step);
            before[state] = before[state].max(states[to] + metric);
        }
        before
    };
    let mut states = tail
        .iter()
        .rev()
        .fold(start(), |states, &step| back(states, step));
    let mut told = vec![0.0; steps.len()];
    for (at, &step) in steps.iter().enumerate().rev() {
        let mut best = [f32::NEG_INFINITY; 2];
        for (state, fed) in branches() {
            let (to, bit, metric) = branch(state, fed, step);
            best[bit] = best[bit].max(forward[at][state] + metric + states[to]);
        }
        told[at] = (best[0] - best[1] - step.0) * 0.75;
        states = back(states, step);
    }
    told
}

// promise: 30.3
#[test]
fn eight_windows_of_16_bits_decode_as_many_blocks_as_one_of_real_numbers() {
    let mut random = Random::new(8);
    for (block, decibel) in [(40, 1.5), (104, 1.0), (512, 0.8), (864, 0.7)] {
        let interleaver = Interleaver::new(block).unwrap();
        let decoder = Decoder::new(&interleaver);
        let noise = 3.0 / 10_f32.powf(decibel / 10.0);
        let (blocks, mut right, mut expected) = (200, 0, 0);
        for _ in 0..blocks {
            let mut sent = bits(block - CRC_BITS, &mut random);
            attach(&mut sent);
            let soft = received(&turbo::encode(&sent, &interleaver), noise, &mut random);
            let mut decoded = vec![0; block];
            let settings = Settings {
                iterations_max: 5,
                stops_early: false,
            };
            decoder.decode(&soft, settings, &mut decoded);
            right += usize::from(decoded == sent);
            expected += usize::from(reference(&soft, &interleaver, 5) == sent);
        }
        assert!(
            (20..=190).contains(&expected),
            "{block}: {expected} tells nothing"
        );
        assert!(
            right + 8 >= expected,
            "{block}: {right}, the reference {expected}"
        );
    }
}

// promise: 30.5
#[test]
fn soft_bits_that_are_no_numbers_do_no_harm() {
    let interleaver = Interleaver::new(64).unwrap();
    let decoder = Decoder::new(&interleaver);
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let mut decoded = vec![0; 64];
        let result = decoder.decode(&[value; 3 * 68], Settings::default(), &mut decoded);
        assert!(result.iterations <= 5 && decoded.iter().all(|&bit| bit <= 1));
    }
}

// promise: 30.3
#[test]
fn rate_matching_sends_each_coded_bit_at_most_once_and_systematic_bits_first() {
    let (block, sent) = (864, 2592);
    let rate = RateMatch::new(block, sent);
    let coded: Vec<f32> = (0..rate.coded_bits()).map(|bit| bit as f32 + 1.0).collect();
    let ones = vec![1.0; sent];
    let mut counts = vec![0.0; rate.coded_bits()];
    rate.restore(&ones, &mut counts);
    assert!(counts.iter().all(|&count| count <= 1.0));
    assert_eq!(counts.iter().sum::<f32>(), sent as f32);
    // Version 0 leaves out some systematic bits of the first two columns at most.
    let systematic = counts[..block]
        .iter()
        .filter(|&&count| count == 1.0)
        .count();
    assert!(
        systematic >= block - 2 * (block + 4).div_ceil(32),
        "{systematic}"
    );
    let bytes: Vec<u8> = (0..rate.coded_bits())
        .map(|bit| (bit % 251) as u8)
        .collect();
    let mut back = vec![0.0; coded.len()];
    let soft: Vec<f32> = rate
        .select(&bytes)
        .iter()
        .map(|&byte| byte.into())
        .collect();
    rate.restore(&soft, &mut back);
    for (bit, &value) in back.iter().enumerate() {
        assert!(value == 0.0 || value == (bit % 251) as f32);
    }
    // More room than bits: they are repeated, and added up.
    let twice = RateMatch::new(40, 2 * 3 * 44);
    let mut counts = vec![0.0; 3 * 44];
    twice.restore(&[1.0; 2 * 3 * 44], &mut counts);
    assert!(counts.iter().all(|&count| count == 2.0));
}

// promise: 30.3
#[test]
fn the_channel_interleaver_spreads_neighbours_over_symbols_and_comes_back() {
    let sent: Vec<u8> = (0..2592).map(|bit| (bit / 6 % 256) as u8).collect();
    let interleaved = rate::interleave(&sent);
    // The first symbol has each twelfth group.
    assert_eq!(
        (interleaved[0], interleaved[6], interleaved[12]),
        (0, 12, 24)
    );
    let soft: Vec<f32> = interleaved.iter().map(|&value| value.into()).collect();
    let (first, second) = soft.split_at(1296);
    let mut signs = vec![1; 2592];
    signs[..6].fill(-1);
    let mut back = vec![9.0; 2592];
    rate::restore([first, second], &signs, &mut back);
    let expected: Vec<f32> = sent.iter().map(|&value| value.into()).collect();
    assert_eq!(back, expected);
}
