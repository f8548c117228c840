//! `nfluid get slices`, `describe slice` and `trace slice`: slices as their instances tell of them.

use crate::args::{DescribeArgs, GetArgs, TraceSliceArgs};
use crate::failure::Failure;
use crate::screen::{Screen, Table, short_ns};
use nfluid_api::client::{Client, escaped};
use nfluid_api::types::{CommandRequest, InstanceStatus};
use nfluid_control::slices::NF;
use nfluid_dataflow::engine::UnitRun;
use nfluid_dataflow::engine::trace::{Bar, Mark, chrome, gantt, marks};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

/// Lists all slices, or those of one instance.
pub async fn get(client: &Client, screen: Screen, args: &GetArgs) -> Result<(), Failure> {
    let instances: Vec<InstanceStatus> = match &args.name {
        Some(name) => vec![of_name(client, name).await?.0],
        None => client.get("/v1/instances").await?,
    };
    let mut slices = Vec::new();
    for instance in instances.iter().filter(|instance| instance.nf == NF) {
        match ask(client, &instance.name, "slices", &[]).await {
            Ok(Value::Array(of_instance)) => {
                let named = of_instance.into_iter().map(|slice| named(instance, slice));
                slices.extend(named);
            }
            // An instance that does not answer is shown, with its state.
            Ok(_) | Err(_) => slices.push(named(instance, json!({}))),
        }
    }
    if let Some(name) = args.name.as_deref().and_then(|name| name.split_once('/')) {
        slices.retain(|slice| slice["name"] == name.1);
    }
    screen.object(args.output, &slices, || screen.table(&table(&slices)))
}

/// A slice with the instance that it runs in, which may tell anything of it.
fn named(instance: &InstanceStatus, told: Value) -> Value {
    let mut slice = if told.is_object() { told } else { json!({}) };
    slice["instance"] = json!(instance.name);
    slice["state"] = json!(instance.state.to_string());
    slice
}

fn table(slices: &[Value]) -> Table {
    let mut table = Table::new(&[
        "SLICE", "STATE", "GRAPH", "MODE", "PES", "INTERVAL", "DEADLINE", "DONE", "LATE", "FAILED",
        "REFUSED", "LOST", "P50", "P99",
    ]);
    for slice in slices {
        let text = |key: &str| slice[key].as_str().unwrap_or("-").to_owned();
        let count = |keys: &[&str]| {
            let counts: Option<Vec<u64>> = keys.iter().map(|key| slice[*key].as_u64()).collect();
            // An instance may tell any number.
            let sum = counts.map(|it| it.into_iter().fold(0, u64::saturating_add));
            sum.map_or_else(|| "-".to_owned(), |sum| sum.to_string())
        };
        let time = |key: &str, unit: u64| {
            let time = slice[key].as_u64();
            time.map_or_else(
                || "-".to_owned(),
                |time| short_ns(time.saturating_mul(unit)),
            )
        };
        let pes = slice["pes"].as_array().map_or_else(Vec::new, |pes| {
            pes.iter().map(Value::to_string).collect::<Vec<_>>()
        });
        table.row([
            slice_name(
                &text("instance"),
                slice["name"].as_str().unwrap_or(&text("instance")),
            ),
            text("state"),
            text("graph"),
            text("mode"),
            pes.join(","),
            time("interval_us", 1000),
            time("deadline_us", 1000),
            count(&["done"]),
            count(&["late"]),
            count(&["failed", "hung"]),
            count(&["refused", "overrun"]),
            count(&["incomplete", "missing"]),
            time("makespan_p50_ns", 1),
            time("makespan_p99_ns", 1),
        ]);
    }
    table
}

/// The name by which commands take a slice: the instance's, if the slice has the same.
pub fn slice_name(instance: &str, slice: &str) -> String {
    match slice == instance {
        true => instance.to_owned(),
        false => format!("{instance}/{slice}"),
    }
}

/// Shows everything about one slice.
pub async fn describe(client: &Client, screen: Screen, args: &DescribeArgs) -> Result<(), Failure> {
    let (instance, slice) = of_name(client, &args.name).await?;
    let slice = ask(client, &instance.name, "slice", &[&slice]).await?;
    screen.print(&nfluid_control::yaml::to_text(&named(&instance, slice)))
}

