//! Frames that no client sends.

use super::bed::{Bed, SERVER, config};
use crate::http::build;
use core::net::Ipv4Addr;
use nfluid_nf::testing;
use nfluid_wire::checksum::{checksum, combine, pseudo_header_v4, sum};
use proptest::prelude::*;
use serde_json::json;

/// Frames of a conversation with the server, in their order.
fn conversation() -> Vec<Vec<u8>> {
    let mut bed = Bed::new(build, &config(json!({})), 80);
    bed.records = Some(Vec::new());
    let client = bed.client(SERVER, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    bed.told(client);
    bed.socket(client).close();
    bed.run();
    bed.records.expect("recorded")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_frames_harm_nobody(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..200),
        lengths in prop::collection::vec(14usize..200, 0..8),
    ) {
        let recorded = conversation();
        let mut bed = Bed::new(build, &config(json!({ "connections": 2 })), 80);
        let now = bed.now();
        for (frame, at, value) in changes {
            let mut frame = recorded[frame.index(recorded.len())].clone();
            let at = at.index(frame.len());
            frame[at] = value;
            testing::run(bed.server.as_mut(), now, &[(0, frame.clone())]);
            for length in &lengths {
                let cut = frame[..frame.len().min(*length)].to_vec();
                testing::run(bed.server.as_mut(), now, &[(0, cut)]);
            }
        }
        // Whatever they have opened ends by itself, and the server answers as before.
        bed.wait(45);
        let client = bed.client(SERVER, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        prop_assert!(bed.told(client).ends_with("It works.\n"));
    }

    #[test]
    fn any_bytes_get_an_answer_or_are_waited_for(said in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut bed = Bed::new(build, &config(json!({})), 80);
        let client = bed.client(SERVER, &said);
        let told = bed.told(client);
        prop_assert!(told.is_empty() || told.starts_with("HTTP/1.1 "), "{}", told);
    }
}

/// A host that knows nothing of a connection says so, and the socket waits for the next client at once and for good.
#[test]
fn connections_that_nobody_wanted_leave_nothing() {
    let opening = conversation().swap_remove(1);
    let mut bed = Bed::new(build, &config(json!({ "connections": 1 })), 80);
    let now = bed.now();
    testing::run(bed.server.as_mut(), now, &[(0, opening)]);
    bed.wait(45);
    let client = bed.client(SERVER, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(bed.told(client).ends_with("It works.\n"));
    assert_eq!(bed.metric("connections_timed_out_total"), 0.0);
}

/// An opening segment of a client that does not exist.
fn opening(template: &[u8], number: u16) -> Vec<u8> {
    let mut frame = template.to_vec();
    frame[29] = 200;
    frame[34..36].copy_from_slice(&number.to_be_bytes());
    frame[24..26].fill(0);
    let of_header = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&of_header.to_be_bytes());
    frame[50..52].fill(0);
    let segment = &frame[34..];
    let (from, to) = (Ipv4Addr::new(10, 9, 0, 200), Ipv4Addr::new(10, 9, 0, 1));
    let pseudo = pseudo_header_v4(from, to, 6, segment.len() as u32);
    let of_segment = !combine(&[pseudo, sum(segment)]);
    frame[50..52].copy_from_slice(&of_segment.to_be_bytes());
    frame
}

/// Real clients are served beside a flood of openings from addresses that nobody has.
// promise: 18.10
#[test]
fn a_flood_of_openings_keeps_nobody_away() {
    let mut bed = Bed::new(build, &config(json!({ "connections": 16 })), 80);
    let (template, mut number) = (conversation().swap_remove(1), 1000);
    for round in 0..40 {
        for _ in 0..10 {
            number += 1;
            let now = bed.now();
            testing::run(bed.server.as_mut(), now, &[(0, opening(&template, number))]);
            bed.pass();
        }
        let client = bed.client(
            SERVER,
            b"GET / HTTP/1.1\r\nHost: a\r\nconnection: close\r\n\r\n",
        );
        assert!(bed.told(client).ends_with("It works.\n"), "round {round}");
        bed.socket(client).close();
        bed.run();
    }
    assert!(bed.metric("connections_given_up_total") > 300.0);
}
