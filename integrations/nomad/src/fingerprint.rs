//! The abilities of a host, as attributes of Nomad's node.

use crate::plugin::NAME;
use crate::protocol::drivers::FingerprintResponse;
use crate::protocol::drivers::fingerprint_response::HealthState;
use crate::protocol::structs::Attribute;
use crate::protocol::structs::attribute::Value;
use nfluid_api::types::{Capacity, Version};
use std::collections::HashMap;

/// Returns the attributes of a host whose daemon answers. What changes with each instance is not among them: Nomad counts itself.
pub fn healthy(version: &Version, capacity: &Capacity) -> FingerprintResponse {
    let mut attributes = HashMap::new();
    let mut add = |key: String, value: Value, unit: &str| {
        let key = if key.is_empty() {
            format!("driver.{NAME}")
        } else {
            format!("driver.{NAME}.{key}")
        };
        let attribute = Attribute {
            value: Some(value),
            unit: unit.to_owned(),
        };
        attributes.insert(key, attribute);
    };
    add(String::new(), Value::BoolVal(true), "");
    add(
        "version".to_owned(),
        Value::StringVal(version.version.clone()),
        "",
    );
    add(
        "kernel".to_owned(),
        Value::StringVal(version.kernel.clone()),
        "",
    );
    add(
        "architecture".to_owned(),
        Value::StringVal(capacity.architecture.clone()),
        "",
    );
    let number = |amount: u64| Value::IntVal(i64::try_from(amount).unwrap_or(i64::MAX));
    add(
        "share_per_mille".to_owned(),
        number(capacity.share_per_mille.total),
        "",
    );
    add(
        "memory_mib".to_owned(),
        number(capacity.memory_bytes.total >> 20),
        "",
    );
    add("ports".to_owned(), number(capacity.ports.total), "");
    add("instances".to_owned(), number(capacity.instances.total), "");
    for nf in &capacity.nfs {
        add(format!("nf.{nf}"), Value::BoolVal(true), "");
    }
    for tier in &capacity.tiers {
        add(format!("tier.{tier}"), Value::BoolVal(true), "");
    }
    for (key, value) in &capacity.labels {
        add(format!("label.{key}"), Value::StringVal(value.clone()), "");
    }
    FingerprintResponse {
        attributes,
        health: HealthState::Healthy.into(),
        health_description: "Healthy".to_owned(),
        err: String::new(),
    }
}

/// Returns the fingerprint of a host whose daemon does not answer: its tasks stay, and it gets no others.
pub fn unhealthy(why: String) -> FingerprintResponse {
    FingerprintResponse {
        health: HealthState::Unhealthy.into(),
        health_description: why,
        ..FingerprintResponse::default()
    }
}
