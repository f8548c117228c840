//! The ends of tasks.

use crate::protocol::drivers::ExitResult;
use nfluid_api::types::ExitStatus;
use std::time::SystemTime;

/// The end of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The end as numbers.
    pub result: ExitResult,
    /// The reason, if the task did not end by itself.
    pub why: String,
    /// The time at which the driver was told.
    pub at: SystemTime,
}

impl End {
    /// Returns the end of a task that was stopped.
    pub fn stopped() -> Self {
        End {
            result: ExitResult::default(),
            why: String::new(),
            at: SystemTime::now(),
        }
    }

    /// Returns the end of a task whose instance is lost.
    pub fn lost(why: impl Into<String>) -> Self {
        End {
            result: ExitResult {
                exit_code: 1,
                ..ExitResult::default()
            },
            why: why.into(),
            at: SystemTime::now(),
        }
    }

    /// Returns the end of a task whose instance has ended in this way.
    pub fn of_instance(exit: Option<ExitStatus>, how: Option<String>) -> Self {
        let exit = exit.unwrap_or_default();
        let is_told = exit.status.is_some() || exit.signal.is_some();
        let why = if is_told { None } else { how };
        End {
            result: ExitResult {
                exit_code: exit.status.unwrap_or(i32::from(exit.signal.is_none())),
                signal: exit.signal.unwrap_or(0),
                oom_killed: exit.out_of_memory,
            },
            why: why.unwrap_or_default(),
            at: SystemTime::now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_as_nomad_has_it() {
        let end = |status, signal, out_of_memory| {
            let exit = ExitStatus {
                status,
                signal,
                out_of_memory,
            };
            let end = End::of_instance(Some(exit), Some("how".to_owned()));
            (
                end.result.exit_code,
                end.result.signal,
                end.result.oom_killed,
                end.why,
            )
        };
        assert_eq!(end(Some(0), None, false), (0, 0, false, String::new()));
        assert_eq!(end(Some(3), None, false), (3, 0, false, String::new()));
        assert_eq!(end(None, Some(9), true), (0, 9, true, String::new()));
        assert_eq!(end(None, None, false), (1, 0, false, "how".to_owned()));
        assert_eq!(End::of_instance(None, None).result.exit_code, 1);
    }
}
