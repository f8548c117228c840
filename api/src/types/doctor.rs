//! Checks whether this host can run nfluid, with remedies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// Works, but slower or with less; the detail says what is lost.
    Warn,
    /// nfluid cannot run like this.
    Fail,
    /// Could not be checked, for example without root.
    Skipped,
}

/// One check of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// The subject of the check, for example `kernel` or `bpf: may_goto`.
    pub name: String,
    /// The outcome.
    pub status: CheckStatus,
    /// What was found, and what follows from it.
    pub detail: String,
    /// What to do; empty when there is nothing to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

#[cfg(feature = "probe")]
impl From<nfluid_sandbox::Feature> for Check {
    fn from(feature: nfluid_sandbox::Feature) -> Self {
        Check {
            name: feature.name.into(),
            status: match feature.status {
                nfluid_sandbox::Status::Available => CheckStatus::Ok,
                nfluid_sandbox::Status::Degraded => CheckStatus::Warn,
                nfluid_sandbox::Status::Missing => CheckStatus::Fail,
            },
            detail: feature.detail,
            remedy: feature.remedy,
        }
    }
}

/// All checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// The worst status of all checks, leaving out those that were skipped.
    pub fn worst(&self) -> CheckStatus {
        self.checks
            .iter()
            .map(|check| check.status)
            .filter(|status| *status != CheckStatus::Skipped)
            .max()
            .unwrap_or(CheckStatus::Ok)
    }
}
