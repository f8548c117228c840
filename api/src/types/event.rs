//! Events on the platform, in order.

use super::Kind;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The daemon has started.
    DaemonStarted,
    /// The daemon took over an instance that an earlier daemon started.
    Adopted,
    /// A deployment was applied, or objects deleted.
    Applied,
    /// An apply failed and was undone.
    RolledBack,
    /// An object was created.
    Created,
    /// An object was changed without being created again.
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
    /// A restart was scheduled or done.
    Restarting,
    /// An instance crashed repeatedly; its policy allows no more restarts.
    CrashLoop,
    /// An instance was moved to another core.
    Moved,
    /// The number of members that share the flows of an instance has changed.
    Scaled,
    /// An instance has failed its health check.
    Unhealthy,
    /// An instance passes its health check again.
    Healthy,
    /// A limit was reached, for example of memory.
    LimitHit,
    /// The interface of an uplink disappeared.
    UplinkDown,
    /// An uplink works, or works again.
    UplinkUp,
    /// A warning of another kind.
    Warning,
}

impl EventKind {
    /// Returns the name as it appears in JSON.
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

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Position in the daemon's sequence, from 1; never reused while the daemon runs.
    pub seq: u64,
    /// Time in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// The kind of the event.
    pub kind: EventKind,
    /// Kind of the object that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Kind>,
    /// Name of the object that the event concerns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The event in words.
    pub message: String,
}

/// Events after a position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// The value for `since` in the next request.
    pub next: u64,
    /// Number of events after `since` that are no longer kept.
    #[serde(default)]
    pub missed: u64,
}
