//! The promise: eFW before the kernel's firewall changes no verdict. Two kernels forward between the same hosts by the same
//! random rules; before one of them runs the fast path that was made of those rules. The same packets through both give the
//! same frames, also those that the kernels answer themselves.

mod kernel;
mod packets;
mod rules;

use kernel::Kernel;
use nfluid_evnf::firewall::Exit;
use nfluid_evnf::nft::Decided;
use nfluid_testbed::random::Random;
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_tests::harness::soak;
use std::process::Command;

const RULESETS: u64 = 24;
/// Before a release.
const RULESETS_SOAK: u64 = 240;
const PACKETS: u32 = 400;

// promise: 15.1, 15.71
#[test]
fn the_fast_path_changes_no_verdict() {
    let test = "the_fast_path_changes_no_verdict";
    if !is_root(test) {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return skip(test, "no program 'nft': install nftables");
    }
    let (mut plain, mut fast) = (Kernel::new("plain"), Kernel::new("fast"));
    let (mut passed, mut dropped_early, mut rules_fast, mut rules_slow) = (0, 0, 0, 0);
    let rulesets = soak::choose(RULESETS, RULESETS_SOAK);
    for seed in 0..rulesets {
        let mut random = Random(seed);
        let text = rules::random(&mut random);
        plain.install(&text);
        fast.install(&text);
        let (firewall, split) = fast.offload();
        for line in &split.lines {
            match line.decided {
                Decided::Fast => rules_fast += 1,
                Decided::Slow(_) => rules_slow += 1,
                Decided::Never | Decided::NoEffect => {}
            }
        }
        for number in 0..PACKETS {
            let packet = packets::random(&mut random, seed as u32 * PACKETS + number);
            let (expected, got) = (plain.pass(&packet), fast.pass(&packet));
            passed += usize::from(!expected.is_empty());
            assert_eq!(
                expected,
                got,
                "seed {seed}, packet {number}: {packet:?}\n{text}\n{:#?}\n{:?}",
                split.lines,
                firewall.exits()
            );
        }
        let exits = firewall.exits().expect("it runs");
        let dropped = exits.iter().find(|(exit, _)| *exit == Exit::Drop);
        dropped_early += dropped.expect("it is counted").1.packets;
        fast.detach();
    }
    println!(
        "{} packets: {passed} answered or passed, {dropped_early} dropped before the kernel; \
         of the rules {rules_fast} on the fast path, {rules_slow} left to the kernel",
        rulesets * u64::from(PACKETS)
    );
    assert!(passed > 500 && dropped_early > 500, "the test says nothing");
    assert!(rules_fast > 50 && rules_slow > 50, "the test says nothing");
}
