//! The encoder, and the two constituent encoders in it.

use super::qpp::Interleaver;
use super::{STREAM_TAIL, TAIL};

/// A recursive encoder: feedback 1 + D^2 + D^3, parity 1 + D + D^3.
#[derive(Default)]
struct Constituent {
    /// The bits one, two and three steps before.
    delays: [u8; 3],
}

impl Constituent {
    /// Takes a bit, and returns its parity.
    fn step(&mut self, bit: u8) -> u8 {
        let [one, two, three] = self.delays;
        let fed = bit ^ two ^ three;
        self.delays = [fed, one, two];
        fed ^ one ^ three
    }

    /// The bit that feeds a zero, and its parity: three of them lead to state 0.
    fn tail(&mut self) -> (u8, u8) {
        let bit = self.delays[1] ^ self.delays[2];
        (bit, self.step(bit))
    }
}

/// Encodes a block of the interleaver's size, one bit per byte. Returns the three streams one after the other, 3 (K + 4) bits.
pub fn encode(bits: &[u8], interleaver: &Interleaver) -> Vec<u8> {
    let (mut first, mut second) = (Constituent::default(), Constituent::default());
    let mut streams = [bits.to_vec(), Vec::new(), Vec::new()];
    streams[1].extend(bits.iter().map(|&bit| first.step(bit)));
    let interleaved = interleaver
        .sources()
        .iter()
        .map(|&source| bits[usize::from(source)]);
    streams[2].extend(interleaved.map(|bit| second.step(bit)));
    for encoder in [&mut first, &mut second] {
        let [(x0, z0), (x1, z1), (x2, z2)] = [(); TAIL].map(|()| encoder.tail());
        for (stream, pair) in streams.iter_mut().zip([[x0, z1], [z0, x2], [x1, z2]]) {
            stream.extend(pair);
        }
    }
    debug_assert!(
        streams
            .iter()
            .all(|stream| stream.len() == bits.len() + STREAM_TAIL)
    );
    streams.concat()
}
