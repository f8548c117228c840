//! One body, several engines: what is fast equals what is plain.

use super::super::packet::Packet;
use super::super::rule::Rule;
use super::super::ruleset::{Engine, Ruleset};
use super::arbitrary;
use proptest::collection::vec;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

/// All matches of a packet, in order, by each engine.
fn engines_agree(rules: Vec<Rule>, packets: &[Packet]) -> Result<(), TestCaseError> {
    let reference = Ruleset::with_engine(rules.clone(), Engine::Reference);
    for engine in [Engine::Linear, Engine::Classifier] {
        let fast = Ruleset::with_engine(rules.clone(), engine);
        for packet in packets {
            let mut start = 0;
            loop {
                let expected = reference.first_match(packet, start);
                let found = fast.first_match(packet, start);
                let rule = |index: Option<usize>| index.map(|index| rules[index].to_string());
                prop_assert_eq!(
                    found,
                    expected,
                    "{:?} from {} on {:?}: found {:?}, expected {:?}",
                    engine,
                    start,
                    packet,
                    rule(found),
                    rule(expected)
                );
                match expected {
                    Some(index) => start = index + 1,
                    None => break,
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn engines_agree_on_few_rules(
        rules in vec(arbitrary::rule(), 0..40),
        packets in vec(arbitrary::packet(), 60),
    ) {
        engines_agree(rules, &packets)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 64, ..Default::default() })]

    #[test]
    fn engines_agree_on_many_rules(
        rules in vec(arbitrary::rule(), 500..1500),
        packets in vec(arbitrary::packet(), 60),
    ) {
        engines_agree(rules, &packets)?;
    }
}
