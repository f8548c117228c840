//! Kernels against slow models in double precision.

use std::f64::consts::PI;

use num_complex::Complex;

use crate::Sample;
use crate::channel::Random;
use crate::equalise::{self, LANES, Weights};
use crate::estimate;
use crate::front_end::FrontEnd;
use crate::modulation;
use crate::reference::reference;
use crate::scramble;
use crate::size::{ANTENNAS, BITS, LAYERS};
use crate::transform::Transform;

type Exact = Complex<f64>;

fn exact(sample: &Sample) -> Exact {
    Exact::new(sample.re.into(), sample.im.into())
}

fn noise(count: usize, random: &mut Random) -> Vec<Sample> {
    (0..count).map(|_| random.gauss()).collect()
}

/// Root of the mean squared error over that of the expected values.
fn relative_error(expected: &[Exact], got: &[Sample]) -> f64 {
    assert_eq!(expected.len(), got.len());
    let error: f64 = expected
        .iter()
        .zip(got)
        .map(|(e, g)| (e - exact(g)).norm_sqr())
        .sum();
    let power: f64 = expected.iter().map(Exact::norm_sqr).sum();
    (error / power).sqrt()
}

/// The definition of the transform.
fn dft(samples: &[Exact], sign: f64) -> Vec<Exact> {
    let size = samples.len();
    let bin = |k: usize| {
        let terms = samples.iter().enumerate();
        let terms = terms.map(|(n, x)| {
            x * Exact::from_polar(1.0, sign * 2.0 * PI * (k * n % size) as f64 / size as f64)
        });
        terms.sum::<Exact>() / (size as f64).sqrt()
    };
    (0..size).map(bin).collect()
}

// promise: 30.1
#[test]
fn transforms_are_the_definitions_for_all_legal_sizes() {
    let mut random = Random::new(1);
    for size in [12, 36, 48, 60, 72, 96, 108, 180, 300, 512, 1200] {
        let samples = noise(size, &mut random);
        let doubles: Vec<Exact> = samples.iter().map(exact).collect();
        let transform = Transform::new(size);
        let mut forward = samples.clone();
        transform.forward(&mut forward);
        assert!(
            relative_error(&dft(&doubles, -1.0), &forward) < 1e-5,
            "{size}"
        );
        let mut inverse = samples.clone();
        transform.inverse(&mut inverse);
        assert!(
            relative_error(&dft(&doubles, 1.0), &inverse) < 1e-5,
            "{size}"
        );
    }
}

/// Solves A x = b by elimination with the largest pivot.
fn solve(mut a: Vec<Vec<Exact>>, mut b: Vec<Exact>) -> Vec<Exact> {
    let size = b.len();
    for column in 0..size {
        let by_size = |&x: &usize, &y: &usize| a[x][column].norm().total_cmp(&a[y][column].norm());
        let pivot = (column..size).max_by(by_size).unwrap();
        a.swap(column, pivot);
        b.swap(column, pivot);
        for row in 0..size {
            if row != column {
                let factor = a[row][column] / a[column][column];
                let pivot = a[column].clone();
                for (value, pivot) in a[row].iter_mut().zip(&pivot) {
                    *value -= factor * pivot;
                }
                let value = b[column];
                b[row] -= factor * value;
            }
        }
    }
    (0..size).map(|at| b[at] / a[at][at]).collect()
}

// promise: 30.1
#[test]
fn weights_are_the_solutions_in_double_precision() {
    let mut random = Random::new(2);
    for width in [36, 48, 60] {
        let power = 0.1;
        let channels: Vec<Vec<Sample>> = (0..16).map(|_| noise(width, &mut random)).collect();
        let views: [&[Sample]; 16] = std::array::from_fn(|at| &*channels[at]);
        let mut weights = vec![Weights::default(); width.div_ceil(LANES)];
        let gains = equalise::weights(&views, power, &mut weights);
        let received: Vec<Vec<Sample>> = (0..4).map(|_| noise(width, &mut random)).collect();
        let views: [&[Sample]; 4] = std::array::from_fn(|at| &*received[at]);
        let mut expected = vec![vec![Exact::default(); width]; LAYERS];
        let mut expected_gains = [0.0; LAYERS];
        for k in 0..width {
            let h = |antenna: usize, layer: usize| exact(&channels[antenna * LAYERS + layer][k]);
            let gram = |row: usize, column: usize| {
                let sum: Exact = (0..ANTENNAS).map(|a| h(a, row).conj() * h(a, column)).sum();
                sum + if row == column { f64::from(power) } else { 0.0 }
            };
            let a: Vec<Vec<Exact>> = (0..4)
                .map(|r| (0..4).map(|c| gram(r, c)).collect())
                .collect();
            let matched = |y: &dyn Fn(usize) -> Exact| {
                (0..4)
                    .map(|layer| (0..4).map(|a| h(a, layer).conj() * y(a)).sum())
                    .collect()
            };
            let solution = solve(a.clone(), matched(&|antenna| exact(&received[antenna][k])));
            for layer in 0..LAYERS {
                expected[layer][k] = solution[layer];
                let own = solve(a.clone(), matched(&|antenna| h(antenna, layer)));
                expected_gains[layer] += own[layer].re / width as f64;
            }
        }
        for layer in 0..LAYERS {
            assert!((f64::from(gains[layer]) - expected_gains[layer]).abs() < 1e-5);
            let mut combined = vec![Sample::default(); width];
            equalise::combine(&weights, &views, layer, 1.0, &mut combined);
            assert!(relative_error(&expected[layer], &combined) < 1e-4);
        }
    }
}