/// Finds the instance of `INSTANCE` or `INSTANCE/SLICE`. Returns it with the slice's name.
async fn of_name(client: &Client, name: &str) -> Result<(InstanceStatus, String), Failure> {
    let (instance, slice) = name.split_once('/').unwrap_or((name, name));
    let found: InstanceStatus = client
        .get(&format!("/v1/instances/{}", escaped(instance)))
        .await?;
    if found.nf != NF {
        return Err(Failure::operation(
            format!(
                "the instance {instance} has no slices: its NF is {}",
                found.nf
            ),
            "'nfluid get slices' lists all slices",
        ));
    }
    Ok((found, slice.to_owned()))
}

async fn ask(
    client: &Client,
    instance: &str,
    command: &str,
    args: &[&str],
) -> Result<Value, Failure> {
    let request = CommandRequest {
        name: command.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
    };
    Ok(client.command(instance, &request).await?.output)
}

/// The runs of recent intervals, as an instance tells of them: it may lie, and all numbers are good.
#[derive(Deserialize)]
struct Traced {
    intervals: Vec<TracedInterval>,
}

#[derive(Deserialize)]
struct TracedInterval {
    ticket: u64,
    taken_ns: u64,
    ended_ns: u64,
    /// Unit, kind, PE, begin and duration.
    runs: Vec<(u32, u16, u16, u64, u64)>,
}

/// Writes a trace of recent intervals.
pub async fn trace(client: &Client, screen: Screen, args: &TraceSliceArgs) -> Result<(), Failure> {
    let (instance, slice) = of_name(client, &args.name).await?;
    let intervals = args.intervals.to_string();
    let answer = ask(client, &instance.name, "trace", &[&slice, &intervals]).await?;
    let traced: Traced = serde_json::from_value(answer).map_err(|error| {
        Failure::operation(format!("the instance's trace cannot be read: {error}"), "")
    })?;
    let (bars, marks) = drawn(&traced);
    write(&args.write, &chrome(&bars, &marks))?;
    let mut written = args.write.display().to_string();
    if let Some(path) = &args.gantt {
        write(path, &gantt(&bars, &marks))?;
        written = format!("{written} and {}", path.display());
    }
    let (intervals, runs) = (traced.intervals.len(), bars.len());
    screen.line(&format!(
        "{runs} runs of {intervals} intervals written to {written}"
    ))
}

fn drawn(traced: &Traced) -> (Vec<Bar>, Vec<Mark>) {
    let (mut bars, mut moments) = (Vec::new(), Vec::new());
    for interval in &traced.intervals {
        let ticket = interval.ticket;
        moments.extend(marks(ticket, interval.taken_ns, interval.ended_ns));
        bars.extend(interval.runs.iter().map(|&(unit, kind, pe, start, took)| {
            let pe = usize::from(pe);
            Bar::of(
                ticket,
                kind,
                UnitRun {
                    unit,
                    pe,
                    start,
                    took,
                },
            )
        }));
    }
    bars.sort_by_key(|bar| (bar.pe, bar.start));
    (bars, moments)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure::operation(format!("cannot write {}: {error}", path.display()), "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches: an instance that lies makes the command line panic, or writes to the terminal what it likes.
    #[test]
    fn an_instance_may_tell_anything_of_its_slices() {
        let most = u64::MAX;
        let slice = json!({
            "instance": "i", "name": "\u{1b}[2J", "graph": 7, "pes": [{ "a": [] }], "interval_us": most,
            "failed": most, "hung": most, "refused": -1, "makespan_p99_ns": most,
        });
        let told = [slice, json!([1]), json!("text"), Value::Null];
        let table = table(&told.map(|told| named(&InstanceStatus::default(), told)));
        let text = table.text(str::to_owned);
        assert!(
            text.contains(&most.to_string()) && !text.contains('\u{1b}'),
            "{text}"
        );
        let traced: Traced = serde_json::from_value(json!({
            "intervals": [
                { "ticket": most, "taken_ns": most, "ended_ns": 0, "runs": [[u32::MAX, u16::MAX, u16::MAX, most, most]] },
                { "ticket": 0, "taken_ns": 0, "ended_ns": most, "runs": [[0, 0, 0, 0, 0]] },
            ],
        }))
        .expect("numbers");
        let (bars, marks) = drawn(&traced);
        let json: Value = serde_json::from_str(&chrome(&bars, &marks)).expect("JSON");
        assert_eq!(json["traceEvents"].as_array().map(Vec::len), Some(6));
        assert!(gantt(&bars, &marks).ends_with("</svg>\n"));
    }
}
