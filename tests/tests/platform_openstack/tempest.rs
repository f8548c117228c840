//! Tempest, OpenStack's own test suite, runs against a cloud.

use crate::cloud::Cloud;
use nfluid_testbed::CannotRun;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::soak;

// promise: 34.7
#[test]
fn tempests_smoke_tests_of_compute_pass() {
    let test = "tempests_smoke_tests_of_compute_pass";
    if !soak::is_on() {
        return skip(test, "Tempest's tests take minutes: make soak runs them");
    }
    let Some(cloud) = Cloud::start(test) else {
        return;
    };
    let said = match cloud.openstack.tempest() {
        Err(why) if why.is::<CannotRun>() => return skip(test, &why.to_string()),
        other => other.unwrap_or_else(|why| panic!("{why:#}")),
    };
    let passed = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("- Passed: "));
    let passed = passed.and_then(|count| count.parse::<u32>().ok());
    assert!(passed >= Some(10), "{said}");
    eventually("nothing is left", || cloud.is_clean());
}