// promise: 30.5
#[test]
fn a_channel_that_nothing_is_heard_of_gives_finite_weights() {
    let silence = vec![Sample::default(); 36];
    let mut weights = vec![Weights::default(); 5];
    let gains = equalise::weights(&[&silence; 16], 0.0, &mut weights);
    assert!(gains.iter().all(|gain| gain.abs() < 1e-3));
    let mut combined = silence.clone();
    equalise::combine(&weights, &[&silence; 4], 0, gains[0], &mut combined);
    assert!(combined.iter().all(|sample| sample.norm() < 1e-3));
    let mut soft = vec![f32::NAN; 36 * BITS];
    modulation::demap(&combined, equalise::noise_after(gains[0]), &mut soft);
    assert!(soft.iter().all(|soft| soft.is_finite()));
}

// promise: 30.1
#[test]
fn soft_bits_are_the_differences_of_distances() {
    let bits = |point: usize| -> [u8; BITS] { std::array::from_fn(|bit| (point >> bit & 1) as u8) };
    let points: Vec<Exact> = (0..64)
        .map(|point| exact(&modulation::map(&bits(point))))
        .collect();
    let power: f64 = points.iter().map(Exact::norm_sqr).sum::<f64>() / 64.0;
    assert!((power - 1.0).abs() < 1e-6);
    // The standard's first and last points.
    let unit = 42.0_f64.sqrt();
    assert!((points[0] * unit - Exact::new(3.0, 3.0)).norm() < 1e-5);
    assert!((points[63] * unit - Exact::new(-7.0, -7.0)).norm() < 1e-5);
    let mut random = Random::new(3);
    let symbols = noise(500, &mut random);
    let mut soft = vec![0.0; symbols.len() * BITS];
    modulation::demap(&symbols, 0.2, &mut soft);
    for (symbol, soft) in symbols.iter().zip(soft.chunks(BITS)) {
        for (bit, &soft) in soft.iter().enumerate() {
            let nearest = |value: u8| {
                let with = (0..64).filter(|&point| bits(point)[bit] == value);
                let distances = with.map(|point| (points[point] - exact(symbol)).norm_sqr());
                distances.fold(f64::INFINITY, f64::min)
            };
            let expected = (nearest(1) - nearest(0)) / 0.2;
            assert!((expected - f64::from(soft)).abs() < 1e-3 * expected.abs().max(1.0));
        }
    }
}

// promise: 30.1
#[test]
fn references_are_flat_and_layers_do_not_hear_each_other() {
    for width in [36, 48, 300] {
        let transform = Transform::new(width);
        let references: Vec<Vec<Sample>> = (0..4).map(|layer| reference(width, 5, layer)).collect();
        for (layer, own) in references.iter().enumerate() {
            assert!(own.iter().all(|value| (value.norm() - 1.0).abs() < 1e-5));
            for (other, received) in references.iter().enumerate() {
                let mut channel = vec![Sample::default(); width];
                let noise = estimate::channel(received, own, &transform, &mut channel);
                let expected = if layer == other { 1.0 } else { 0.0 };
                assert!(channel.iter().all(|value| (value - expected).norm() < 1e-3));
                assert!(noise < 1e-6);
            }
        }
    }
}

// promise: 30.1
#[test]
fn the_scrambling_sequence_is_the_definitions() {
    // Both registers by their definition, without a shift: x(n + 31) from x(n).
    let initial = scramble::initial(7, 1, 3, 42);
    let length = 1600 + 500;
    let mut registers = [vec![0_u8; length + 31], vec![0_u8; length + 31]];
    registers[0][0] = 1;
    for (bit, value) in registers[1][..31].iter_mut().enumerate() {
        *value = (initial >> bit & 1) as u8;
    }
    for n in 0..length {
        registers[0][n + 31] = registers[0][n + 3] ^ registers[0][n];
        let taps = registers[1][n + 3] ^ registers[1][n + 2] ^ registers[1][n + 1];
        registers[1][n + 31] = taps ^ registers[1][n];
    }
    let expected: Vec<u8> = (0..500)
        .map(|n| registers[0][n + 1600] ^ registers[1][n + 1600])
        .collect();
    assert_eq!(scramble::sequence(initial, 500), expected);
}

// promise: 30.1
#[test]
fn a_front_end_returns_what_was_sent_whatever_the_prefix_hides() {
    let mut random = Random::new(4);
    let front_end = FrontEnd::new(512, 300).unwrap();
    assert_eq!(
        (0..7).map(|symbol| front_end.length(symbol)).sum::<usize>(),
        3840
    );
    for symbol in [0, 3] {
        let sent = noise(300, &mut random);
        let mut samples = front_end.send(symbol, &sent);
        let mut received = vec![Sample::default(); 300];
        front_end.receive(&samples, &mut received);
        let exact: Vec<Exact> = sent.iter().map(exact).collect();
        assert!(relative_error(&exact, &received) < 1e-5);
        // An echo within the prefix turns each subcarrier, and no more: power stays where it was.
        let delay = 20;
        let echo = samples.clone();
        for (sample, echo) in samples[delay..].iter_mut().zip(&echo) {
            *sample = *echo;
        }
        front_end.receive(&samples, &mut received);
        for (sent, received) in sent.iter().zip(&received) {
            assert!((sent.norm() - received.norm()).abs() < 1e-3);
        }
    }
}
