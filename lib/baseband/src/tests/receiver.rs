//! The whole receiver as a graph: it returns the bits that were sent, on any engine.

use std::sync::Arc;
use std::time::Duration;

use nfluid_dataflow::engine::{Engine, Finished, ManagerPlace, Settings, Shape};
use nfluid_dataflow::manager::{SliceRank, Verdict};
use nfluid_dataflow::plan::Plan;

use crate::channel::{Channel, Random};
use crate::front_end::FrontEnd;
use crate::size::{ANTENNAS, Cell, LAYERS, SLOTS, SYMBOLS};
use crate::transmit::{Subframe, subframe};
use crate::turbo;
use crate::uplink::{Decoding, Identity, Uplink, external};

const PATIENCE: Duration = Duration::from_secs(180);
const IDENTITY: Identity = Identity {
    cell: 17,
    subframe: 4,
};
const TURBO: Decoding = Decoding::Turbo(turbo::Settings {
    iterations_max: 5,
    stops_early: true,
});

fn receive(uplink: &Arc<Uplink>, external: Arc<[u8]>, pes: usize, grain: u64) -> Finished {
    let settings = Settings {
        manager: if pes > 1 {
            ManagerPlace::Own(None)
        } else {
            ManagerPlace::OnPe
        },
        ..Settings::new(pes)
    };
    let mut engine = Engine::start(settings).unwrap();
    let slice = engine
        .add_slice("lte", SliceRank::default(), uplink.clone())
        .unwrap();
    let plan = Plan::clustered(uplink.graph().clone(), grain).unwrap();
    let shape = Shape::new(plan).unwrap();
    engine
        .submit(slice, &shape, external, Duration::from_secs(3600))
        .unwrap();
    engine.wait(PATIENCE).unwrap()
}

/// Wrong bits and wrong checksums of a subframe.
fn errors(uplink: &Uplink, finished: &Finished, sent: &Subframe) -> (usize, usize) {
    let (mut bits, mut checksums) = (0, 0);
    for (user, layers) in sent.blocks.iter().enumerate() {
        for (layer, sent) in layers.iter().enumerate() {
            let (received, is_right) = uplink.block(finished, user, layer).unwrap();
            assert_eq!(received.len(), sent.len());
            let wrong = received.iter().zip(sent).filter(|(a, b)| a != b).count();
            assert_eq!(is_right, wrong == 0);
            bits += wrong;
            checksums += usize::from(!is_right);
        }
    }
    (bits, checksums)
}

// promise: 30.4
#[test]
fn the_literatures_subframe_is_832_tasks_and_returns_its_bits() {
    let cell = Cell::literature();
    let uplink = Uplink::new(cell.clone(), IDENTITY.cell, TURBO, None).unwrap();
    assert_eq!(uplink.graph().len(), 832);
    let uplink = Arc::new(uplink);
    let mut random = Random::new(1);
    for noise in [0.0, 10_f32.powf(-1.6)] {
        let sent = subframe(
            &cell,
            IDENTITY,
            noise,
            |_, _| Channel::unitary(),
            &mut random,
        );
        assert_eq!(sent.blocks[0][0].len(), 864);
        let first = receive(&uplink, sent.bytes(), 1, 0);
        assert_eq!(first.result, Ok(Verdict::Done));
        assert_eq!(errors(&uplink, &first, &sent), (0, 0));
        // Outputs are bit-identical for any number of PEs and any gathering.
        for (pes, grain) in [(2, 0), (3, 3000)] {
            let other = receive(&uplink, sent.bytes(), pes, grain);
            for task in 0..832 {
                assert_eq!(first.output(task), other.output(task), "task {task}");
            }
        }
    }
}

// promise: 30.4
#[test]
fn fading_cells_of_other_sizes_return_their_bits() {
    let mut random = Random::new(2);
    for (blocks, users) in [(25, vec![25]), (50, vec![10, 12, 15, 3]), (100, vec![100])] {
        let cell = Cell::new(blocks, &users).unwrap();
        let uplink = Arc::new(Uplink::new(cell.clone(), IDENTITY.cell, TURBO, None).unwrap());
        let fading = |_: usize, random: &mut Random| Channel::rayleigh(2, random);
        let sent = subframe(&cell, IDENTITY, 1e-4, fading, &mut random);
        let finished = receive(&uplink, sent.bytes(), 2, 3000);
        assert_eq!(errors(&uplink, &finished, &sent), (0, 0), "{users:?}");
    }
}

// promise: 30.4
#[test]
fn without_the_decoder_noise_leaves_errors_and_the_checksum_finds_them() {
    let cell = Cell::literature();
    let uplink = Uplink::new(cell.clone(), IDENTITY.cell, Decoding::Bypass, None).unwrap();
    let uplink = Arc::new(uplink);
    let mut random = Random::new(3);
    let noise = 10_f32.powf(-1.6);
    let sent = subframe(
        &cell,
        IDENTITY,
        noise,
        |_, _| Channel::unitary(),
        &mut random,
    );
    let finished = receive(&uplink, sent.bytes(), 2, 0);
    let (bits, checksums) = errors(&uplink, &finished, &sent);
    assert_eq!(checksums, 8 * LAYERS);
    // 16 dB leave 4.9 % without channel estimation's errors.
    let rate = bits as f64 / (8 * LAYERS * 864) as f64;
    assert!((0.03..0.2).contains(&rate), "{rate}");
}

// promise: 30.4
#[test]
fn samples_in_time_pass_the_front_end() {
    let cell = Cell::new(25, &[12, 12]).unwrap();
    let front_end = || FrontEnd::new(512, cell.subcarriers()).unwrap();
    let uplink = Uplink::new(cell.clone(), IDENTITY.cell, TURBO, Some(front_end())).unwrap();
    assert_eq!(uplink.graph().len(), 56 + 2 * 104);
    let uplink = Arc::new(uplink);
    let mut random = Random::new(4);
    let sent = subframe(
        &cell,
        IDENTITY,
        1e-3,
        |_, _| Channel::unitary(),
        &mut random,
    );
    let sender = front_end();
    let mut samples = Vec::new();
    for antenna in 0..ANTENNAS {
        for slot in 0..SLOTS {
            for symbol in 0..SYMBOLS {
                let first = cell.place(antenna, slot, symbol, 0);
                let subcarriers = &sent.samples[first..first + cell.subcarriers()];
                samples.extend(sender.send(symbol, subcarriers));
            }
        }
    }
    assert_eq!(samples.len(), ANTENNAS * 7680);
    let external = external(&samples, IDENTITY.subframe);
    let finished = receive(&uplink, external, 2, 3000);
    assert_eq!(errors(&uplink, &finished, &sent), (0, 0));
}

// promise: 30.5
#[test]
fn truncated_samples_are_a_clear_error() {
    let cell = Cell::new(6, &[3]).unwrap();
    let uplink = Arc::new(Uplink::new(cell, IDENTITY.cell, TURBO, None).unwrap());
    let finished = receive(&uplink, Arc::new([0; 100]), 1, 0);
    assert!(matches!(finished.result, Ok(Verdict::Failed { .. })));
    let why = finished.failure().unwrap();
    assert!(
        why.contains("32264 bytes of samples and number, this one 100"),
        "{why}"
    );
    assert!(uplink.block(&finished, 0, 0).is_none());
}
