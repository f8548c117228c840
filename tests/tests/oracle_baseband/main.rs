//! Kernels of the LTE uplink receiver against numpy and scipy.

use nfluid_baseband::Sample;
use nfluid_baseband::channel::Random;
use nfluid_baseband::crc::crc24a;
use nfluid_baseband::equalise::{self, LANES, Weights};
use nfluid_baseband::modulation::demap;
use nfluid_baseband::reference::reference;
use nfluid_baseband::scramble;
use nfluid_baseband::size::{ANTENNAS, BITS, LAYERS};
use nfluid_baseband::transform::Transform;
use nfluid_baseband::turbo::{Interleaver, encode};
use nfluid_tests::harness::skip::skip;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Debian's, which has Debian's numpy and scipy.
const PYTHON: &str = "/usr/bin/python3";
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/oracle_baseband/model.py"
);

/// Returns what the model makes of cases of one kernel; `None`: it cannot run here.
fn model(test: &str, kernel: &str, cases: &[Value]) -> Option<Vec<Value>> {
    let probe = Command::new(PYTHON)
        .args(["-c", "import numpy, scipy"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        skip(
            test,
            "it needs numpy and scipy: apt-get install python3-numpy python3-scipy",
        );
        return None;
    }
    let mut python = Command::new(PYTHON)
        .arg(MODEL)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut input = python.stdin.take().expect("its input");
    let asked = json!({ kernel: cases }).to_string();
    // It reads all before it answers.
    input.write_all(asked.as_bytes()).expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{:?}", output.status);
    let mut answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let Value::Array(results) = answer[kernel].take() else {
        panic!("{kernel}: no list");
    };
    assert_eq!(results.len(), cases.len());
    Some(results)
}

fn noise(count: usize, random: &mut Random) -> Vec<Sample> {
    (0..count).map(|_| random.gauss()).collect()
}

fn pairs(samples: &[Sample]) -> Value {
    samples.iter().map(|it| json!([it.re, it.im])).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(all) => all.iter().flat_map(numbers).collect(),
        number => vec![number.as_f64().expect("a number")],
    }
}

fn parts(samples: &[Sample]) -> Vec<f64> {
    let parts = samples.iter().flat_map(|it| [it.re, it.im]);
    parts.map(f64::from).collect()
}

/// Checks that the root of the mean squared error is at most so much of that of the expected values.
fn agrees(what: &str, expected: &Value, got: &[f64], error_max: f64) {
    let expected = numbers(expected);
    assert_eq!(expected.len(), got.len(), "{what}");
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|it| it * it).sum::<f64>();
    let error = squares(&mut expected.iter().zip(got).map(|(e, g)| e - g));
    let power = squares(&mut expected.iter().copied());
    let relative = (error / power).sqrt();
    assert!(relative <= error_max, "{what}: {relative:e}");
}

// promise: 30.6
#[test]
fn transforms_are_scipys() {
    let mut random = Random::new(1);
    let sizes = [
        12, 24, 36, 48, 60, 72, 96, 108, 144, 180, 300, 512, 600, 1200, 2048,
    ];
    let inputs: Vec<_> = sizes.iter().map(|&size| noise(size, &mut random)).collect();
    let cases: Vec<_> = inputs.iter().map(|input| pairs(input)).collect();
    let Some(results) = model("transforms_are_scipys", "transform", &cases) else {
        return;
    };
    for (input, result) in inputs.iter().zip(results) {
        let transform = Transform::new(input.len());
        let (mut forward, mut inverse) = (input.clone(), input.clone());
        transform.forward(&mut forward);
        transform.inverse(&mut inverse);
        for (way, got) in [forward, inverse].iter().enumerate() {
            let what = format!("{} samples, way {way}", input.len());
            agrees(&what, &result[way], &parts(got), 1e-5);
        }
    }
}

