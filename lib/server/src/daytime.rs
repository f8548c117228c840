//! The daytime protocol (RFC 867, over TCP): whoever connects is told what time it is.

use crate::config::Endpoint;
use crate::server::{Server, Surroundings};
use crate::service::{Answer, Service, UnixTime};
use alloc::boxed::Box;
use alloc::format;
use nfluid_nf::{ConfigError, NetworkFunction, PortInfo};
use serde_json::Value;
use time::OffsetDateTime;

/// The service.
struct Daytime;

/// Builds a server.
///
/// # Errors
/// The configuration has a value that cannot be used, or there is not one port.
pub fn build(
    config: &Value,
    ports: &[PortInfo],
    surroundings: Surroundings,
) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Ok(Box::new(Server::<Daytime>::new(
        config,
        ports,
        surroundings,
    )?))
}

impl Service for Daytime {
    const PORT: u16 = 13;
    /// "Any data received is thrown away."
    const LONGEST_REQUEST: usize = 0;

    fn parse(config: &Value) -> Result<(Endpoint, Self), ConfigError> {
        Ok((nfluid_nf::config::parse(config)?, Daytime))
    }

    fn answer(&self, now: UnixTime, _said: &[u8]) -> Answer {
        Answer::Say {
            bytes: line(now).into_bytes(),
            understood: 0,
            closes: true,
        }
    }
}

/// The line in the first form of RFC 867: `Thursday, November 26, 2026 23:14:53-UTC`.
fn line(now: UnixTime) -> alloc::string::String {
    let seconds = i64::try_from(now.0).unwrap_or(i64::MAX);
    // Beyond the year 9999 there is no such line.
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second) = time.to_hms();
    format!(
        "{}, {} {}, {} {hour:02}:{minute:02}:{second:02}-UTC\r\n",
        time.weekday(),
        time.month(),
        time.day(),
        time.year()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_date_prints() {
        let lines = [
            (0, "Thursday, January 1, 1970 00:00:00-UTC\r\n"),
            (951_782_399, "Monday, February 28, 2000 23:59:59-UTC\r\n"),
            (951_782_400, "Tuesday, February 29, 2000 00:00:00-UTC\r\n"),
            (
                1_795_735_000,
                "Thursday, November 26, 2026 23:16:40-UTC\r\n",
            ),
            (u64::MAX, "Thursday, January 1, 1970 00:00:00-UTC\r\n"),
        ];
        for (seconds, text) in lines {
            assert_eq!(line(UnixTime(seconds)), text);
        }
    }
}
