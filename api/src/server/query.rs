//! Query parameters.

use serde::Deserialize;
use utoipa::IntoParams;

/// Parameters of requests that change something.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangeQuery {
    /// Validate and plan, change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Parameters of requests that remove an instance.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemovalQuery {
    /// Validate and plan, change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Remove the links of its ports as well.
    #[serde(default)]
    pub with_links: bool,
}

/// Parameters of requests for events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Position after which events are wanted; 0 for all that are kept.
    #[serde(default)]
    pub since: u64,
    /// How long to wait for an event if there is none yet, in milliseconds; at most 60,000.
    #[serde(default)]
    #[param(maximum = 60000)]
    pub wait_ms: u64,
}

/// Parameters of requests for logs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Position after which lines are wanted; 0 for all that are kept.
    #[serde(default)]
    pub since: u64,
    /// Number of lines from the end; at most 10,000.
    #[param(maximum = 10000)]
    pub tail: Option<u32>,
}
