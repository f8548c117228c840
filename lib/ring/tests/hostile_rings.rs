//! No table and no ring, whoever wrote it, makes the port library reach beyond the port.
#![cfg(all(feature = "port", not(loom)))]

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn tables_and_rings_from_anybody(input in mutation::near_the_seeds_of("rings")) {
        exercise::table_and_rings(&input);
    }

    #[test]
    fn steps_from_anybody(
        table in prop::sample::select(mutation::seeds("rings")),
        steps in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        exercise::table_and_rings(&[table, steps].concat());
    }
}
