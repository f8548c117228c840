//! `nfluid events` and `nfluid logs`.

use crate::args::{EventsArgs, Format, LogsArgs};
use crate::failure::Failure;
use crate::screen::{Screen, Table, printable};
use nfluid_api::client::Client;
use nfluid_api::time::utc;
use nfluid_api::types::Event;
use std::time::Duration;

/// Maximum time that one request waits for an event.
const EVENT_WAIT: Duration = Duration::from_secs(30);

/// Interval at which new log lines are requested.
const LOG_INTERVAL: Duration = Duration::from_millis(300);

const HEADINGS: &[&str] = &["TIME", "KIND", "OBJECT", "MESSAGE"];

pub fn events_table(events: &[Event]) -> Table {
    let mut table = Table::new(HEADINGS);
    for event in events {
        table.row(cells(event));
    }
    table
}

fn cells(event: &Event) -> [String; 4] {
    let object = match event.object {
        Some(kind) => format!("{kind} {}", event.name),
        None => "-".into(),
    };
    [
        utc(event.time_ms),
        event.kind.to_string(),
        object,
        event.message.clone(),
    ]
}

pub async fn events(client: &Client, screen: Screen, args: &EventsArgs) -> Result<(), Failure> {
    let mut page = client.events(0, Duration::ZERO).await?;
    if !args.follow {
        let events = &page.events;
        return screen.object(args.output, events, || screen.table(&events_table(events)));
    }
    loop {
        if page.missed > 0 {
            screen.line(&format!("({} events were not kept)", page.missed))?;
        }
        for event in &page.events {
            print_event(screen, args.output, event)?;
        }
        page = client.events(page.next, EVENT_WAIT).await?;
    }
}

/// Prints one event, in one line except for YAML.
fn print_event(screen: Screen, format: Format, event: &Event) -> Result<(), Failure> {
    match format {
        Format::Json => screen.line(&serde_json::to_string(event)?),
        Format::Yaml => {
            let events = serde_json::to_value([event])?;
            screen.print(&nfluid_control::yaml::to_text(&events))
        }
        Format::Table => {
            let [time, kind, object, message] = cells(event).map(printable);
            screen.line(&format!("{time}  {kind:<14}  {object:<20}  {message}"))
        }
    }
}

pub async fn logs(client: &Client, screen: Screen, args: &LogsArgs) -> Result<(), Failure> {
    let mut logs = client.logs(&args.instance, 0, args.tail).await?;
    loop {
        for line in logs.lines {
            screen.line(&printable(line))?;
        }
        if !args.follow {
            return Ok(());
        }
        tokio::time::sleep(LOG_INTERVAL).await;
        logs = client.logs(&args.instance, logs.next, None).await?;
    }
}
