//! Agents with valid and with invalid answers.

use super::config::LoadConfig;
use super::law::{Kind, Reading};
use super::snmp::Agent;
use serde_json::json;
use snmp2::Pdu;
use std::net::UdpSocket;
use std::thread;

const OBJECT: [u8; 7] = [0x06, 5, 0x2b, 6, 1, 4, 1];
const INTEGER: u8 = 0x02;
const TEXT: u8 = 0x04;
const GAUGE: u8 = 0x42;
const COUNTER64: u8 = 0x46;
const NO_SUCH_OBJECT: u8 = 0x80;

fn config(timeout: &str) -> LoadConfig {
    let config = json!({
        "oid": "1.3.6.1.4.1", "full": 100, "community": "c", "timeout": timeout
    });
    serde_json::from_value(config).expect("it is right")
}

/// Encodes a value by its type and its bytes, at most 127.
fn value(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, bytes.len() as u8], bytes].concat()
}

fn values(all: &[Vec<u8>]) -> Vec<u8> {
    let all = all
        .iter()
        .map(|one| value(0x30, &[&OBJECT[..], one].concat()));
    value(0x30, &all.collect::<Vec<_>>().concat())
}

/// Encodes an answer to request `number`.
fn answer(version: u8, community: &[u8], number: i32, error: u8, values: &[u8]) -> Vec<u8> {
    let number = value(INTEGER, &number.to_be_bytes());
    let error = [value(INTEGER, &[error]), value(INTEGER, &[0])].concat();
    let response = value(0xa2, &[&number, &error[..], values].concat());
    let version = value(INTEGER, &[version]);
    let community = value(TEXT, community);
    value(0x30, &[version, community, response].concat())
}

/// Queries an agent that gives this answer to a request, if any.
fn ask(
    timeout: &str,
    answer: impl FnOnce(i32) -> Vec<u8> + Send + 'static,
) -> Result<Reading, String> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("it has one");
    let agent = thread::spawn(move || {
        let mut request = [0; 256];
        let (length, from) = socket.recv_from(&mut request).expect("somebody asks");
        let number = Pdu::from_bytes(&request[..length])
            .expect("a request")
            .req_id;
        let answer = answer(number);
        if !answer.is_empty() {
            socket.send_to(&answer, from).expect("it is sent");
        }
        socket
    });
    let reading = Agent::new(at, config(timeout)).ask();
    drop(agent.join().expect("it ends"));
    reading
}

fn ask_for(all: &[Vec<u8>]) -> Result<Reading, String> {
    let values = values(all);
    ask("60s", move |number| answer(1, b"c", number, 0, &values))
}

#[test]
fn an_agent_tells_the_load_as_a_number_or_in_letters() {
    let read = |kind, value| Ok(Reading { kind, value });
    let cases = [
        (value(INTEGER, &[0, 200]), read(Kind::Number, 200.0)),
        (value(GAUGE, &[75]), read(Kind::Number, 75.0)),
        (value(TEXT, b"0.25"), read(Kind::Text, 0.25)),
        // The agent does not decide whether a value is plausible.
        (value(INTEGER, &[0x80]), read(Kind::Number, -128.0)),
        (value(TEXT, b"1e300"), read(Kind::Text, 1e300)),
    ];
    for (told, expected) in cases {
        assert_eq!(ask_for(&[told]), expected);
    }
}

// promise: 15.34
#[test]
fn an_agent_that_lies_is_not_heard_and_it_is_said_why() {
    let good = values(&[value(INTEGER, &[50])]);
    type Answer = Box<dyn FnOnce(i32) -> Vec<u8> + Send>;
    let with = |change: fn(i32, &[u8]) -> Vec<u8>| -> Answer {
        let good = good.clone();
        Box::new(move |number| change(number, &good))
    };
    let told = |told: Vec<u8>| -> Answer {
        Box::new(move |number| answer(1, b"c", number, 0, &values(&[told])))
    };
    let cases: Vec<(Answer, &str)> = vec![
        (told(value(COUNTER64, &[0x7f; 8])), "no load"),
        (told(value(TEXT, b"plenty")), "no number"),
        (told(value(TEXT, &[b'9'; 40])), "no load"),
        (told(value(TEXT, &[0xff])), "no number"),
        (told(value(NO_SUCH_OBJECT, &[])), "does not know"),
        (
            with(|number, good| answer(1, b"c", number ^ 1, 0, good)),
            "was not asked",
        ),
        (
            with(|number, good| answer(1, b"d", number, 0, good)),
            "another community",
        ),
        (
            with(|number, good| answer(0, b"c", number, 0, good)),
            "another version",
        ),
        (
            with(|number, good| answer(3, b"c", number, 0, good)),
            "is none",
        ),
        (
            with(|number, good| answer(1, b"c", number, 5, good)),
            "error 5",
        ),
        (
            with(|number, _| answer(1, b"c", number, 0, &values(&[]))),
            "less than was asked",
        ),
        (
            with(|number, good| {
                let mut answer = answer(1, b"c", number, 0, good);
                let object = answer.windows(7).position(|bytes| bytes == OBJECT);
                answer[object.expect("it is there") + 6] ^= 1;
                answer
            }),
            "was not asked",
        ),
        (
            with(|_, _| vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
            "is none",
        ),
        (with(|_, _| vec![0; 1]), "is none"),
    ];
    for (lie, expected) in cases {
        let why = ask("60s", lie).expect_err(expected);
        assert!(why.contains(expected), "{why}: {expected}");
    }
    // Every truncated answer is invalid.
    let whole = answer(1, b"c", 1, 0, &good);
    for length in 1..whole.len() {
        let part = whole[..length].to_vec();
        assert!(ask("60s", move |_| part).is_err(), "{length} bytes");
    }
}

// promise: 15.34
#[test]
fn an_agent_that_is_silent_and_one_that_is_somebody_else_are_waited_for_in_vain() {
    let silent = ask("20ms", |_| Vec::new());
    assert_eq!(silent, Err("it does not answer in time".to_owned()));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("it has one");
    let other = thread::spawn(move || {
        let mut request = [0; 256];
        let (length, from) = socket.recv_from(&mut request).expect("somebody asks");
        let request = Pdu::from_bytes(&request[..length]).expect("a request");
        let told = values(&[value(INTEGER, &[50])]);
        let answer = answer(1, b"c", request.req_id, 0, &told);
        let other = UdpSocket::bind("127.0.0.1:0").expect("another port");
        other.send_to(&answer, from).expect("it is sent");
        socket
    });
    let elsewhere = Agent::new(at, config("50ms")).ask();
    assert_eq!(elsewhere, Err("it does not answer in time".to_owned()));
    drop(other.join().expect("it ends"));
}
