//! The restart policy of an instance.

use crate::quantity::{Millis, ValueError, serialize_as_text};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The restart policy of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// The ends that cause a restart.
    pub policy: RestartPolicy,
    /// The wait before a restart.
    pub backoff: Backoff,
    /// Consecutive restarts after which the instance is not restarted again; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// A run of this length ends the sequence of restarts: the next wait is the shortest again.
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

/// The ends that cause a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Every end.
    #[default]
    Always,
    /// An end with an error or by a signal.
    OnFailure,
    /// No end.
    Never,
}

/// The wait before a restart, doubled each time: `100ms..10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the first restart.
    pub shortest: Millis,
    /// The maximum wait.
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
