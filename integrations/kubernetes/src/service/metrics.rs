//! The figures of pods and node that `kubectl top` and autoscalers read, in the form of a kubelet's `/metrics/resource`.

use crate::cluster::uid;
use crate::pods::Pods;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use kube::ResourceExt as _;
use nfluid_api::client::ClientError;
use nfluid_api::types::{InstanceStatus, Stats};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

/// CPU time in seconds and memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    cpu: f64,
    memory: u64,
}

impl std::ops::AddAssign for Used {
    fn add_assign(&mut self, other: Used) {
        self.cpu += other.cpu;
        self.memory += other.memory;
    }
}

/// A container's figures.
#[derive(Debug)]
struct Row {
    namespace: String,
    pod: String,
    container: String,
    used: Used,
    started_s: f64,
}

/// Answers a request for the figures.
pub async fn resource(State(pods): State<Arc<Pods>>) -> Response {
    match rows(&pods).await {
        Ok((rows, all)) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ([("content-type", kind)], text(&rows, all)).into_response()
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn rows(pods: &Pods) -> Result<(Vec<Row>, Used), ClientError> {
    let stats: Stats = pods.daemon.get("/v1/stats").await?;
    let instances: Vec<InstanceStatus> = pods.daemon.get("/v1/instances").await?;
    let by_name: HashMap<_, _> = instances.iter().map(|it| (it.name.as_str(), it)).collect();
    let state = pods.store.state();
    let by_uid: HashMap<_, _> = state.iter().map(|pod| (uid(pod), pod)).collect();
    let mut all = Used::default();
    let mut rows = Vec::new();
    for stats in &stats.instances {
        let used = Used {
            cpu: stats.cpu_ns as f64 / 1e9,
            memory: stats.memory_bytes.unwrap_or(0),
        };
        all += used;
        let Some(instance) = by_name.get(stats.name.as_str()) else {
            continue;
        };
        let owner = instance
            .owner
            .as_deref()
            .and_then(|owner| pods.place.pod_of(owner));
        let Some((uid, container)) = owner else {
            continue;
        };
        let Some(pod) = by_uid.get(uid) else { continue };
        rows.push(Row {
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            container: container.to_owned(),
            used,
            started_s: instance.started_ms.unwrap_or(0) as f64 / 1e3,
        });
    }
    Ok((rows, all))
}

/// Returns the figures in Prometheus' text format. Names of Kubernetes' objects need no escapes.
fn text(rows: &[Row], node: Used) -> String {
    let mut pods = BTreeMap::<_, Used>::new();
    for row in rows {
        *pods
            .entry((row.namespace.as_str(), row.pod.as_str()))
            .or_default() += row.used;
    }
    let of_container = |figure: &dyn Fn(&Row) -> f64| {
        let lines = rows.iter().map(|row| {
            let labels = format!(
                "{{container=\"{}\",namespace=\"{}\",pod=\"{}\"}}",
                row.container, row.namespace, row.pod
            );
            (labels, figure(row))
        });
        lines.collect::<Vec<_>>()
    };
    let of_pod = |figure: &dyn Fn(&Used) -> f64| {
        let lines = pods.iter().map(|((namespace, pod), used)| {
            (
                format!("{{namespace=\"{namespace}\",pod=\"{pod}\"}}"),
                figure(used),
            )
        });
        lines.collect::<Vec<_>>()
    };
    let one = |value: f64| vec![(String::new(), value)];
    let metrics = [
        (
            "container_cpu_usage_seconds_total",
            "counter",
            of_container(&|row| row.used.cpu),
        ),
        (
            "container_memory_working_set_bytes",
            "gauge",
            of_container(&|row| row.used.memory as f64),
        ),
        (
            "container_start_time_seconds",
            "gauge",
            of_container(&|row| row.started_s),
        ),
        (
            "pod_cpu_usage_seconds_total",
            "counter",
            of_pod(&|used| used.cpu),
        ),
        (
            "pod_memory_working_set_bytes",
            "gauge",
            of_pod(&|used| used.memory as f64),
        ),
        ("node_cpu_usage_seconds_total", "counter", one(node.cpu)),
        (
            "node_memory_working_set_bytes",
            "gauge",
            one(node.memory as f64),
        ),
        ("resource_scrape_error", "gauge", one(0.0)),
    ];
    let mut text = String::new();
    for (name, kind, lines) in metrics {
        let _infallible = writeln!(text, "# TYPE {name} {kind}");
        for (labels, value) in lines {
            let _infallible = writeln!(text, "{name}{labels} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_the_sum_of_its_containers() {
        let row = |container: &str, cpu, memory| Row {
            namespace: "lab".to_owned(),
            pod: "edge".to_owned(),
            container: container.to_owned(),
            used: Used { cpu, memory },
            started_s: 1.5,
        };
        let node = Used {
            cpu: 9.0,
            memory: 99,
        };
        let text = text(&[row("fw", 1.5, 10), row("nat", 2.0, 20)], node);
        for line in [
            "container_cpu_usage_seconds_total{container=\"fw\",namespace=\"lab\",pod=\"edge\"} 1.5",
            "container_start_time_seconds{container=\"nat\",namespace=\"lab\",pod=\"edge\"} 1.5",
            "pod_cpu_usage_seconds_total{namespace=\"lab\",pod=\"edge\"} 3.5",
            "pod_memory_working_set_bytes{namespace=\"lab\",pod=\"edge\"} 30",
            "node_memory_working_set_bytes 99",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in\n{text}");
        }
    }
}
