//! `trust`: instances of a group share the memory of frames, and come, end and change one by one all the same.

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;

use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::two_hosts::two_hosts;
use rustix::process::Signal;
use std::time::Duration;
use uplink_fixture::{Ends, frame};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Bridges in a row, each with the keys of its place.
fn chain(keys: &[&str]) -> String {
    let names = NAMES[..keys.len()].join(", ");
    let line = |(name, keys): (&&str, &&str)| format!("  {name}: {{ nf: bridge, {keys} }}\n");
    let instances: String = NAMES.iter().zip(keys).map(line).collect();
    format!(
        "
version: 1
uplinks:
  lan: {{ interface: client, netns: EDGE }}
  wan: {{ interface: server, netns: EDGE }}
instances:
{instances}
chains:
  web: {{ from: lan, to: wan, via: [{names}] }}
"
    )
}

impl Ends {
    /// Frames of many lengths go through and are as they were. More than all rings together: a slot that is lost
    /// would be missed.
    fn are_connected(&self) {
        let first = frame([2; 6], [4; 6], &[], 100, u32::MAX);
        eventually("frames go through", || {
            self.client.send(&first);
            self.arrived(Duration::from_millis(20)).is_some()
        });
        for number in 0..4000 {
            let sent = frame([2; 6], [4; 6], &[], 60 + number as usize % 1400, number);
            self.client.send(&sent);
            let mut came = self.arrived(PATIENCE).expect("it comes");
            // The first ones may be late.
            while came == first {
                came = self.arrived(PATIENCE).expect("it comes");
            }
            assert!(came == sent, "frame {number} was changed");
        }
    }
}

/// Groups that have memory.
fn groups(platform: &Platform) -> Vec<String> {
    let entries = std::fs::read_dir(platform.pins().join("groups")).expect("groups");
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().expect("a name");
    let mut names: Vec<String> = entries
        .map(|entry| name(entry.expect("an entry")))
        .collect();
    names.sort();
    names
}

// promise: 7.34
#[test]
fn members_of_a_trust_group_are_killed_adopted_and_joined_without_disturbing_the_others() {
    let test =
        "members_of_a_trust_group_are_killed_adopted_and_joined_without_disturbing_the_others";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    let friends = "trust: friends";
    platform.apply(&chain(&[friends; 3]));
    let ends = Ends::of(&platform);
    ends.are_connected();
    assert_eq!(groups(&platform), ["friends"]);
    assert_eq!(platform.instance("b")["trust"], "friends");
    let shown = platform.nfluid(&["get", "instances"]);
    assert!(shown.stdout.contains("friends"), "{shown:?}");
    let described = platform.nfluid(&["describe", "instance", "b"]);
    assert!(described.stdout.contains("trust: friends"), "{described:?}");

    // Each is killed, and finds its slots again.
    for name in &NAMES[..3] {
        let before = platform.pids();
        signal(before[*name], Signal::KILL);
        eventually("it runs again", || {
            let pids = platform.pids();
            pids.get(*name).is_some_and(|pid| *pid != before[*name])
        });
        ends.are_connected();
    }

    // The daemon ends, and its successor knows the group.
    let pids = platform.pids();
    platform.kill_daemon();
    platform.start();
    let desired = chain(&[friends; 3]);
    assert_eq!(platform.apply(&desired), [""; 0], "all is as desired");
    assert_eq!(platform.pids(), pids);
    ends.are_connected();

    // A further instance joins, the others keep running.
    platform.apply(&chain(&[friends; 4]));
    let more = platform.pids();
    assert!(pids.iter().all(|(name, pid)| more[name] == *pid));
    ends.are_connected();

    // An instance leaves: only this instance is restarted.
    platform.apply(&chain(&[friends, friends, "", friends]));
    let fewer = platform.pids();
    for name in ["a", "b", "d"] {
        assert_eq!(fewer[name], more[name]);
    }
    assert_ne!(fewer["c"], more["c"]);
    assert_eq!(platform.instance("c").get("trust"), None);
    ends.are_connected();

    // In another I/O model, and in another group.
    platform.apply(&chain(&["trust: others, io: merge"; 4]));
    assert_eq!(groups(&platform), ["others"]);
    ends.are_connected();
    platform.apply(&chain(&[""; 2]));
    assert_eq!(groups(&platform), [""; 0], "a group ends with its members");
    ends.are_connected();
}

// promise: 7.34
#[test]
fn a_group_that_cannot_be_changes_nothing() {
    let Some(platform) = two_hosts("a_group_that_cannot_be_changes_nothing") else {
        return;
    };
    platform.apply(&chain(&["trust: friends"; 2]));
    let pids = platform.pids();
    let refused = platform.try_apply(&chain(&["trust: friends", "trust: '../x'"]));
    assert!(!refused.succeeded());
    assert!(refused.stderr.contains("trust"), "{refused:?}");
    assert_eq!(platform.pids(), pids);
    Ends::of(&platform).are_connected();
}
