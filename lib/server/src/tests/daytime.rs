use super::bed::{Bed, SERVER, SERVER_V6, config};
use crate::daytime::build;
use serde_json::json;
use smoltcp::socket::tcp::State;

/// How a time of the first minute ends and begins.
fn is_line(told: &str) -> bool {
    told.starts_with("Sunday, September 9, 2001 01:46:4") && told.ends_with("-UTC\r\n")
}

// promise: 18.10
#[test]
fn a_client_is_told_the_time_and_the_connection_ends() {
    let mut bed = Bed::new(build, &config(json!({})), 13);
    for address in [SERVER, SERVER_V6] {
        let client = bed.connect(address);
        let told = bed.told(client);
        assert!(is_line(&told), "{told:?}");
        assert_eq!(bed.state(client), State::CloseWait);
        bed.socket(client).close();
        bed.run();
        assert_eq!(bed.state(client), State::Closed);
    }
    assert_eq!(bed.metric("answers_total"), 2.0);
}

#[test]
fn clients_come_faster_than_late_frames_are_waited_for() {
    let mut bed = Bed::new(build, &config(json!({ "connections": 8 })), 13);
    for _ in 0..500 {
        let client = bed.connect(SERVER);
        let told = bed.told(client);
        assert!(is_line(&told), "{told:?}");
        bed.socket(client).close();
        bed.run();
    }
    assert_eq!(bed.metric("connections_accepted_total"), 500.0);
}

#[test]
fn what_is_lost_is_sent_again() {
    for loses in [3, 4, 7] {
        let mut bed = Bed::new(build, &config(json!({})), 13);
        bed.loses = Some(loses);
        let client = bed.connect(SERVER);
        let mut told = String::new();
        for _ in 0..200 {
            bed.wait(1);
            told += &bed.told(client);
            if !told.is_empty() {
                break;
            }
        }
        assert!(
            told.ends_with("-UTC\r\n"),
            "one of {loses} is lost: {told:?}"
        );
    }
}

#[test]
fn a_client_that_never_closes_is_left() {
    let mut bed = Bed::new(build, &config(json!({ "connections": 1 })), 13);
    let client = bed.connect(SERVER);
    bed.told(client);
    assert_eq!(bed.metric("connections_open"), 1.0);
    bed.wait(31);
    assert_eq!(bed.state(client), State::Closed, "it was reset");
    assert_eq!(bed.metric("connections_open"), 0.0);
    let next = bed.connect(SERVER);
    assert!(!bed.told(next).is_empty());
}
