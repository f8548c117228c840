//! Guests that answer with any words: the monitor takes what makes sense, or ends the guest. Nothing else can happen.

use crate::bed::{image_of, pool, ready, start, store, surviving};
use nfluid_guest::abi::{
    DOORBELL, FrameWords, IMAGE, MADE_MAX, MEMORY, MadeWords, Mailbox, OFFLOAD_BYTES, Reply,
    VERSION, ring,
};
use nfluid_nf::testing::Collected;
use nfluid_nf::{Nanos, NetworkFunction};
use nfluid_ring::layout::{FRAME_MIN, LONG_MAX};
use nfluid_ring::{Batch, Frame};
use proptest::prelude::*;
use std::mem::offset_of;

const FRAMES: usize = 4;
const SLOT: usize = 2048;
const FRAME: usize = 2032;

/// The words that a guest writes into its mailbox before it rings.
#[derive(Clone, Debug)]
struct Words {
    ring: u32,
    reply: Reply,
    frames: Vec<FrameWords>,
    made: Vec<MadeWords>,
}

/// Numbers that are often at an edge.
fn number(edges: &'static [u64]) -> impl Strategy<Value = u64> {
    prop_oneof![4 => prop::sample::select(edges), 1 => any::<u64>()]
}

fn offload() -> impl Strategy<Value = [u8; OFFLOAD_BYTES]> {
    prop_oneof![
        4 => Just([0; OFFLOAD_BYTES]),
        1 => any::<[u8; OFFLOAD_BYTES]>(),
        // Small numbers make sense more often.
        1 => prop::collection::vec(0u8..64, OFFLOAD_BYTES).prop_map(|it| it.try_into().expect("as many")),
    ]
}

const LENGTHS: &[u64] = &[0, 13, 14, 60, 1514, 2032, 2033, 65520, 65535];
const COUNTS: &[u64] = &[0, 1, 2, 3, 4, 5, 63, 64, 65];

prop_compose! {
    fn reply()(
        status in number(&[0, 0, 0, 1, 2]),
        address in number(&[0, MEMORY, MEMORY + 4096, IMAGE, u64::MAX]),
        length in number(&[0, 1, 4096, u64::MAX]),
        made in number(COUNTS),
        decided in number(COUNTS),
        next_tick in any::<u64>(),
    ) -> Reply {
        Reply {
            status: status as u32,
            version: VERSION,
            address,
            length,
            value: 0,
            next_tick,
            made: made as u32,
            decided: decided as u32,
        }
    }
}

prop_compose! {
    fn frame()(length in number(LENGTHS), out in number(&[0, 1, 2, 255]), offload in offload(), address in any::<u64>()) -> FrameWords {
        FrameWords {
            address,
            capacity: u32::MAX,
            length: length as u16,
            in_port: 9,
            out: out as u8,
            offload,
        }
    }
}

prop_compose! {
    fn made()(at in number(&[0, 1, 65536, 131_072, u64::MAX]), length in number(LENGTHS), port in 0u8..4, decided in number(COUNTS), offload in offload()) -> MadeWords {
        MadeWords {
            at: at as u32,
            length: length as u16,
            port,
            decided: decided as u8,
            offload,
        }
    }
}

prop_compose! {
    fn words()(
        ring in prop_oneof![3 => Just(ring::READY), 2 => Just(ring::MADE), 1 => Just(ring::LOG), 1 => Just(ring::PANIC), 1 => any::<u32>()],
        reply in reply(),
        frames in prop::collection::vec(frame(), FRAMES),
        made in prop::collection::vec(made(), MADE_MAX),
    ) -> Words {
        Words { ring, reply, frames, made }
    }
}

/// Machine code that copies bytes, which lie behind the code, to an address.
fn copy(to: u64, from: u64, bytes: usize) -> Vec<u8> {
    let mut code = Vec::new();
    for (register, value) in [(0xbe, from), (0xbf, to), (0xb9, bytes as u64)] {
        code.extend_from_slice(&[0x48, register]);
        code.extend_from_slice(&value.to_le_bytes());
    }
    code.extend_from_slice(&[0xf3, 0xa4]);
    code
}

fn bytes_of<T: Copy>(words: &[T]) -> Vec<u8> {
    // SAFETY: these structures of the interface are plain numbers without padding.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) }.to_vec()
}

/// A guest that starts, and then says all this, one after the other.
fn guest_that_says(all: &[Words]) -> Vec<u8> {
    let parts = |words: &Words| {
        [
            (offset_of!(Mailbox, reply), bytes_of(&[words.reply])),
            (offset_of!(Mailbox, frames), bytes_of(&words.frames)),
            (offset_of!(Mailbox, made), bytes_of(&words.made)),
        ]
    };
    // The code has the same length whatever the addresses are.
    let code_for = |data: u64| {
        let (mut code, mut from) = (ready(), data);
        for words in all {
            for (to, bytes) in parts(words) {
                code.extend(copy(MEMORY + to as u64, from, bytes.len()));
                from += bytes.len() as u64;
            }
            code.extend(store(DOORBELL, words.ring));
        }
        code.extend_from_slice(&[0x0f, 0x0b]);
        code
    };
    let data = IMAGE + code_for(0).len() as u64;
    let mut image = code_for(data);
    for (_, bytes) in all.iter().flat_map(parts) {
        image.extend(bytes);
    }
    image
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // promise: 18.4
    #[test]
    fn no_words_of_a_guest_do_more_than_end_it(all in prop::collection::vec(words(), 1..6)) {
        let memory = pool(FRAMES);
        let Some(guest) = start(image_of(&guest_that_says(&all)), memory) else {
            return Ok(());
        };
        let mut guest = guest.expect("it starts");
        let mut slots: Vec<_> = memory.chunks_mut(SLOT).collect();
        let mut outbox = Collected::default();
        surviving(|| {
            for now in 0..all.len() as u64 {
                let mut frames = arrayvec::ArrayVec::new();
                frames.extend(slots.iter_mut().map(|slot| Frame::new(&mut slot[..FRAME], 60, 1)));
                guest.process(Nanos(now), &mut Batch::new(&mut frames, &mut outbox));
                for frame in &frames {
                    assert!((FRAME_MIN..=FRAME).contains(&frame.len()) && frame.in_port() == 1);
                }
            }
        });
        prop_assert!(outbox.0.iter().all(|(_, frame, _)| (FRAME_MIN..=LONG_MAX).contains(&frame.len())));
        prop_assert!(outbox.0.len() <= all.len() * MADE_MAX);
    }
}
