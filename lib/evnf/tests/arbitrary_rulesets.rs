//! No rule set of the host makes the daemon panic, or its part of the fast path larger than it may be.

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use proptest::prelude::*;

#[test]
fn most_seeds_are_rule_sets() {
    let seeds = mutation::seeds("nft");
    let rulesets = seeds.iter().filter(|seed| exercise::ruleset(seed));
    assert!(rulesets.count() * 2 > seeds.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // promise: 15.73
    #[test]
    fn rule_sets_of_anybody(bytes in mutation::near_the_seeds_of("nft")) {
        exercise::ruleset(&bytes);
    }
}
