//! `nfluid events` and `nfluid logs`.

use crate::args::{EventsArgs, Format, LogsArgs};
use crate::failure::Failure;
use crate::screen::{Screen, Table, printable};
use nfluid_api::client::Client;
use nfluid_api::types::Event;
use std::time::Duration;

/// How long one request waits for an event.
const EVENT_WAIT: Duration = Duration::from_secs(30);

/// Time between two looks for new log lines.
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

/// A time in milliseconds since 1970 as UTC (RFC 3339). Days to dates by Hinnant's algorithm
/// "civil_from_days" (howardhinnant.github.io/date_algorithms.html).
pub fn utc(time_ms: u64) -> String {
    let (days, seconds) = (time_ms / 86_400_000, time_ms / 1_000 % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let ms = time_ms % 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
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

/// One event in one line, but for YAML.
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

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_written_as_rfc_3339() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_700_000_000_001), "2023-11-14T22:13:20.001Z");
        assert_eq!(utc(4_102_444_799_999), "2099-12-31T23:59:59.999Z");
    }
}
