//! The body that the property test and the fuzz target share: rule text and frames with any content.

use nfluid_nf::firewall::packet::Packet;
use nfluid_nf::firewall::parse::{self, Context};
use nfluid_nf::firewall::rule::Rule;
use nfluid_nf::firewall::ruleset::{Engine, Ruleset};
use nfluid_nf::testing::{ports, run};
use nfluid_nf::{Nanos, firewall};
use nfluid_wire::PacketMeta;
use serde_json::json;

/// Checks rules in `text` and frames in `bytes` (each behind its length in one byte), all of which an attacker may
/// have made up: nothing panics, a printed rule is read as the same rule, every engine finds the same rules, and a
/// frame that leaves on the other port is unchanged.
pub fn rules_and_frames(text: &str, bytes: &[u8]) {
    let frames = frames(bytes);
    let accepted = accepted_lines(text);
    let rules: Vec<Rule> = accepted.iter().map(|(rule, _)| rule.clone()).collect();
    engines_agree(&rules, &frames);
    let lines: Vec<&str> = accepted.iter().map(|(_, line)| *line).collect();
    for config in [json!({ "rules": text }), json!({"rules": lines.join("\n")})] {
        if let Ok(mut nf) = firewall::build(&config, &ports(2)) {
            let arrivals: Vec<(u8, Vec<u8>)> = frames.iter().cloned().map(|f| (0, f)).collect();
            for (port, sent) in run(&mut *nf, Nanos::from_secs(1), &arrivals) {
                assert!(port == 0 || frames.contains(&sent), "changed on the way");
            }
        }
    }
}

fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let [len, rest @ ..] = bytes {
        let (frame, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        if frame.len() >= 14 {
            frames.push(frame.to_vec());
        }
        bytes = rest;
    }
    frames
}

/// Returns the lines that are rules. The numbers of the rules are left out, because numbers must not fall.
fn accepted_lines(text: &str) -> Vec<(Rule, &str)> {
    let names = ["p0".into(), "p1".into()];
    let mut accepted = Vec::new();
    for line in text.lines() {
        let Ok(Some(rule)) = parse::rule(line, &mut Context::new(&names)) else {
            continue;
        };
        let printed = rule.to_string();
        let again = parse::rule(&printed, &mut Context::new(&names));
        assert_eq!(
            again,
            Ok(Some(rule.clone())),
            "'{line}' is printed as '{printed}'"
        );
        accepted.push((rule, line));
    }
    accepted
}

fn engines_agree(rules: &[Rule], frames: &[Vec<u8>]) {
    let compile = |engine| Ruleset::with_engine(rules.to_vec(), engine);
    let reference = compile(Engine::Reference);
    let fast = [compile(Engine::Linear), compile(Engine::Classifier)];
    for frame in frames {
        let Ok(meta) = PacketMeta::parse(frame) else {
            continue;
        };
        for packet in (0..2).filter_map(|in_port| Packet::new(&meta, in_port)) {
            for start in 0..rules.len() {
                let expected = reference.first_match(&packet, start);
                for ruleset in &fast {
                    assert_eq!(ruleset.first_match(&packet, start), expected, "{packet:?}");
                }
            }
        }
    }
}
