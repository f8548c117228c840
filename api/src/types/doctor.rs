//! Checks of the requirements of nfluid on this host, with remedies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// The requirement is met.
    Ok,
    /// nfluid works, but slower or with fewer features; the detail names the loss.
    Warn,
    /// nfluid cannot run on this host.
    Fail,
    /// The check was not possible, for example without root.
    Skipped,
}

/// A check of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// The subject of the check, for example `kernel` or `bpf: may_goto`.
    pub name: String,
    /// The outcome.
    pub status: CheckStatus,
    /// The finding and its consequences.
    pub detail: String,
    /// The remedy; empty if none is needed.
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
    /// The checks, in the order of their execution.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// Returns the worst status of all checks except skipped ones.
    pub fn worst(&self) -> CheckStatus {
        self.checks
            .iter()
            .map(|check| check.status)
            .filter(|status| *status != CheckStatus::Skipped)
            .max()
            .unwrap_or(CheckStatus::Ok)
    }
}
