//! Prints the OpenAPI document: `cargo run -p nfluid-api --features server --example openapi`.

fn main() -> Result<(), serde_json::Error> {
    print!("{}", nfluid_api::server::document()?);
    Ok(())
}
