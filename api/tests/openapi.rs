//! The committed OpenAPI document equals the generated one.

// promise: 8.1
#[test]
fn the_committed_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/nfluid.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let current = nfluid_api::server::document().expect("the document serializes");
    assert!(
        committed == current,
        "api/openapi/nfluid.json is stale; run: \
         cargo run -p nfluid-api --features server --example openapi > api/openapi/nfluid.json"
    );
}
