//! No configuration or certificate of a tenant makes the daemon panic.

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use proptest::prelude::*;

#[test]
fn most_seeds_are_configurations_or_certificates() {
    let seeds = mutation::seeds("tls");
    let those = seeds.iter();
    let those = those.filter(|seed| exercise::configuration_or_certificate(seed));
    assert!(those.count() * 2 > seeds.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // promise: 17.8
    #[test]
    fn configurations_and_certificates_of_anybody(bytes in mutation::near_the_seeds_of("tls")) {
        exercise::configuration_or_certificate(&bytes);
    }
}
