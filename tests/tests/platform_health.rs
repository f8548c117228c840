//! `health`: an instance that hangs is found, told of and restarted; one that is slow, starved or paused is not.

#[path = "uplink_fixture/mod.rs"]
mod uplink_fixture;

use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::two_hosts::{SERVER, one_bridge, two_hosts};
use rustix::process::Signal;
use std::thread;
use std::time::{Duration, Instant};
use uplink_fixture::{Ends, frame};

fn health(keys: &str) -> String {
    format!("interval: 100ms, timeout: 200ms, failures: 2, grace: 0s, {keys}")
}

/// Returns the daemon's report about instance `a`: its state, and why it is unhealthy.
fn state(platform: &Platform) -> (String, String) {
    let instance = platform.instance("a");
    let word = |key: &str| instance[key].as_str().unwrap_or_default().to_owned();
    (word("state"), word("unhealthy"))
}

fn metric(platform: &Platform, name: &str) -> Option<String> {
    let line = format!("{name}{{instance=\"a\"}} ");
    let page = platform.page("/metrics");
    let lines = page.lines();
    let mut values = lines.filter_map(|text| text.strip_prefix(&line));
    values.next().map(str::to_owned)
}

// promise: 5.16
#[test]
fn one_that_hangs_is_restarted_and_frames_pass_again() {
    let test = "one_that_hangs_is_restarted_and_frames_pass_again";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    for checks in ["process", "progress"] {
        let keys = health(&format!("checks: [{checks}]"));
        platform.apply(&one_bridge(&format!("health: {{ {keys} }}")));
        eventually("a ping crosses", || platform.pings("client", SERVER));
        let before = platform.pids()["a"];
        signal(before, Signal::STOP);
        eventually("it is another one", || {
            // A waiting frame is what shows that the instance hangs.
            let _unanswered = platform.pings("client", SERVER);
            platform.pids().get("a").is_some_and(|pid| *pid != before)
        });
        eventually("a ping crosses again", || platform.pings("client", SERVER));
        assert_eq!(state(&platform), ("running".into(), String::new()));
        let kinds = platform.events_of("a");
        let fell = kinds.iter().rposition(|kind| kind == "unhealthy");
        let ended = kinds.iter().rposition(|kind| kind == "crashed");
        let again = kinds.iter().rposition(|kind| kind == "started");
        assert!(fell.is_some() && fell < ended && ended < again, "{kinds:?}");
    }
}

// promise: 5.16
#[test]
fn one_that_is_only_reported_stays_as_it_is_and_recovers() {
    let test = "one_that_is_only_reported_stays_as_it_is_and_recovers";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    let reported = one_bridge(&format!("health: {{ {} }}", health("action: report")));
    platform.apply(&reported);
    let pids = platform.pids();
    assert_eq!(
        metric(&platform, "nfluid_instance_healthy").as_deref(),
        Some("1")
    );
    signal(pids["a"], Signal::STOP);
    eventually("it is found", || state(&platform).0 == "unhealthy");
    assert!(state(&platform).1.contains("has not answered for"));
    assert_eq!(
        metric(&platform, "nfluid_instance_healthy").as_deref(),
        Some("0")
    );
    assert_eq!(
        metric(&platform, "nfluid_instance_unhealthy_total").as_deref(),
        Some("1")
    );
    let daemon = platform.page("/v1/health");
    assert!(
        daemon.contains("instance a is unhealthy: it has not"),
        "{daemon}"
    );
    signal(pids["a"], Signal::CONT);
    eventually("it is well again", || state(&platform).0 == "running");
    assert_eq!(platform.pids(), pids);
    assert!(platform.events_of("a").ends_with(&["healthy".to_owned()]));

    // Health checks continue after the daemon's restart; they can be changed while the instance runs.
    platform.kill_daemon();
    platform.start();
    signal(pids["a"], Signal::STOP);
    eventually("the next daemon finds it", || {
        state(&platform).0 == "unhealthy"
    });
    signal(pids["a"], Signal::CONT);
    assert_eq!(platform.apply(&one_bridge("")), ["changed instance a"]);
    eventually("nobody looks any more", || {
        metric(&platform, "nfluid_instance_healthy").is_none() && state(&platform).0 == "running"
    });
    assert_eq!(platform.pids(), pids);
}

// promise: 5.16
#[test]
fn one_that_is_slow_or_paused_is_well() {
    let Some(platform) = two_hosts("one_that_is_slow_or_paused_is_well") else {
        return;
    };
    // A hundredth of a core, and more frames than that is enough for. The time counts in which it runs, and is not
    // taken from it without a word, as a machine's owner may: not for that long.
    let keys = health("checks: [process, progress]")
        .replace("failures: 2", "failures: 1")
        .replace("timeout: 200ms", "timeout: 500ms");
    platform.apply(&one_bridge(&format!(
        "cap: 1%, cpus: [0], health: {{ {keys} }}"
    )));
    let pids = platform.pids();
    let ends = Ends::of(&platform);
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < Duration::from_secs(2) {
        ends.client.send(&frame([2; 6], [4; 6], &[], 100, number));
        number += 1;
    }
    let throttled = &platform.ask(&["stats"])["instances"][0]["throttled_ns"];
    assert!(
        throttled.as_u64() > Some(0),
        "it has met its cap: {throttled}"
    );
    assert!(platform.nfluid(&["pause", "a"]).succeeded());
    let _held = platform.pings("client", SERVER);
    thread::sleep(Duration::from_millis(1200));
    assert!(platform.nfluid(&["unpause", "a"]).succeeded());
    platform.apply(&one_bridge(&format!("cpus: [0], health: {{ {keys} }}")));
    eventually("it works on", || platform.pings("client", SERVER));
    assert_eq!(platform.pids(), pids);
    let kinds = platform.events_of("a");
    assert!(!kinds.contains(&"unhealthy".to_owned()), "{kinds:?}");
}
