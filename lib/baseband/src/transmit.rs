//! A transmitter: from transport blocks to the subcarriers that the antennas receive; for tests and benchmarks.

use std::sync::Arc;

use crate::Sample;
use crate::channel::{Channel, Random};
use crate::crc;
use crate::modulation;
use crate::rate::{self, RateMatch};
use crate::reference::reference;
use crate::scramble;
use crate::size::{
    ANTENNAS, Allocation, BITS, Cell, DATA_SYMBOLS, LAYERS, REFERENCE_SYMBOL, SLOTS, SYMBOLS,
};
use crate::transform::Transform;
use crate::turbo::{self, Interleaver};
use crate::uplink::{Identity, external};

/// A subframe as it is received, and what was sent.
pub struct Subframe {
    /// Subcarriers by antenna, symbol and index: [`Cell::place`].
    pub samples: Vec<Sample>,
    /// The subframe's number.
    pub number: usize,
    /// Bits of each user's layers, with their checksums, one per byte.
    pub blocks: Vec<[Vec<u8>; LAYERS]>,
}

impl Subframe {
    /// The samples as a receiver's kernels take them.
    pub fn bytes(&self) -> Arc<[u8]> {
        external(&self.samples, self.number)
    }
}

/// Sends random transport blocks of all users of a cell through channels of their own, and adds noise of this power to each
/// subcarrier of each antenna.
pub fn subframe(
    cell: &Cell,
    identity: Identity,
    noise: f32,
    mut channel: impl FnMut(usize, &mut Random) -> Channel,
    random: &mut Random,
) -> Subframe {
    let mut samples = vec![Sample::default(); cell.samples()];
    let mut blocks = Vec::new();
    for (user, &allocation) in cell.users().iter().enumerate() {
        let layers: [Vec<u8>; LAYERS] = std::array::from_fn(|_| block(allocation, random));
        let channel = channel(user, random);
        for (layer, bits) in layers.iter().enumerate() {
            let symbols = layer_symbols(allocation, identity, user, layer, bits);
            receive(cell, allocation, &channel, layer, &symbols, &mut samples);
        }
        blocks.push(layers);
    }
    if noise > 0.0 {
        let amplitude = noise.sqrt();
        for sample in &mut samples {
            *sample += random.gauss() * amplitude;
        }
    }
    Subframe {
        samples,
        number: identity.subframe,
        blocks,
    }
}

/// Random bits of a layer's transport block, with its checksum.
fn block(allocation: Allocation, random: &mut Random) -> Vec<u8> {
    let size = turbo::block_for(allocation.coded_bits()).unwrap_or(crc::CRC_BITS);
    let mut bits: Vec<u8> = (crc::CRC_BITS..size).map(|_| random.bit()).collect();
    crc::attach(&mut bits);
    bits
}

/// All symbols of a layer's subframe on its subcarriers.
fn layer_symbols(
    allocation: Allocation,
    identity: Identity,
    user: usize,
    layer: usize,
    bits: &[u8],
) -> Vec<Vec<Sample>> {
    let width = allocation.width();
    let coded = match Interleaver::new(bits.len()) {
        Some(interleaver) => turbo::encode(bits, &interleaver),
        None => Vec::new(),
    };
    let sent = RateMatch::new(bits.len(), allocation.coded_bits()).select(&coded);
    let mut sent = rate::interleave(&sent);
    let initial = identity.scrambling(user, layer);
    for (bit, mask) in sent
        .iter_mut()
        .zip(scramble::sequence(initial, allocation.coded_bits()))
    {
        *bit ^= mask;
    }
    let points = sent.as_chunks::<BITS>().0.iter().map(modulation::map);
    let mut points: Vec<Sample> = points.collect();
    Transform::new(width).forward(&mut points);
    let mut data = points.chunks(width).map(<[Sample]>::to_vec);
    let mut symbols = Vec::new();
    for _ in 0..SLOTS {
        for symbol in 0..SYMBOLS {
            if symbol == REFERENCE_SYMBOL {
                symbols.push(reference(width, identity.group(), layer));
            } else {
                symbols.extend(data.next());
            }
        }
    }
    debug_assert_eq!(symbols.len(), SLOTS * (DATA_SYMBOLS + 1));
    symbols
}

fn receive(
    cell: &Cell,
    allocation: Allocation,
    channel: &Channel,
    layer: usize,
    symbols: &[Vec<Sample>],
    samples: &mut [Sample],
) {
    let width = allocation.width();
    for antenna in 0..ANTENNAS {
        for subcarrier in 0..width {
            let gain = channel.at(antenna, layer, subcarrier, width);
            for (index, symbol) in symbols.iter().enumerate() {
                let (slot, symbol_index) = (index / SYMBOLS, index % SYMBOLS);
                let at = allocation.begin() + subcarrier;
                samples[cell.place(antenna, slot, symbol_index, at)] += gain * symbol[subcarrier];
            }
        }
    }
}
