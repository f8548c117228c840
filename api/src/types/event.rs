//! What happened on the platform, in order.

use super::Kind;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What sort of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The daemon is up.
    DaemonStarted,
    /// An instance that outlived the daemon was taken over.
    Adopted,
    /// A deployment was applied, or objects deleted.
    Applied,
    /// An apply failed and was undone.
    RolledBack,
    /// An object was created.
    Created,
    /// An object was changed while it ran.
    Changed,
    /// An object was created again.
    Replaced,
    /// An object was removed.
    Removed,
    /// An instance runs.
    Started,
    /// An instance ended by itself with success.
    Exited,
    /// An instance crashed or was killed.
    Crashed,
    /// A restart was scheduled or carried out.
    Restarting,
    /// An instance crashes again and again; no more restarts by its policy.
    CrashLoop,
    /// An instance was put on another core.
    Moved,
    /// The flows of an instance are divided among another number of members.
    Scaled,
    /// An instance has failed its health check.
    Unhealthy,
    /// An instance passes its health check again.
    Healthy,
    /// A limit was reached, for example of memory.
    LimitHit,
    /// An uplink's interface vanished.
    UplinkDown,
    /// An uplink works (again).
    UplinkUp,
    /// A warning that is none of the above.
    Warning,
}

impl EventKind {
    /// The name as it appears in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::DaemonStarted => "daemon_started",
            EventKind::Adopted => "adopted",
            EventKind::Applied => "applied",
            EventKind::RolledBack => "rolled_back",
            EventKind::Created => "created",
            EventKind::Changed => "changed",
            EventKind::Replaced => "replaced",
            EventKind::Removed => "removed",
            EventKind::Started => "started",
            EventKind::Exited => "exited",
            EventKind::Crashed => "crashed",
            EventKind::Restarting => "restarting",
            EventKind::CrashLoop => "crash_loop",
            EventKind::Moved => "moved",
            EventKind::Scaled => "scaled",
            EventKind::Unhealthy => "unhealthy",
            EventKind::Healthy => "healthy",
            EventKind::LimitHit => "limit_hit",
            EventKind::UplinkDown => "uplink_down",
            EventKind::UplinkUp => "uplink_up",
            EventKind::Warning => "warning",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Position in the daemon's sequence, from 1; never reused while the daemon runs.
    pub seq: u64,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// What sort of event.
    pub kind: EventKind,
    /// Kind of the object that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Kind>,
    /// Name of the object that it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What happened, in words.
    pub message: String,
}

/// Events after a position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Pass this as `since` to go on.
    pub next: u64,
    /// How many events after `since` were no longer kept.
    #[serde(default)]
    pub missed: u64,
}
