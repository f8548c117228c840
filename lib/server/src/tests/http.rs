use super::bed::{Bed, SERVER, SERVER_V6, config};
use crate::http::build;
use serde_json::json;
use smoltcp::socket::tcp::State;

const GET: &[u8] = b"GET /some/where?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nhello";

fn bed() -> Bed {
    let config = config(json!({ "body": "hello", "content_type": "text/html" }));
    Bed::new(build, &config, 80)
}

#[test]
fn a_request_is_answered_with_the_page_and_the_connection_stays() {
    let mut bed = bed();
    for address in [SERVER, SERVER_V6] {
        let client = bed.client(address, GET);
        assert_eq!(bed.told(client), PAGE);
        bed.say(
            client,
            b"HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        );
        let head = bed.told(client);
        assert!(
            head.ends_with("content-length: 5\r\nconnection: close\r\n\r\n"),
            "{head}"
        );
        assert_eq!(bed.state(client), State::CloseWait);
    }
}

#[test]
fn requests_arrive_in_pieces_and_together() {
    let mut bed = bed();
    let client = bed.client(SERVER, b"");
    for byte in GET {
        assert_eq!(bed.told(client), "");
        bed.say(client, &[*byte]);
    }
    assert_eq!(bed.told(client), PAGE);
    bed.say(client, &[GET, GET, &GET[..10]].concat());
    assert_eq!(bed.told(client), [PAGE, PAGE].concat());
    bed.say(client, &GET[10..]);
    assert_eq!(bed.told(client), PAGE);
    // The client has nothing more to say, and hears the rest all the same.
    bed.socket(client).send_slice(GET).expect("sent");
    bed.socket(client).close();
    assert_eq!(bed.told(client), PAGE);
    bed.run();
    assert_eq!(bed.state(client), State::TimeWait);
}

#[test]
fn requests_that_are_none_are_refused() {
    let long = [
        b"GET / HTTP/1.1\r\nHost: a\r\nx: ".as_slice(),
        &[b'a'; 9000],
    ]
    .concat();
    let many = [
        "GET / HTTP/1.1\r\nHost: a\r\n".to_owned(),
        "a: b\r\n".repeat(65),
    ]
    .concat();
    let refused: [(&[u8], &str); 11] = [
        (
            b"POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\n\r\nabc",
            "405 Method Not Allowed",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "505"),
        (b"\x16\x03\x01\x02\x00\x01", "400"),
        (b"GET\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nb\x00: c\r\n\r\n", "400"),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\n\r\nabc",
            "413",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "413",
        ),
        (&long, "431"),
        (many.as_bytes(), "431"),
    ];
    for (request, status) in refused {
        let mut bed = bed();
        let client = bed.client(SERVER, request);
        let told = bed.told(client);
        assert!(told.starts_with(&format!("HTTP/1.1 {status}")), "{told}");
        assert!(told.contains("\r\nconnection: close\r\n"), "{told}");
        assert!(!bed.socket(client).may_recv(), "the server has closed");
    }
}

#[test]
fn a_client_of_an_older_version_is_told_and_left() {
    let mut bed = bed();
    let client = bed.client(SERVER, b"GET / HTTP/1.0\r\n\r\n");
    assert!(bed.told(client).contains("connection: close"));
    let client = bed.client(SERVER, b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    assert!(bed.told(client).contains("connection: keep-alive"));
}

#[test]
fn a_page_fits_through_any_link() {
    let body = "y".repeat(10_000);
    for mtu in [68, 576, 1280, 9000] {
        let only_v4 = json!({ "addresses": ["10.9.0.1/24"], "body": body });
        let mut bed = Bed::with_mtu(build, &only_v4, 80, mtu);
        let client = bed.client(SERVER, GET);
        assert!(bed.told(client).ends_with(&body), "MTU {mtu}");
        assert!(
            bed.longest <= usize::from(mtu.min(1500)) + 14,
            "{}",
            bed.longest
        );
    }
}

// promise: 18.10
#[test]
fn clients_that_say_nothing_hold_no_socket_for_long() {
    let config = config(json!({ "connections": 4 }));
    let mut bed = Bed::new(build, &config, 80);
    let slow: Vec<_> = (0..4).map(|_| bed.client(SERVER, b"GET /")).collect();
    let late = bed.connect(SERVER);
    bed.run();
    assert_eq!(bed.state(late), State::Closed, "it is refused at once");
    // A byte each second does not help them.
    for _ in 0..9 {
        bed.wait(1);
        for client in &slow {
            bed.say(*client, b"x");
        }
    }
    bed.wait(2);
    assert_eq!(bed.metric("connections_timed_out_total"), 4.0);
    let client = bed.client(SERVER, GET);
    assert!(bed.told(client).starts_with("HTTP/1.1 200 OK"));
}

// promise: 18.10
#[test]
fn clients_that_do_not_listen_hold_no_socket_for_long() {
    let config = config(json!({ "body": "x".repeat(65536), "connections": 1 }));
    let mut bed = Bed::new(build, &config, 80);
    let deaf = bed.client(SERVER, GET);
    bed.wait(31);
    assert_eq!(bed.state(deaf), State::Closed);
    let client = bed.client(SERVER, GET);
    let told = bed.told(client);
    assert_eq!(
        told.len() - told.find("\r\n\r\n").expect("an end") - 4,
        65536
    );
}
