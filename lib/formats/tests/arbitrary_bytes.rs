//! No bytes of an untrusted party make the daemon panic, or pass for a valid document.

mod exercise;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

use proptest::prelude::*;

#[test]
fn seeds_are_what_they_are_called() {
    let those = |target: &str, is_one: fn(&[u8]) -> bool| {
        let seeds = mutation::seeds(target);
        let ones = seeds.iter().filter(|seed| is_one(seed)).count();
        assert!(
            ones * 2 > seeds.len(),
            "{target}: {ones} of {}",
            seeds.len()
        );
    };
    those("saved", exercise::saved);
    those("messages", |bytes| exercise::messages(bytes) > 0);
    those("answers", exercise::answers);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // promise: 7.43
    #[test]
    fn saved_instances_from_anybody(bytes in mutation::near_the_seeds_of("saved")) {
        exercise::saved(&bytes);
    }

    // promise: 7.43
    #[test]
    fn messages_from_anybody(bytes in mutation::near_the_seeds_of("messages")) {
        exercise::messages(&bytes);
    }

    // promise: 7.43
    #[test]
    fn answers_from_anybody(bytes in mutation::near_the_seeds_of("answers")) {
        exercise::answers(&bytes);
    }
}
