//! OpenStack's messages, as `integrations/openstack/lab/trace.py` writes them from RabbitMQ, and the logs of nova-api and nova-compute.

use crate::trace::{Run, values};
use std::collections::HashMap;

/// Times in the logs that no message has.
#[derive(Debug, Default)]
pub struct Logs {
    /// When requests for servers came in, by the requests' ids.
    asked: HashMap<String, f64>,
    /// When nfluid's driver began and ended to make a server, by the server's id.
    made: HashMap<String, (f64, f64)>,
}

impl Logs {
    /// Reads a log of nova-api or nova-compute; its times are UTC.
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            let Some(ended) = time_of(line) else { continue };
            if let Some(took_s) = after(line, "\"POST /v2.1/servers\"", " time: ")
                .or_else(|| after(line, "\"POST /v2.1/servers HTTP/", " time: "))
                && let Some(request) = word_from(line, "req-")
            {
                self.asked.insert(request.to_owned(), ended - took_s * 1e3);
            }
            if let Some(took_ms) = after(line, "[instance: ", "spawned in ")
                && let Some((_, rest)) = line.split_once("[instance: ")
                && let Some((server, _)) = rest.split_once(']')
            {
                self.made
                    .insert(server.to_owned(), (ended - took_ms, ended));
            }
        }
    }
}

/// Returns the number behind `mark` in a line that has `kind` before it.
fn after(line: &str, kind: &str, mark: &str) -> Option<f64> {
    let (_, rest) = line.split_once(kind)?;
    let (_, number) = rest.split_once(mark)?;
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.');
    number[..end.unwrap_or(number.len())].parse().ok()
}

/// Returns the word of a line that begins with `beginning`.
fn word_from<'l>(line: &'l str, beginning: &str) -> Option<&'l str> {
    let word = &line[line.find(beginning)?..];
    let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    Some(&word[..end.unwrap_or(word.len())])
}

/// Returns the time with which a line of OpenStack's logs begins, `2026-11-30 05:12:32.345`, in milliseconds since 1970.
fn time_of(line: &str) -> Option<f64> {
    let time = line.get(..23)?.replacen(' ', "T", 1) + "Z";
    crate::trace::time_ms(&time.into())
}

/// The messages of a request.
#[derive(Debug, Default)]
struct Request {
    server: Option<String>,
    /// When messages of a method were sent, the first of each.
    sent: HashMap<String, f64>,
    /// When the scheduler has answered.
    chosen: Option<f64>,
}

/// Returns the servers that are active, with the phases until then.
///
/// # Errors
/// The text is no trace.
pub fn runs(text: &str, logs: &Logs) -> anyhow::Result<Vec<Run>> {
    let mut requests: HashMap<String, Request> = HashMap::new();
    // The requests of calls to the scheduler, by the ids of these calls.
    let mut questions: HashMap<String, String> = HashMap::new();
    let mut order = Vec::new();
    for message in values(text)? {
        let Some(at) = message["t"].as_f64().map(|seconds| seconds * 1e3) else {
            continue;
        };
        let asked = message["answers"].as_str();
        let asked = asked.and_then(|id| questions.get(id));
        if let Some(request) = asked.and_then(|id| requests.get_mut(id)) {
            request.chosen.get_or_insert(at);
        }
        let (Some(id), Some(method)) = (message["request"].as_str(), message["method"].as_str())
        else {
            continue;
        };
        if method == "schedule_and_build_instances" {
            order.push(id.to_owned());
        }
        let request = requests.entry(id.to_owned()).or_default();
        request.sent.entry(method.to_owned()).or_insert(at);
        if method == "build_and_run_instance" {
            request.server = message["server"].as_str().map(str::to_owned);
        }
        if method == "select_destinations"
            && let Some(question) = message["id"].as_str()
        {
            questions.insert(question.to_owned(), id.to_owned());
        }
    }
    Ok(order
        .iter()
        .filter_map(|id| run(id, requests.get(id)?, logs))
        .collect())
}

