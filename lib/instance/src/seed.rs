//! The seed of the hash tables of NFs.

use nfluid_control::model::Program;
use serde_json::Value;

/// The NFs that take a seed for their hash tables.
const SEEDED: [&str; 3] = ["firewall", "limiter", "nat"];

/// The configuration with a seed, for an NF that takes one and was given none.
pub fn seeded(program: &Program, config: &Value, seed: u64) -> Value {
    let mut config = config.clone();
    if matches!(program, Program::BuiltIn { nf } if SEEDED.contains(&nf.as_str())) {
        if config.is_null() {
            config = Value::Object(serde_json::Map::new());
        }
        if let Value::Object(keys) = &mut config {
            keys.entry("seed").or_insert_with(|| seed.into());
        }
    }
    config
}
