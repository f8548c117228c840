//! Samples as radios send them: two 16-bit integers, I and Q, big-endian; 4096 stands for 1.

use nfluid_baseband::Sample;

/// Bytes of a sample in a message.
pub const SAMPLE_BYTES: usize = 4;
/// The integer that stands for 1.
const ONE: f32 = 4096.0;

/// The samples of messages as numbers.
pub fn samples(input: &[u8]) -> Vec<Sample> {
    let (pairs, _) = input.as_chunks::<SAMPLE_BYTES>();
    let samples = pairs.iter().map(|&[i0, i1, q0, q1]| {
        let [i, q] = [[i0, i1], [q0, q1]].map(|it| f32::from(i16::from_be_bytes(it)) / ONE);
        Sample::new(i, q)
    });
    samples.collect()
}

/// Samples as a radio sends them: values beyond 8 are cut off.
pub fn sent(samples: &[Sample]) -> Vec<u8> {
    let integer = |value: f32| ((value * ONE).round() as i16).to_be_bytes();
    let pairs = samples
        .iter()
        .flat_map(|it| [integer(it.re), integer(it.im)]);
    pairs.flatten().collect()
}
