//! What happens when an instance ends.

use crate::quantity::{Millis, ValueError, serialize_as_text};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// What happens when an instance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// When to start it again.
    pub policy: RestartPolicy,
    /// How long to wait before.
    pub backoff: Backoff,
    /// Restarts in a row after which it is given up; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// A run of this length ends the row: the wait starts anew from the shortest.
    pub healthy: Millis,
}

impl Default for Restart {
    fn default() -> Self {
        Restart {
            policy: RestartPolicy::Always,
            backoff: Backoff {
                shortest: Millis(10),
                longest: Millis::secs(10),
            },
            max: None,
            healthy: Millis::secs(30),
        }
    }
}

/// When to start an ended instance again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Whenever it ends.
    #[default]
    Always,
    /// When it ends with an error or is killed.
    OnFailure,
    /// Never.
    Never,
}

/// The wait before a restart, doubled each time: `100ms..10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Before the first restart.
    pub shortest: Millis,
    /// At most.
    pub longest: Millis,
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.shortest, self.longest)
    }
}

impl FromStr for Backoff {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write the shortest and the longest wait, for example 100ms..10s";
        let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
        let backoff = Backoff {
            shortest: shortest.parse()?,
            longest: longest.parse()?,
        };
        if backoff.shortest.0 == 0 {
            return Err(ValueError::new(
                "a wait of nothing would restart without a pause",
                remedy,
            ));
        }
        if backoff.shortest > backoff.longest {
            return Err(ValueError::new(
                format!("in '{text}' the shortest wait is longer than the longest"),
                remedy,
            ));
        }
        Ok(backoff)
    }
}

serialize_as_text!(Backoff);
