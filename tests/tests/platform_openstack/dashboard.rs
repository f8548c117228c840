//! Servers as somebody has them who knows Horizon only.

use crate::cloud::{Cloud, HOSTS};
use nfluid_testbed::CannotRun;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::soak;
use serde_json::json;

// promise: 34.13
#[test]
fn horizon_makes_shows_pauses_suspends_moves_and_deletes_a_server() {
    let test = "horizon_makes_shows_pauses_suspends_moves_and_deletes_a_server";
    if !soak::is_on() {
        return skip(test, "Horizon's pages take minutes: make soak runs it");
    }
    let Some(mut cloud) = Cloud::start(test) else {
        return;
    };
    match cloud.openstack.start_dashboard() {
        Err(why) if why.is::<CannotRun>() => return skip(test, &why.to_string()),
        other => other.expect("Horizon starts"),
    }
    let image = cloud.image("bridge", json!({ "nfluid_nf": "bridge" }));
    let [one, other] = HOSTS;
    let clicked = cloud
        .openstack
        .click(&[&image, &cloud.flavor, &cloud.lan, one, other]);
    let seen = clicked.unwrap_or_else(|why| panic!("{why:#}"));
    assert!(seen.ends_with("it is gone\n"), "{seen}");
    eventually("nothing is left", || cloud.is_clean());
}
