//! The body that the property test and the fuzz target share: rule sets with any content.

use nfluid_evnf::firewall::tuples::{ENTRIES_MAX, TUPLES_MAX, compile};
use nfluid_evnf::firewall::{Family, Prefix, Stage};
use nfluid_evnf::nft::{Decided, Interface, Ruleset, Split, split, split_leaving};

/// Most patterns of a rule: 4096 alternatives for each IP version.
const PATTERNS_MAX: usize = 2 * 4096;

/// Parses an output of `nft -j list ruleset`, and splits the rule set for an interface and for a bridge's port, at
/// ingress and at egress. Returns true if the text is a rule set.
pub fn ruleset(json: &[u8]) -> bool {
    let Ok(mut ruleset) = Ruleset::read(json) else {
        return false;
    };
    for has_legacy in [false, true] {
        ruleset.has_legacy_tables = has_legacy;
        ruleset.has_legacy_nat = has_legacy;
        for part_of in [None, Some("br0")] {
            let name = "eth0";
            let interface = Interface { name, part_of };
            check(split(&ruleset, interface));
            check(split_leaving(&ruleset, interface));
        }
    }
    true
}

/// Each line leads to a rule, or has none; all rules that fit are in tables that have their bounds.
fn check(split: Split) {
    let rules = split.stages.iter().flat_map(|stage| &stage.rules).count();
    for line in &split.lines {
        assert!(line.number.is_none_or(|number| (number as usize) < rules));
        assert!(line.decided != Decided::Fast || line.number.is_some());
        assert!(!line.decided.to_string().is_empty());
    }
    split.stages.iter().for_each(check_stage);
    let tables = compile(&split.stages);
    assert!(tables.tuples.len() <= TUPLES_MAX && tables.entries.len() <= ENTRIES_MAX);
    let (stages, asks) = (split.stages.len(), split.only_kernel_asks.is_some());
    assert_eq!(
        split.before_senders().stages.len(),
        stages + usize::from(asks)
    );
}

fn check_stage(stage: &Stage) {
    for rule in &stage.rules {
        assert!(rule.patterns.len() <= PATTERNS_MAX);
        for pattern in &rule.patterns {
            let bits = match pattern.family {
                Family::V4 => 32,
                Family::V6 => 128,
            };
            check_prefix(&pattern.src, bits);
            check_prefix(&pattern.dst, bits);
            check_prefix(&pattern.sport, 16);
            check_prefix(&pattern.dport, 16);
        }
    }
}

/// Behind its length a prefix has zeros.
fn check_prefix(prefix: &Prefix, bits: u8) {
    assert!(prefix.len <= bits);
    assert_eq!(prefix.bits & !prefix.mask(), 0);
}
