//! No table and no ring, whatever its content, makes the port library reach beyond the port.
#![cfg(all(feature = "port", not(loom)))]

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use nfluid_ring::layout::{Released, tx_desc};
use nfluid_ring::table::{ATTACH_MAGIC_SHARED, Table};
use proptest::prelude::*;
use std::sync::atomic::Ordering;

/// A sender whose frames change in the call leaves holes. A ring full of them must not stay full.
#[test]
fn a_ring_full_of_holes_is_empty_again_once_they_were_seen() {
    let table = mutation::seeds("rings")
        .iter()
        .find_map(|seed| Table::parse(seed).ok());
    let mut ground =
        exercise::Ground::new(&table.expect("a table among the seeds")).expect("ports");
    let port = &mut ground.ports[0];
    let (first, slots) = (port.taken(), port.entry().ring_slots);
    for position in (0..slots).map(|i| first.wrapping_add(i)) {
        let hole = tx_desc(0, position.wrapping_add(1));
        let index = (position & (slots - 1)) as usize;
        port.raw_ring().rx[index].store(hole, Ordering::Release);
    }
    assert_eq!(port.receive(64, |_| panic!("a hole is no frame")), 0);
    let released = port.raw_ring().receiver.rx_released.load(Ordering::Acquire);
    assert_eq!(Released::of(released).head, first.wrapping_add(slots));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    // promise: 1.10
    #[test]
    fn tables_and_rings_from_anybody(input in mutation::near_the_seeds_of("rings")) {
        exercise::table_and_rings(&input);
    }

    #[test]
    fn steps_from_anybody_in_a_trust_group(
        table in prop::sample::select(mutation::seeds("rings")),
        steps in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut input = table;
        if input.len() >= 4 {
            input[..4].copy_from_slice(&ATTACH_MAGIC_SHARED.to_ne_bytes());
        }
        input.extend(steps);
        exercise::table_and_rings(&input);
    }

    // promise: 1.10
    #[test]
    fn steps_from_anybody(
        table in prop::sample::select(mutation::seeds("rings")),
        steps in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        exercise::table_and_rings(&[table, steps].concat());
    }
}
