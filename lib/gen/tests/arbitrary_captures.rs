//! No capture makes its reader panic, hang, or take memory that is not in the file.

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use proptest::prelude::*;

#[test]
fn most_seeds_are_captures() {
    let seeds = mutation::seeds("pcap");
    let captures = seeds.iter().filter(|seed| exercise::capture(seed));
    assert!(captures.count() * 2 > seeds.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // promise: 12.6
    #[test]
    fn captures_of_anybody(bytes in mutation::near_the_seeds_of("pcap")) {
        exercise::capture(&bytes);
    }
}
