//! The promise: the firewall's verdicts are those of the Linux kernel. Random rule lists are installed in nftables, in
//! a network namespace of the test's own, and in the firewall; the same random packets go through both. Which packets
//! come out, on which side, and how many each rule matched must be equal.

mod kernel;
mod packets;
mod rules;

use kernel::Kernel;
use nfluid_nf::testing::{ports, run};
use nfluid_nf::{Nanos, NetworkFunction, firewall};
use nfluid_testbed::random::Random;
use nfluid_tests::harness::skip::{is_root, skip};
use packets::Packet;
use rules::Rule;
use std::collections::BTreeSet;
use std::process::Command;

/// Results of one side: the identifiers of passed packets, and hits per rule.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    passed: BTreeSet<u32>,
    hits: Vec<u64>,
}

fn by_firewall(rules: &[Rule], packets: &[Packet]) -> Outcome {
    let text: String = rules.iter().map(|rule| rule.ipfw() + "\n").collect();
    let config = serde_json::json!({"rules": text, "default": "deny"});
    let mut nf = firewall::build(&config, &ports(2)).unwrap_or_else(|e| panic!("{e} in:\n{text}"));
    let frames: Vec<(u8, Vec<u8>)> = packets
        .iter()
        .map(|packet| (packet.in_port, packet.frame.clone()))
        .collect();
    let passed = run(&mut *nf, Nanos::from_secs(1), &frames)
        .iter()
        .map(|(_, frame)| packets::identifier(frame).expect("the firewall changes nothing"))
        .collect();
    Outcome {
        passed,
        hits: hits(&mut *nf, rules.len()),
    }
}

fn hits(nf: &mut dyn NetworkFunction, rules: usize) -> Vec<u64> {
    let answer = nf
        .command(Nanos(0), "rules", &[])
        .expect("a command of the firewall");
    let rows = answer["rules"].as_array().expect("a list of rules");
    assert_eq!(rows.len(), rules);
    rows.iter()
        .map(|row| row["packets"].as_u64().expect("a counter"))
        .collect()
}

fn compare(kernel: &mut Kernel, seed: u64, rule_count: u32, packet_count: u32) -> usize {
    let mut random = Random(seed);
    let rules: Vec<Rule> = (0..rule_count).map(|_| Rule::random(&mut random)).collect();
    let packets: Vec<Packet> = (0..packet_count)
        .map(|identifier| Packet::random(&mut random, identifier))
        .collect();
    let (passed, hits) = kernel.run(&rules, &packets);
    let kernel = Outcome { passed, hits };
    let firewall = by_firewall(&rules, &packets);
    if kernel != firewall {
        explain(seed, &rules, &packets, &kernel, &firewall);
    }
    firewall.passed.len()
}

/// Fails with the first packets and rules about which the two disagree.
fn explain(seed: u64, rules: &[Rule], packets: &[Packet], kernel: &Outcome, firewall: &Outcome) {
    let mut story = format!("seed {seed}: kernel and firewall disagree\n");
    for identifier in kernel.passed.symmetric_difference(&firewall.passed).take(5) {
        let packet = &packets[*identifier as usize];
        let by = if kernel.passed.contains(identifier) {
            "the kernel"
        } else {
            "the firewall"
        };
        story += &format!("only {by} passes {packet:?}\n");
    }
    for (index, rule) in rules.iter().enumerate() {
        let (theirs, ours) = (kernel.hits[index], firewall.hits[index]);
        let mark = if theirs == ours { "  " } else { "->" };
        story += &format!(
            "{mark} kernel {theirs} firewall {ours}: {} | {}\n",
            rule.ipfw(),
            rule.nft()
        );
    }
    panic!("{story}");
}

// promise: 10.3
#[test]
fn verdicts_and_counters_are_those_of_nftables() {
    let test = "verdicts_and_counters_are_those_of_nftables";
    if !is_root(test) {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return skip(test, "no program 'nft': install nftables");
    }
    let mut kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(reason) => return skip(test, &reason),
    };
    let (mut packets, mut passed) = (0, 0);
    for seed in 0..30 {
        packets += 400;
        passed += compare(&mut kernel, seed, 1 + seed as u32, 400);
    }
    for (seed, rules) in [(100, 70), (101, 150), (102, 600)] {
        packets += 1500;
        passed += compare(&mut kernel, seed, rules, 1500);
    }
    let share = passed * 100 / packets;
    println!("{packets} verdicts compared, {share} % of the packets passed");
    assert!(
        (10..=90).contains(&share),
        "a one-sided comparison: {share} % passed"
    );
}
