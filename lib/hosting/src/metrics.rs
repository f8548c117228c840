//! The counters of an instance: of its NF, its engine, its doorbell and its ports.

use nfluid_nf::{Metric, NetworkFunction};
use nfluid_ring::attach::Attached;
use nfluid_ring::engine::Engine;
use nfluid_ring::port::Port;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Returns all counters, as the value of the answer to `Request::Metrics`.
pub fn of(nf: &dyn NetworkFunction, engine: &Engine, attached: &Attached) -> Value {
    let mut metrics = Map::new();
    nf.metrics(&mut |metric: Metric| {
        metrics.insert(metric_name(&metric), json!(metric.value));
    });
    let engine = engine.stats();
    let doorbell = attached.doorbell.stats();
    let ports: Vec<Value> = attached.ports.iter().map(of_port).collect();
    json!({
        "nf": metrics,
        "engine": {
            "received": engine.received,
            "forwarded": engine.forwarded,
            "discarded": engine.discarded,
            "no_such_port": engine.no_such_port,
            "no_room": engine.no_room,
            "batches": engine.batches,
        },
        "doorbell": {
            "sleeps": doorbell.sleeps,
            "wakes": doorbell.wakes,
            "unrung": doorbell.unrung,
            "spurious": doorbell.spurious,
            "spins_hit": doorbell.spins_hit,
        },
        "ports": ports,
    })
}

/// Returns the counters of the port library.
fn of_port(port: &Port) -> Value {
    let stats = port.stats();
    json!({
        "port": port.entry().name(),
        "calls": stats.calls,
        "rings": stats.rings,
        "tx_no_slot": stats.tx_no_slot,
        "tx_errors": stats.tx_errors,
    })
}

/// Returns the name with its labels, as Prometheus writes it.
fn metric_name(metric: &Metric) -> String {
    if metric.labels.is_empty() {
        return metric.name.clone().into_owned();
    }
    let label = |(name, value): &(Cow<'_, str>, String)| {
        format!(
            "{name}=\"{}\"",
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        )
    };
    let labels: Vec<String> = metric.labels.iter().map(label).collect();
    format!("{}{{{}}}", metric.name, labels.join(","))
}
