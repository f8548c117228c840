//! The format of requests and answers.

use crate::fixture::{Fixture, ask, send};
use axum::body::Body;
use axum::http::Request;

// promise: 32.8
#[tokio::test(flavor = "multi_thread")]
async fn answers_and_requests_are_json_or_yaml() {
    let fixture = Fixture::new();
    let users = fixture.administrators();
    let request = |kind: &str, body: String| {
        Request::builder()
            .method("POST")
            .uri("/openvim/tenants")
            .header("Accept", "application/yaml")
            .header("Content-Type", kind)
            .body(Body::from(body))
            .expect("a request")
    };
    let yaml = "tenant:\n  name: acme\n  description: 'of two'\n".to_owned();
    let (status, text) = send(&users, request("application/yaml", yaml)).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.starts_with("tenant:\n"), "{text}");
    for (kind, body, expected) in [
        ("application/xml", "<tenant/>".to_owned(), 406),
        ("application/json", "{".to_owned(), 400),
        ("application/yaml", "a: [".to_owned(), 400),
        ("application/json", " ".repeat(2 << 20), 400),
        ("application/json", "[".repeat(100_000), 400),
    ] {
        let (status, text) = send(&users, request(kind, body)).await;
        assert_eq!(status, expected, "{kind}: {text}");
        assert!(text.starts_with("error:\n"), "{text}");
    }
    for (method, path, expected) in [
        ("GET", "nothing", 404),
        ("GET", "tenants/not-an-id", 404),
        ("PATCH", "tenants", 405),
        ("GET", "networks/all/openflow", 200),
        ("GET", "networks/openflow/ports", 200),
        ("DELETE", "networks/openflow/clear", 200),
    ] {
        let (status, answer) = ask(&users, method, path, None).await;
        assert_eq!(status, expected, "{path}: {answer}");
    }
}