fn run(id: &str, request: &Request, logs: &Logs) -> Option<Run> {
    let at = |method: &str| request.sent.get(method).copied();
    let taken = at("schedule_and_build_instances")?;
    // Nova tells everybody when a server is active; without notifications it tells the scheduler's cache right after it.
    let active = at("instance.create.end").or_else(|| at("update_instance_info"))?;
    let server = request.server.as_deref()?;
    let mut run = Run::new(server, *logs.asked.get(id).unwrap_or(&taken));
    run.end_of("nova-api", logs.asked.contains_key(id).then_some(taken));
    run.end_of("scheduler, placement", request.chosen);
    run.end_of("conductor", at("build_and_run_instance"));
    let made = logs.made.get(server);
    run.end_of("compute, neutron", made.map(|(begun, _)| *begun));
    run.end_of("driver, nfluid", made.map(|(_, ended)| *ended));
    let rest = if made.is_some() {
        "compute tells"
    } else {
        "compute, neutron, driver"
    };
    run.end_of(rest, Some(active));
    Some(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SERVER: &str = "658237d5-ba09-4131-8b3b-ba3428e5e9de";

    fn trace() -> String {
        let message = |t: f64, method: Option<&str>, id: Option<&str>, answers: Option<&str>| {
            let is_call = method.is_some();
            json!({ "t": t, "method": method, "id": id, "answers": answers,
                "server": is_call.then_some(SERVER), "request": is_call.then_some("req-7788ce1b") })
        };
        let messages = [
            message(100.0, Some("schedule_and_build_instances"), None, None),
            message(100.01, Some("select_destinations"), Some("e791f7"), None),
            message(100.02, Some("object_action"), Some("aaa"), None),
            message(100.03, None, None, Some("aaa")),
            message(100.2, None, None, Some("e791f7")),
            message(100.3, Some("build_and_run_instance"), None, None),
            message(101.2, Some("update_instance_info"), None, None),
        ];
        messages.iter().map(|it| format!("{it}\n")).collect()
    }

    fn phases(logs: &Logs) -> Vec<(&'static str, f64)> {
        let found = runs(&trace(), logs).expect("a trace");
        assert_eq!((found.len(), found[0].name.as_str()), (1, SERVER));
        let marks = found[0].marks.iter();
        marks
            .map(|(name, at)| (*name, (at - 100_000.0).round()))
            .collect()
    }

    // promise: 28.1
    #[test]
    fn the_phases_of_a_server_are_those_of_the_messages_and_logs() {
        assert_eq!(
            phases(&Logs::default()),
            [
                ("", 0.0),
                ("scheduler, placement", 200.0),
                ("conductor", 300.0),
                ("compute, neutron, driver", 1200.0)
            ]
        );
        let mut logs = Logs::default();
        logs.read(&format!(
            "1970-01-01 00:01:40.010 1 INFO nova.api.openstack.requestlog [None req-7788ce1b - -] 127.0.0.1 \"POST /v2.1/servers\" status: 202 len: 1 time: 0.190\n\
             1970-01-01 00:01:41.130 2 INFO nova.virt.nfluid.driver [None req-7788ce1b] [instance: {SERVER}] spawned in 30.5 ms\n\
             nonsense \u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\n"
        ));
        assert_eq!(
            phases(&logs),
            [
                ("", -180.0),
                ("nova-api", 0.0),
                ("scheduler, placement", 200.0),
                ("conductor", 300.0),
                ("compute, neutron", 1100.0),
                ("driver, nfluid", 1130.0),
                ("compute tells", 1200.0)
            ]
        );
    }

    #[test]
    fn a_request_that_was_cut_off_is_no_run() {
        let text = trace();
        let lines: Vec<&str> = text.lines().collect();
        for length in 0..lines.len() {
            let found = runs(&lines[..length].join("\n"), &Logs::default()).expect("a trace");
            assert_eq!(found, [], "{length} messages");
        }
        runs("nonsense", &Logs::default()).expect_err("no JSON");
        let one: Value = json!({ "t": "x", "method": 1 });
        assert_eq!(runs(&one.to_string(), &Logs::default()).expect("JSON"), []);
    }
}
