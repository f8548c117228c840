//! `wake`: an instance that sleeps is woken for several frames at once, or when the first of them has waited long
//! enough; changed while it runs.

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;

use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::{PATIENCE, eventually};
use nfluid_tests::harness::two_hosts::{one_bridge, two_hosts};
use rustix::process::Signal;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use uplink_fixture::{Ends, frame};

const FRAMES: u32 = 16;
const AFTER: Duration = Duration::from_millis(400);
/// Between two frames: several of them wait before others come.
const GAP: Duration = Duration::from_millis(5);
const WAKE: &str = "wake: { frames: 16, after: 400ms }";

fn chain(keys: &str) -> String {
    one_bridge(&format!("share: 30%, {keys}"))
}

/// When the first frame of a round came.
struct Round {
    sent: u32,
    waited: Duration,
}

impl Round {
    /// Earlier than the time could have brought it, and not before the group was whole.
    fn came_by_number(&self) -> bool {
        self.sent >= FRAMES && self.waited < AFTER
    }

    /// Longer than the delay of a frame that is not held up.
    fn came_by_time(&self) -> bool {
        self.waited >= AFTER
    }

    fn came_at_once(&self) -> bool {
        self.sent < FRAMES && self.waited < AFTER
    }
}

impl Ends {
    /// Sends `count` frames to an instance that has nothing to do, one by one; all arrive.
    fn round(&self, count: u32) -> Round {
        // Not always as long after the wake-up before: what keeps step with that would do so for ever.
        let odd = SystemTime::now().duration_since(UNIX_EPOCH);
        let odd = odd.map_or(0, |time| u64::from(time.subsec_micros()) % 100_000);
        thread::sleep(Duration::from_micros(50_000 + odd));
        let start = Instant::now();
        let mut first = None;
        let (mut sent, mut got) = (0, 0);
        while got < count {
            if sent < count {
                self.client.send(&frame([2; 6], [4; 6], &[], 100, sent));
                sent += 1;
            }
            let patience = if sent < count { GAP } else { PATIENCE };
            if self.arrived(patience).is_some() {
                got += 1;
                let waited = start.elapsed();
                first.get_or_insert(Round { sent, waited });
            } else {
                assert!(sent < count, "{got} of {count} frames came");
            }
        }
        first.expect("at least one came")
    }
}

/// An instance may be awake for reasons of its own when frames come, and takes them along then: of several rounds
/// one is as told.
fn groups_wake(ends: &Ends) {
    eventually("a group wakes the instance", || {
        ends.round(2 * FRAMES).came_by_number()
    });
    eventually("fewer wait until the time is over", || {
        ends.round(FRAMES / 2).came_by_time()
    });
}

// promise: 7.32
#[test]
fn an_instance_is_woken_for_a_group_of_frames_or_when_the_first_has_waited_long_enough() {
    let test =
        "an_instance_is_woken_for_a_group_of_frames_or_when_the_first_has_waited_long_enough";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(&chain(WAKE));
    let ends = Ends::of(&platform);
    let told = json!({ "frames": 16, "after_us": 400_000 });
    groups_wake(&ends);
    assert_eq!(platform.instance("a")["wake"], told);
    let described = platform.nfluid(&["describe", "instance", "a"]);
    assert!(
        described.stdout.contains("after_us: 400000"),
        "{described:?}"
    );

    // The policy changes while the instance runs.
    let pids = platform.pids();
    assert_eq!(platform.apply(&chain("")), ["changed instance a"]);
    eventually("frames come at once", || ends.round(FRAMES).came_at_once());
    assert_eq!(platform.instance("a").get("wake"), None);
    assert_eq!(platform.apply(&chain(WAKE)), ["changed instance a"]);
    groups_wake(&ends);
    assert_eq!(platform.pids(), pids, "it was not restarted");

    // The policy outlives the daemon, and the instance.
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.apply(&chain(WAKE)), [""; 0], "all is as desired");
    assert_eq!(
        (platform.pids(), &platform.instance("a")["wake"]),
        (pids.clone(), &told)
    );
    groups_wake(&ends);
    signal(pids["a"], Signal::KILL);
    eventually("it runs again", || {
        platform
            .pids()
            .get("a")
            .is_some_and(|pid| *pid != pids["a"])
    });
    groups_wake(&ends);
}

// promise: 7.32
#[test]
fn an_instance_with_an_io_thread_is_woken_for_groups_too() {
    let Some(platform) = two_hosts("an_instance_with_an_io_thread_is_woken_for_groups_too") else {
        return;
    };
    platform.apply(&chain(&format!("{WAKE}, io: merge")));
    groups_wake(&Ends::of(&platform));
}

// promise: 7.33
#[test]
fn what_an_instance_cannot_wait_for_changes_nothing() {
    let Some(platform) = two_hosts("what_an_instance_cannot_wait_for_changes_nothing") else {
        return;
    };
    platform.apply(&chain(WAKE));
    for (wake, why) in [
        (
            "wake: { frames: 129, after: 1ms }",
            "cannot wait for 129 frames",
        ),
        (
            "wake: { frames: 16, after: 2s }",
            "a frame cannot wait 2000ms for others",
        ),
    ] {
        let refused = platform.try_apply(&chain(wake));
        assert!(!refused.succeeded());
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    assert_eq!(platform.instance("a")["wake"]["frames"], 16);
}
