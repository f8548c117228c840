//! Bit errors of the uncoded link against exact results and the reference's simulations.

use crate::Sample;
use crate::channel::{Channel, Random};
use crate::equalise::{self, LANES, Weights};
use crate::estimate;
use crate::modulation;
use crate::reference::reference;
use crate::size::{ANTENNAS, BITS, LAYERS};
use crate::transform::Transform;

fn power(decibel: f32) -> f32 {
    10_f32.powf(-decibel / 10.0)
}

// promise: 30.2
#[test]
fn errors_over_white_noise_are_the_exact_ones() {
    let mut random = Random::new(1);
    for (decibel, expected) in [
        (10.0, 1.525e-1),
        (14.0, 8.02e-2),
        (16.0, 4.92e-2),
        (18.0, 2.42e-2),
        (20.0, 8.49e-3),
        (22.0, 1.75e-3),
    ] {
        let noise = power(decibel);
        let (mut errors, symbols) = (0, 100_000);
        for _ in 0..symbols {
            let bits: [u8; BITS] = std::array::from_fn(|_| random.bit());
            let received = modulation::map(&bits) + random.gauss() * noise.sqrt();
            errors += wrong(&bits, &[received], noise);
        }
        let rate = errors as f64 / (symbols * BITS) as f64;
        assert!((rate / expected - 1.0).abs() < 0.1, "{decibel} dB: {rate}");
    }
}

fn wrong(bits: &[u8], symbols: &[Sample], noise: f32) -> usize {
    let mut soft = vec![0.0; bits.len()];
    modulation::demap(symbols, noise, &mut soft);
    let pairs = bits.iter().zip(soft);
    pairs
        .filter(|&(&bit, soft)| (soft < 0.0) != (bit == 1))
        .count()
}

/// Sends a data symbol of four layers on 36 subcarriers, and returns each layer's wrong bits, of 216.
fn link(channel: &Channel, noise: f32, is_estimated: bool, random: &mut Random) -> [usize; LAYERS] {
    const WIDTH: usize = 36;
    let transform = Transform::new(WIDTH);
    let bits: [Vec<u8>; LAYERS] =
        std::array::from_fn(|_| (0..WIDTH * BITS).map(|_| random.bit()).collect());
    let data = bits.each_ref().map(|bits| {
        let mut symbols: Vec<Sample> = bits
            .as_chunks::<BITS>()
            .0
            .iter()
            .map(modulation::map)
            .collect();
        transform.forward(&mut symbols);
        symbols
    });
    let references: [Vec<Sample>; LAYERS] = std::array::from_fn(|layer| reference(WIDTH, 0, layer));
    let mut receive = |sent: &[Vec<Sample>; LAYERS], antenna: usize| -> Vec<Sample> {
        let subcarrier = |k: usize| {
            let layers =
                (0..LAYERS).map(|layer| channel.at(antenna, layer, k, WIDTH) * sent[layer][k]);
            layers.sum::<Sample>() + random.gauss() * noise.sqrt()
        };
        (0..WIDTH).map(subcarrier).collect()
    };
    let received: [Vec<Sample>; ANTENNAS] = std::array::from_fn(|antenna| receive(&data, antenna));
    let heard: [Vec<Sample>; ANTENNAS] =
        std::array::from_fn(|antenna| receive(&references, antenna));
    let channels: Vec<Vec<Sample>> = (0..ANTENNAS * LAYERS)
        .map(|index| {
            let (antenna, layer) = (index / LAYERS, index % LAYERS);
            if !is_estimated {
                return (0..WIDTH)
                    .map(|k| channel.at(antenna, layer, k, WIDTH))
                    .collect();
            }
            let mut estimated = vec![Sample::default(); WIDTH];
            estimate::channel(
                &heard[antenna],
                &references[layer],
                &transform,
                &mut estimated,
            );
            estimated
        })
        .collect();
    let mut weights = vec![Weights::default(); WIDTH.div_ceil(LANES)];
    let views = std::array::from_fn(|index| &*channels[index]);
    let gains = equalise::weights(&views, noise, &mut weights);
    std::array::from_fn(|layer| {
        let mut symbols = vec![Sample::default(); WIDTH];
        let received = received.each_ref().map(Vec::as_slice);
        equalise::combine(&weights, &received, layer, gains[layer], &mut symbols);
        transform.inverse(&mut symbols);
        wrong(&bits[layer], &symbols, equalise::noise_after(gains[layer]))
    })
}

// promise: 30.2
#[test]
fn a_unitary_channel_gives_each_layer_the_errors_of_white_noise() {
    let mut random = Random::new(2);
    let channel = Channel::unitary();
    for (decibel, expected) in [(14.0, 8.02e-2), (18.0, 2.42e-2), (22.0, 1.75e-3)] {
        let mut errors = [0; LAYERS];
        const RUNS: usize = 2000;
        for _ in 0..RUNS {
            let wrong = link(&channel, power(decibel), false, &mut random);
            errors = std::array::from_fn(|layer| errors[layer] + wrong[layer]);
        }
        for (layer, errors) in errors.into_iter().enumerate() {
            let rate = errors as f64 / (RUNS * 216) as f64;
            assert!(
                (rate / expected - 1.0).abs() < 0.15,
                "{decibel} dB, layer {layer}: {rate}"
            );
        }
    }
}

// promise: 30.2
#[test]
fn fading_channels_give_the_references_errors() {
    let mut random = Random::new(3);
    // Taps, estimated, and the rates at 20, 25 and 30 dB.
    let cases = [
        (1, false, [4.6e-2, 1.7e-2, 6.3e-3]),
        (1, true, [7.7e-2, 3.3e-2, 1.2e-2]),
        (4, false, [6.1e-2, 1.9e-2, 3.3e-3]),
        (4, true, [9.8e-2, 4.2e-2, 1.1e-2]),
    ];
    for (taps, is_estimated, expected) in cases {
        for (decibel, expected) in [20.0, 25.0, 30.0].into_iter().zip(expected) {
            const CHANNELS: usize = 1500;
            let errors = (0..CHANNELS).map(|_| {
                let channel = Channel::rayleigh(taps, &mut random);
                link(&channel, power(decibel), is_estimated, &mut random)
                    .iter()
                    .sum::<usize>()
            });
            let rate = errors.sum::<usize>() as f64 / (CHANNELS * LAYERS * 216) as f64;
            let what = format!("{taps} taps, estimated {is_estimated}, {decibel} dB");
            assert!(
                (rate / expected - 1.0).abs() < 0.2,
                "{what}: {rate}, expected {expected}"
            );
        }
    }
}
