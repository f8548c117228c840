//! Nomad's event stream: jobs, evaluations and allocations as they change.

use crate::instances::Starts;
use crate::trace::{Run, ns_in_ms, values};
use serde_json::Value;
use std::collections::HashMap;

/// What the stream says of a job and of its first allocation.
#[derive(Debug, Default)]
struct Job {
    submitted: Option<f64>,
    evaluated: Option<f64>,
    allocation: Option<String>,
    allocated: Option<f64>,
    /// By the kind of the event, the earliest of all tasks; of `Started`, the latest.
    events: HashMap<String, f64>,
    /// When the servers knew that it runs.
    told: Option<f64>,
}

/// Returns the jobs that run, with the phases until then.
///
/// # Errors
/// It is no event stream.
pub fn runs(text: &str, starts: &Starts) -> anyhow::Result<Vec<Run>> {
    let mut jobs: HashMap<String, Job> = HashMap::new();
    let mut order = Vec::new();
    for page in values(text)? {
        for event in page["Events"].as_array().into_iter().flatten() {
            let payload = &event["Payload"];
            let (job, evaluation, allocation) = (
                &payload["Job"],
                &payload["Evaluation"],
                &payload["Allocation"],
            );
            if let Some(id) = job["ID"].as_str() {
                let known = jobs.entry(id.to_owned()).or_default();
                if known.submitted.is_none() {
                    known.submitted = ns_in_ms(&job["SubmitTime"]);
                    order.push(id.to_owned());
                }
            }
            if let Some(id) = evaluation["JobID"].as_str() {
                let known = jobs.entry(id.to_owned()).or_default();
                known.evaluated = known.evaluated.or(ns_in_ms(&evaluation["CreateTime"]));
            }
            if let Some(id) = allocation["JobID"].as_str() {
                note(jobs.entry(id.to_owned()).or_default(), allocation);
            }
        }
    }
    let run = |id: &String| {
        let job = jobs.get(id)?;
        let at = |kind: &str| job.events.get(kind).copied();
        let started = at("Started")?;
        let mut run = Run::new(id, job.submitted?);
        run.end_of("API", job.evaluated);
        run.end_of("evaluation, plan", job.allocated);
        run.end_of("client poll", at("Received"));
        run.end_of("folders", at("Task Setup"));
        run.end_of("artifacts", at("Downloading Artifacts"));
        let own = job.allocation.as_deref().and_then(|id| starts.of(id));
        run.end_of("driver, nfluid", own);
        run.end_of(
            if own.is_some() {
                "driver tells"
            } else {
                "driver"
            },
            Some(started),
        );
        run.end_of("servers are told", job.told);
        Some(run)
    };
    Ok(order.iter().filter_map(run).collect())
}

fn note(job: &mut Job, allocation: &Value) {
    let id = allocation["ID"].as_str().unwrap_or_default();
    // A later one takes the place of one that has failed, or stands beside it: the first one is the answer.
    if job.allocation.get_or_insert(id.to_owned()) != id {
        return;
    }
    job.allocated = job.allocated.or(ns_in_ms(&allocation["CreateTime"]));
    for task in allocation["TaskStates"].as_object().into_iter().flatten() {
        for event in task.1["Events"].as_array().into_iter().flatten() {
            if let (Some(kind), Some(at)) = (event["Type"].as_str(), ns_in_ms(&event["Time"])) {
                let known = job.events.entry(kind.to_owned()).or_insert(at);
                *known = if kind == "Started" {
                    known.max(at)
                } else {
                    known.min(at)
                };
            }
        }
    }
    if allocation["ClientStatus"] == "running" {
        job.told = job.told.or(ns_in_ms(&allocation["ModifyTime"]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // promise: 28.1
    #[test]
    fn the_phases_of_a_job_are_those_of_the_stream() {
        let ms = |ms: u64| ms * 1_000_000;
        let event = |kind: &str, at: u64| json!({ "Type": kind, "Time": ms(at) });
        let allocation = |id: &str, status: &str, events: Value, at: u64| {
            json!({ "Events": [{ "Payload": { "Allocation": {
                "ID": id, "JobID": "edge", "CreateTime": ms(106), "ModifyTime": ms(at), "ClientStatus": status,
                "TaskStates": { "fw": { "Events": events }, "nat": { "Events": [event("Started", 131)] } }
            } } }] })
        };
        let stream = [
            json!({}),
            json!({ "Events": [{ "Payload": { "Job": { "ID": "edge", "SubmitTime": ms(100) } } }] }),
            json!({ "Events": [{ "Payload": { "Evaluation": { "JobID": "edge", "CreateTime": ms(103) } } }] }),
            allocation("0b1c2d3e-4f50", "pending", json!(null), 107),
            allocation(
                "0b1c2d3e-4f50",
                "running",
                json!([
                    event("Received", 110),
                    event("Task Setup", 113),
                    event("Started", 130)
                ]),
                140,
            ),
            allocation("another", "running", json!([event("Received", 500)]), 600),
        ];
        let text: String = stream.iter().map(Value::to_string).collect();
        let found = runs(&text, &Starts::default()).expect("a stream");
        let phases: Vec<_> = found[0]
            .marks
            .iter()
            .map(|(name, at)| (*name, at - 100.0))
            .collect();
        let wanted = [
            ("", 0.0),
            ("API", 3.0),
            ("evaluation, plan", 6.0),
            ("client poll", 10.0),
            ("folders", 13.0),
            ("driver", 31.0),
            ("servers are told", 40.0),
        ];
        assert_eq!(phases, wanted);
    }
}
