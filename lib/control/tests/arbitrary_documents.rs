//! Arbitrary documents: none makes the daemon panic, hang, or plan an impossible step.

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use proptest::prelude::*;

#[test]
fn most_seeds_are_deployments() {
    let seeds = mutation::seeds("documents");
    let is_deployment = |seed: &&Vec<u8>| exercise::document(&String::from_utf8_lossy(seed));
    assert!(seeds.iter().filter(is_deployment).count() > seeds.len() / 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    // promise: 6.9
    #[test]
    fn documents_from_anybody(bytes in mutation::near_the_seeds_of("documents")) {
        exercise::document(&String::from_utf8_lossy(&bytes));
    }
}
