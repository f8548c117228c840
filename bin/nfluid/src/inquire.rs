//! `nfluid stats`, `command`, `restart`, `doctor`, `version`.

use crate::args::{CommandArgs, DoctorArgs, Format, RestartArgs, StatsArgs, VersionArgs};
use crate::failure::Failure;
use crate::get::drops_text;
use crate::screen::{Screen, Style, Table, printable, printable_lines, short_bytes};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::{Check, CheckStatus, CommandRequest, DoctorReport, Stats, Version};
use serde_json::{Value, json};

pub async fn stats(client: &Client, screen: Screen, args: &StatsArgs) -> Result<(), Failure> {
    let stats: Stats = client.get("/v1/stats").await?;
    screen.object(args.output, &stats, || {
        screen.table(&port_counters(&stats))?;
        screen.line("")?;
        screen.table(&instance_counters(&stats))?;
        for instance in &stats.instances {
            for (name, value) in &instance.metrics {
                let text = format!("{} {name} {value}", instance.name);
                screen.line(&printable(text))?;
            }
        }
        Ok(())
    })
}

fn port_counters(stats: &Stats) -> Table {
    let mut table = Table::new(&[
        "PORT", "RX", "RX BYTES", "TX", "TX BYTES", "CALLS", "MARKED", "DROPS",
    ]);
    for port in &stats.ports {
        let counters = &port.counters;
        table.row([
            port.name.clone(),
            counters.rx_packets.to_string(),
            counters.rx_bytes.to_string(),
            counters.tx_packets.to_string(),
            counters.tx_bytes.to_string(),
            port.calls.map_or_else(|| "-".into(), |n| n.to_string()),
            counters.marked_packets.to_string(),
            drops_text(counters).unwrap_or_else(|| "-".into()),
        ]);
    }
    table
}

fn instance_counters(stats: &Stats) -> Table {
    let mut table = Table::new(&["INSTANCE", "CPU SECONDS", "MEMORY", "RESTARTS"]);
    for instance in &stats.instances {
        table.row([
            instance.name.clone(),
            format!("{:.3}", instance.cpu_ns as f64 / 1e9),
            instance
                .memory_bytes
                .map_or_else(|| "-".into(), short_bytes),
            instance.restarts.to_string(),
        ]);
    }
    table
}

pub async fn command(client: &Client, screen: Screen, args: &CommandArgs) -> Result<(), Failure> {
    let request = CommandRequest {
        name: args.command.clone(),
        args: args.args.clone(),
    };
    let response = client.command(&args.instance, &request).await?;
    match response.output {
        Value::String(text) => screen.line(&printable_lines(&text)),
        output => screen.print(&nfluid_control::yaml::to_text(&output)),
    }
}

pub async fn restart(client: &Client, screen: Screen, args: &RestartArgs) -> Result<(), Failure> {
    client.restart(&args.instance).await?;
    screen.line(&format!("instance {} restarted", args.instance))
}

pub async fn doctor(client: &Client, screen: Screen, args: &DoctorArgs) -> Result<(), Failure> {
    let report = match client.get("/v1/doctor").await {
        Ok(report) => report,
        Err(error @ (ClientError::NotRunning(_) | ClientError::NotPermitted(_))) => {
            without_daemon(error)
        }
        Err(error) => return Err(error.into()),
    };
    screen.object(args.output, &report, || print_checks(screen, &report))?;
    if report.worst() == CheckStatus::Fail {
        return Err(Failure::Reported);
    }
    Ok(())
}

/// Checks what can be checked without the daemon.
fn without_daemon(error: ClientError) -> DoctorReport {
    let daemon = match Failure::from(error) {
        Failure::NotReachable(text) | Failure::NotPermitted(text) => text,
        other => format!("{other:?}"),
    };
    let (detail, remedy) = daemon.split_once("\n  help: ").unwrap_or((&daemon, ""));
    let mut checks = vec![Check {
        name: "daemon".into(),
        status: CheckStatus::Fail,
        detail: detail.into(),
        remedy: remedy.into(),
    }];
    checks.extend(nfluid_sandbox::probe().into_iter().map(Check::from));
    DoctorReport { checks }
}

fn print_checks(screen: Screen, report: &DoctorReport) -> Result<(), Failure> {
    for check in &report.checks {
        let (word, style) = match check.status {
            CheckStatus::Ok => ("ok  ", Style::Green),
            CheckStatus::Warn => ("warn", Style::Yellow),
            CheckStatus::Fail => ("FAIL", Style::Red),
            CheckStatus::Skipped => ("skip", Style::Dim),
        };
        let word = screen.styled(style, word);
        let line = printable(format!("{}: {}", check.name, check.detail));
        screen.line(&format!("{word}  {line}"))?;
        if !check.remedy.is_empty() {
            screen.line(&format!("      help: {}", printable(check.remedy.clone())))?;
        }
    }
    Ok(())
}

pub async fn version(client: &Client, screen: Screen, args: &VersionArgs) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let daemon: Result<Version, ClientError> = client.get("/v1/version").await;
    let object = json!({"client": own, "daemon": daemon.as_ref().ok()});
    if args.output != Format::Table {
        return screen.object(args.output, &object, || Ok(()));
    }
    screen.line(&format!("nfluid  {own}"))?;
    match daemon {
        Ok(version) => {
            screen.line(&format!("nfluidd {}, API {}", version.version, version.api))?;
            screen.line(&format!("kernel  {}", version.kernel))?;
            for form in version.data_plane {
                screen.line(&format!("        {}", printable(form)))?;
            }
            Ok(())
        }
        Err(_) => screen.line("nfluidd not reachable"),
    }
}