// promise: 30.6
#[test]
fn weights_are_scipys_solutions() {
    let mut random = Random::new(2);
    let inputs: Vec<_> = [(36, 1.0), (48, 0.1), (60, 0.01), (300, 0.001)]
        .map(|(width, power)| {
            let channels: Vec<_> = (0..ANTENNAS * LAYERS)
                .map(|_| noise(width, &mut random))
                .collect();
            let received: Vec<_> = (0..ANTENNAS).map(|_| noise(width, &mut random)).collect();
            (width, power, channels, received)
        })
        .into();
    let case =
        |(_, power, channels, received): &(usize, f32, Vec<Vec<Sample>>, Vec<Vec<Sample>>)| {
            let all = |rows: &[Vec<Sample>]| rows.iter().map(|row| pairs(row)).collect::<Value>();
            json!({ "noise": power, "channels": all(channels), "received": all(received) })
        };
    let cases: Vec<_> = inputs.iter().map(case).collect();
    let Some(results) = model("weights_are_scipys_solutions", "equalise", &cases) else {
        return;
    };
    for ((width, power, channels, received), result) in inputs.iter().zip(results) {
        let views: [&[Sample]; ANTENNAS * LAYERS] = std::array::from_fn(|at| &*channels[at]);
        let mut weights = vec![Weights::default(); width.div_ceil(LANES)];
        let gains = equalise::weights(&views, *power, &mut weights);
        let what = format!("{width} subcarriers, noise {power}");
        agrees(&what, &result["gains"], &gains.map(f64::from), 1e-5);
        let views: [&[Sample]; ANTENNAS] = std::array::from_fn(|at| &*received[at]);
        for layer in 0..LAYERS {
            let mut combined = vec![Sample::default(); *width];
            equalise::combine(&weights, &views, layer, 1.0, &mut combined);
            // Single precision loses digits where the layers are hard to tell apart.
            agrees(&what, &result["layers"][layer], &parts(&combined), 1e-3);
        }
    }
}

// promise: 30.6
#[test]
fn soft_bits_are_those_of_the_standards_points() {
    let mut random = Random::new(3);
    let symbols = noise(400, &mut random);
    let powers = [0.5_f32, 0.05, 0.002];
    let cases = powers.map(|noise| json!({ "noise": noise, "symbols": pairs(&symbols) }));
    let test = "soft_bits_are_those_of_the_standards_points";
    let Some(results) = model(test, "demap", &cases) else {
        return;
    };
    for (noise, result) in powers.into_iter().zip(results) {
        let mut soft = vec![0.0; symbols.len() * BITS];
        demap(&symbols, noise, &mut soft);
        let got: Vec<f64> = soft.into_iter().map(f64::from).collect();
        agrees(&format!("noise {noise}"), &result, &got, 1e-5);
    }
}

// promise: 30.6
#[test]
fn sequences_are_the_definitions() {
    let test = "sequences_are_the_definitions";
    let shapes = [(36, 0, 0), (48, 5, 1), (72, 17, 2), (300, 29, 3)];
    let cases = shapes
        .map(|(width, group, layer)| json!({ "width": width, "group": group, "layer": layer }));
    let Some(results) = model(test, "reference", &cases) else {
        return;
    };
    for ((width, group, layer), result) in shapes.into_iter().zip(results) {
        let got = parts(&reference(width, group, layer));
        agrees(
            &format!("reference {width}, {group}, {layer}"),
            &result,
            &got,
            1e-5,
        );
    }
    let initials = [1, scramble::initial(61, 3, 9, 503), 0x7fff_ffff];
    let cases = initials.map(|initial| json!({ "initial": initial, "length": 2592 }));
    for (initial, result) in initials
        .into_iter()
        .zip(model(test, "scrambling", &cases).expect("it ran"))
    {
        assert_eq!(
            json!(scramble::sequence(initial, 2592)),
            result,
            "{initial:x}"
        );
    }
}

// promise: 30.6
#[test]
fn codes_are_the_definitions() {
    let test = "codes_are_the_definitions";
    let mut random = Random::new(4);
    let mut bits = |count: usize| -> Vec<u8> { (0..count).map(|_| random.bit()).collect() };
    let blocks: Vec<_> = [1, 7, 8, 40, 1001, 6120].map(&mut bits).into();
    let cases: Vec<_> = blocks.iter().map(|block| json!(block)).collect();
    let Some(results) = model(test, "checksum", &cases) else {
        return;
    };
    for (block, result) in blocks.iter().zip(results) {
        assert_eq!(json!(crc24a(block)), result, "{} bits", block.len());
    }
    // TS 36.212, table 5.1.3-3.
    let interleavers = [
        (40, 3, 10),
        (48, 7, 12),
        (56, 19, 42),
        (64, 7, 16),
        (6144, 263, 480),
    ];
    let blocks: Vec<_> = interleavers.map(|(block, ..)| bits(block)).into();
    let cases = blocks.iter().zip(interleavers);
    let cases = cases.map(|(bits, (_, f1, f2))| json!({ "bits": bits, "interleaver": [f1, f2] }));
    let cases: Vec<_> = cases.collect();
    for (block, result) in blocks
        .iter()
        .zip(model(test, "turbo", &cases).expect("it ran"))
    {
        let interleaver = Interleaver::new(block.len()).expect("a size of the code");
        let expected: Vec<u8> = numbers(&result).into_iter().map(|bit| bit as u8).collect();
        assert_eq!(
            encode(block, &interleaver),
            expected,
            "{} bits",
            block.len()
        );
    }
}
