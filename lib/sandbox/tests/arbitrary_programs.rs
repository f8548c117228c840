//! No file is read without a bound, or makes the daemon panic, because it is said to be a program.

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use proptest::prelude::*;

// The seeds are of this machine.
#[cfg(target_arch = "x86_64")]
#[test]
fn most_seeds_are_programs() {
    let seeds = mutation::seeds("elf");
    let programs = seeds.iter().filter(|seed| exercise::program(seed));
    assert!(programs.count() * 2 > seeds.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    // promise: 3.20
    #[test]
    fn programs_of_anybody(bytes in mutation::near_the_seeds_of("elf")) {
        exercise::program(&bytes);
    }
}
