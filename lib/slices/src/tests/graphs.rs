use super::function::{Bed, messages, root_of};
use crate::radio;
use nfluid_baseband::Sample;
use nfluid_baseband::channel::{Channel, Random};
use nfluid_baseband::size::{Cell, LAYERS};
use nfluid_baseband::transmit::subframe;
use nfluid_baseband::uplink::Identity;
use serde_json::json;
use std::f32::consts::TAU;

// promise: 31.6
#[test]
fn a_spectrum_names_the_frequencies_in_use_and_no_other() {
    let (bins, transforms) = (64, 4);
    let parameters = json!({ "bins": bins, "transforms": transforms });
    let mut bed = Bed::new("spectrum", parameters);
    let tone = |bin: usize, at: usize| {
        let turn = TAU * (bin * at % bins) as f32 / bins as f32;
        Sample::new(turn.cos(), turn.sin())
    };
    let mut random = Random::new(3);
    let samples =
        (0..bins * transforms).map(|at| tone(5, at) + tone(40, at) + random.gauss() * 0.1);
    let samples: Vec<Sample> = samples.collect();
    let results = bed.interval(0, &radio::sent(&samples));
    let [list] = &results[..] else {
        panic!("{results:?}")
    };
    let found: Vec<(u16, f32)> = list
        .as_chunks::<6>()
        .0
        .iter()
        .map(|&[b0, b1, r0, r1, r2, r3]| {
            (
                u16::from_be_bytes([b0, b1]),
                f32::from_be_bytes([r0, r1, r2, r3]),
            )
        })
        .collect();
    let bins: Vec<u16> = found.iter().map(|&(bin, _)| bin).collect();
    assert_eq!(bins, [5, 40]);
    // Two tones of equal power share nearly all of it.
    assert!(
        found
            .iter()
            .all(|&(_, ratio)| (30.0..=32.0).contains(&ratio)),
        "{found:?}"
    );
    let nothing = vec![0; 64 * 4 * 4];
    assert_eq!(
        bed.interval(1, &nothing),
        [Vec::<u8>::new()],
        "silence has one empty list"
    );
}

// promise: 31.7
#[test]
fn a_hash_tree_is_the_root_of_its_blocks() {
    for blocks in [1, 2, 3, 7, 16] {
        let mut bed = Bed::new("hash-tree", json!({ "blocks": blocks, "block_bytes": 128 }));
        let input: Vec<u8> = (0..blocks * 128)
            .map(|at| (at * 7 + at / 251) as u8)
            .collect();
        assert_eq!(bed.interval(9, &input), [root_of(&input, 128)]);
    }
}

// promise: 31.5
#[test]
fn an_lte_uplink_returns_the_transmitted_bits() {
    let parameters = json!({ "cell": 7, "blocks": 6, "users": [3, 3] });
    let mut bed = Bed::new("lte-uplink", parameters);
    let cell = Cell::new(6, &[3, 3]).unwrap();
    let mut random = Random::new(11);
    for interval in [0, 1, 2, 9, 10] {
        let identity = Identity {
            cell: 7,
            subframe: usize::from(interval % 10),
        };
        // 16 dB.
        let sent = subframe(
            &cell,
            identity,
            0.025,
            |_, _| Channel::unitary(),
            &mut random,
        );
        let results = bed.interval(interval, &radio::sent(&sent.samples));
        assert_eq!(results.len(), 2 * LAYERS);
        for (index, result) in results.iter().enumerate() {
            let (user, layer) = (index / LAYERS, index % LAYERS);
            let bits = &sent.blocks[user][layer];
            assert_eq!(result[..4], [0, user as u8, layer as u8, 1]);
            assert_eq!(
                usize::from(u16::from_be_bytes([result[4], result[5]])),
                bits.len()
            );
            let bit = |at: usize| result[6 + at / 8] >> (7 - at % 8) & 1;
            assert!(
                (0..bits.len()).all(|at| bit(at) == bits[at]),
                "user {user}, layer {layer}"
            );
        }
    }
    assert_eq!(messages(&bed).len(), 5 * 2 * LAYERS);
}
