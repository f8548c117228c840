use crate::assembly::{Added, Assembly, Losses};
use crate::message::{HEADER_BYTES, Kind, Malformed, Message};
use proptest::prelude::*;

/// The input of an interval, as the tests send it.
fn input(interval: u16, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u16).wrapping_mul(31).wrapping_add(interval) as u8)
        .collect()
}

// promise: 31.2
#[test]
fn an_input_is_whole_when_its_last_byte_has_come_and_not_before() {
    let sent = input(7, 4096);
    proptest!(|(cuts in prop::collection::btree_set(1_usize..1024, 0..20), seed: u64)| {
        let mut edges: Vec<usize> = cuts.iter().map(|cut| cut * 4).collect();
        edges.insert(0, 0);
        edges.push(4096);
        let mut pieces: Vec<(usize, usize)> = edges.windows(2).map(|it| (it[0], it[1])).collect();
        pieces.sort_by_key(|&(begin, _)| (begin as u64).wrapping_mul(seed | 1));
        let mut assembly = Assembly::new(4096);
        let last = pieces.len() - 1;
        for (at, &(begin, end)) in pieces.iter().enumerate() {
            let piece = &sent[begin..end];
            if at == last {
                prop_assert_eq!(assembly.add(7, begin as u32, piece), Added::Whole(&sent));
            } else {
                prop_assert!(matches!(assembly.add(7, begin as u32, piece), Added::Waits(_)));
                prop_assert_eq!(assembly.add(7, begin as u32, piece), Added::Twice);
            }
        }
        prop_assert_eq!(assembly.add(7, 0, &sent[..4]), Added::Late);
        prop_assert_eq!(assembly.losses, Losses::default());
    });
}

#[test]
fn pieces_that_overlap_change_nothing() {
    let sent = input(1, 1024);
    let mut assembly = Assembly::new(1024);
    assert_eq!(assembly.add(1, 256, &sent[256..512]), Added::Waits(768));
    // Of every piece that shares a grain with the first one, nothing is taken.
    for (begin, end) in [(0, 260), (508, 1024), (0, 1024), (300, 304), (256, 512)] {
        let lies = vec![0xff; end - begin];
        assert_eq!(assembly.add(1, begin as u32, &lies), Added::Twice);
    }
    assert_eq!(assembly.add(1, 0, &sent[..256]), Added::Waits(512));
    assert_eq!(assembly.add(1, 512, &sent[512..]), Added::Whole(&sent));
}

#[test]
fn pieces_beside_the_input_are_refused() {
    let mut assembly = Assembly::new(64);
    for (at, bytes) in [
        (64, 4),
        (60, 8),
        (2, 4),
        (0, 3),
        (0, 0),
        (u32::MAX, 4),
        (u32::MAX - 3, 4),
    ] {
        let piece = vec![1; bytes];
        assert_eq!(
            assembly.add(0, at, &piece),
            Added::OutOfRange,
            "{bytes} at {at}"
        );
    }
    assert_eq!(assembly.add(0, 0, &[1; 64]), Added::Whole(&[1; 64]));
}

// promise: 31.3
#[test]
fn an_interval_that_is_not_whole_is_given_up_and_counted() {
    let mut assembly = Assembly::new(8);
    let half = |assembly: &mut Assembly, interval, at| match assembly.add(interval, at, &[1; 4]) {
        Added::Waits(_) => "waits",
        Added::Whole(_) => "whole",
        Added::Late => "late",
        _ => "refused",
    };
    assert_eq!(half(&mut assembly, 65_534, 0), "waits");
    assert_eq!(half(&mut assembly, 65_535, 0), "waits");
    assert_eq!(
        half(&mut assembly, 65_534, 4),
        "whole",
        "two are open at once"
    );
    assert_eq!(
        half(&mut assembly, 65_534, 0),
        "late",
        "what was whole does not begin again"
    );
    assert_eq!(half(&mut assembly, 0, 0), "waits", "numbers go round");
    assert_eq!(half(&mut assembly, 1, 0), "waits");
    assert_eq!(half(&mut assembly, 65_535, 4), "late", "a third has begun");
    assert_eq!(
        assembly.losses,
        Losses {
            incomplete: 1,
            missing: 0
        }
    );
    assert_eq!(half(&mut assembly, 4, 0), "waits");
    assert_eq!(
        assembly.losses,
        Losses {
            incomplete: 2,
            missing: 2
        }
    );
    assert_eq!(half(&mut assembly, 4, 4), "whole");
    assert_eq!(
        half(&mut assembly, 3, 0),
        "waits",
        "packets of two intervals overtake each other"
    );
    assert_eq!(
        assembly.losses,
        Losses {
            incomplete: 2,
            missing: 1
        }
    );
    assert_eq!(half(&mut assembly, 2, 0), "late");
    assert_eq!(half(&mut assembly, 4, 0), "late");
    assert_eq!(
        half(&mut assembly, 30_000, 0),
        "waits",
        "the sender begins anew"
    );
    assert_eq!(half(&mut assembly, 30_000, 4), "whole");
    assert_eq!(half(&mut assembly, 0, 0), "waits", "and once more");
    assert_eq!(
        assembly.losses,
        Losses {
            incomplete: 4,
            missing: 1
        }
    );
}

// promise: 31.4
#[test]
fn any_datagram_is_a_message_or_refused() {
    let message = Message {
        kind: Kind::Samples,
        slice: 3,
        interval: 0x1234,
        phase: 0x89,
        at: 0xab_cdef,
        payload: b"samples",
    };
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    assert_eq!(
        bytes[..HEADER_BYTES],
        [0x10, 0, 0, 15, 0, 3, 0x12, 0x34, 0x89, 0xab, 0xcd, 0xef]
    );
    assert_eq!(Message::parse(&bytes), Ok(message));
    for length in 0..bytes.len() {
        assert_eq!(
            Message::parse(&bytes[..length]),
            Err(Malformed),
            "{length} bytes"
        );
    }
    bytes.extend([0; 20]);
    assert_eq!(Message::parse(&bytes), Ok(message), "padding");
    for (at, value) in [(0, 0x11), (0, 0x20), (1, 2), (2, 0xff), (3, 7)] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        assert_eq!(
            Message::parse(&wrong),
            Err(Malformed),
            "byte {at} is {value}"
        );
    }
    proptest!(|(bytes: Vec<u8>)| {
        let _is_no_panic = Message::parse(&bytes);
    });
}
