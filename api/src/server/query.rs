//! Query parameters.

use serde::Deserialize;
use utoipa::IntoParams;

/// Parameters of requests for changes.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangeQuery {
    /// Validates and plans, and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Parameters of requests that remove an instance.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemovalQuery {
    /// Validates and plans, and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Removes the links of the instance's ports as well.
    #[serde(default)]
    pub with_links: bool,
    /// Signal by which its program is asked to end, such as `SIGINT`, instead of what the instance says.
    pub stop_signal: Option<String>,
    /// Time in milliseconds after which the program is killed, instead of what the instance says.
    #[param(maximum = 90000)]
    pub stop_wait_ms: Option<u64>,
}

/// Parameters of requests for events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Position after which events are returned; 0 for all events that are kept.
    #[serde(default)]
    pub since: u64,
    /// Maximum time to wait for an event if none exists yet, in milliseconds; at most 60,000.
    #[serde(default)]
    #[param(maximum = 60000)]
    pub wait_ms: u64,
}

/// Parameters of requests for logs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Position after which lines are returned; 0 for all lines that are kept.
    #[serde(default)]
    pub since: u64,
    /// Number of lines from the end; at most 10,000.
    #[param(maximum = 10000)]
    pub tail: Option<u32>,
}
