//! A rule of the kernel's as one of the fast path's.

use super::condition::{Condition, Fields, Place, and};
use super::split::Decided;
use crate::firewall::rules::{Family, Rule, Verdict};
use serde_json::Value;

/// What becomes of a rule, and the rule of the fast path, if there is one. `families`: of which packets its chain sees; `policy`:
/// what the chain says at its end.
pub fn translate(
    place: &Place<'_>,
    statements: &[Value],
    families: &[Family],
    policy: Verdict,
) -> (Decided, Option<Rule>) {
    let mut fields = vec![Fields::default()];
    // Why the kernel has to see what it may match.
    let mut condition = None;
    let mut statement = None;
    let mut verdict = None;
    for found in statements {
        let Some((kind, value)) = found.as_object().and_then(|object| object.iter().next()) else {
            continue;
        };
        match kind.as_str() {
            "match" => match place.condition(value) {
                Condition::AnyOf(more) => match and(&fields, &more) {
                    Some(both) => fields = both,
                    None => condition = Some("too many combinations".to_owned()),
                },
                Condition::Unknown(why) => condition = Some(why),
            },
            // What the fast path drops it counts itself.
            "counter" => {}
            "accept" => verdict = Some(Verdict::Accept),
            "drop" => verdict = Some(Verdict::Drop),
            "return" => verdict = Some(policy),
            "continue" => {}
            other => statement = Some(format!("statement {other}")),
        }
    }
    let patterns = fields.iter().flat_map(Fields::patterns);
    let patterns: Vec<_> = patterns
        .filter(|pattern| families.contains(&pattern.family))
        .collect();
    let rule = |verdict| {
        Some(Rule {
            patterns: patterns.clone(),
            verdict,
        })
    };
    match (statement, condition, verdict) {
        _ if patterns.is_empty() => (Decided::Never, None),
        (Some(why), ..) | (None, Some(why), Some(_)) => (Decided::Slow(why), rule(Verdict::Ask)),
        (None, None, Some(verdict)) => (Decided::Fast, rule(verdict)),
        (None, _, None) => (Decided::NoEffect, None),
    }
}
