use super::bed::{Bed, SERVER, config, surroundings};
use crate::{daytime, http};
use nfluid_nf::testing::ports;
use serde_json::{Value, json};
use smoltcp::socket::tcp::State;

#[test]
fn what_cannot_be_used_is_refused_by_its_key() {
    let cases = [
        (json!({}), "", "addresses"),
        (config(json!({ "addresses": [] })), "addresses", "1 to 8"),
        (
            config(json!({ "addresses": ["10.0.0.1"] })),
            "addresses[0]",
            "",
        ),
        (
            config(json!({ "addresses": ["10.0.0.0/24"] })),
            "addresses[0]",
            "a host",
        ),
        (
            config(json!({ "addresses": ["10.0.0.255/24"] })),
            "addresses[0]",
            "a host",
        ),
        (
            config(json!({ "addresses": ["ff02::1/64"] })),
            "addresses[0]",
            "a host",
        ),
        (
            config(json!({ "addresses": ["10.0.0.1/24", "10.0.0.1/8"] })),
            "addresses[1]",
            "twice",
        ),
        (
            config(json!({ "gateways": ["10.8.0.1"] })),
            "gateways[0]",
            "in no prefix",
        ),
        (
            config(json!({ "gateways": ["10.9.0.3", "10.9.0.4"] })),
            "gateways[1]",
            "each version",
        ),
        (config(json!({ "port": 0 })), "port", "1 to"),
        (config(json!({ "port": 70000 })), "port", ""),
        (
            config(json!({ "connections": 0 })),
            "connections",
            "1 to 1024",
        ),
        (config(json!({ "bodi": "" })), "bodi", "bodi"),
        (
            config(json!({ "body": "x".repeat(65537) })),
            "body",
            "65536",
        ),
        (
            config(json!({ "content_type": "a\r\nb: c" })),
            "content_type",
            "media type",
        ),
        (config(json!({ "status": 204 })), "status", "400 to 599"),
    ];
    for (config, path, message) in cases {
        let refused = http::build(&config, &ports(1), surroundings());
        let why = refused.err().unwrap_or_else(|| panic!("{config} is taken"));
        assert_eq!(why.path, path, "{config}");
        assert!(why.message.contains(message), "{config}: {}", why.message);
    }
    let mut narrow = ports(1);
    narrow[0].mtu = 1279;
    let refused = http::build(&config(json!({})), &narrow, surroundings());
    assert!(
        refused
            .err()
            .expect("IPv6")
            .message
            .contains("less than 1280")
    );
    let refused = daytime::build(&config(json!({})), &ports(2), surroundings());
    assert!(
        refused
            .err()
            .expect("two ports")
            .message
            .contains("one port")
    );
    let refused = daytime::build(&config(json!({ "body": "" })), &ports(1), surroundings());
    assert!(refused.is_err(), "daytime has no page");
}

#[test]
fn a_new_page_does_not_end_connections_and_new_addresses_do() {
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut bed = Bed::new(http::build, &config(json!({})), 80);
    let client = bed.client(SERVER, get);
    assert!(bed.told(client).ends_with("It works.\n"));
    let closed = config(json!({ "body": "closed", "status": 503 }));
    bed.server.reconfigure(&closed, &ports(1)).expect("taken");
    bed.say(client, get);
    let told = bed.told(client);
    assert!(
        told.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
        "{told}"
    );
    assert!(told.ends_with("closed"), "{told}");

    let before = bed.metric("connections_accepted_total");
    let refused = bed.server.reconfigure(&Value::Null, &ports(1));
    assert!(refused.is_err());
    let moved = config(json!({ "addresses": ["10.9.0.7/24"] }));
    bed.server.reconfigure(&moved, &ports(1)).expect("taken");
    bed.socket(client).send_slice(get).expect("sent");
    assert_eq!(bed.told(client), "");
    let client = bed.client("10.9.0.7", get);
    assert!(bed.told(client).starts_with("HTTP/1.1 200"));
    assert_eq!(bed.state(client), State::Established);
    assert_eq!(bed.metric("connections_accepted_total"), before + 1.0);
}
