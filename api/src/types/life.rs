//! Pausing, upgrading, saving and restoring instances.

use super::Timeline;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The treatment of frames for an instance that is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PausedTraffic {
    /// Frames wait in the instance's rings. If the ring is full, the frame is dropped and counted (`ring_full`).
    #[default]
    Hold,
    /// Frames are dropped and counted (`port_down`).
    Drop,
    /// Frames bypass the instance: frames for one of its two ports go to the destination of the other port.
    Bypass,
}

impl PausedTraffic {
    /// Returns the name as it appears in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            PausedTraffic::Hold => "hold",
            PausedTraffic::Drop => "drop",
            PausedTraffic::Bypass => "bypass",
        }
    }
}

impl fmt::Display for PausedTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A request to pause an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// The treatment of frames for the instance while it is paused.
    #[serde(default)]
    pub traffic: PausedTraffic,
}

/// The duration of an operation within the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Took {
    /// Microseconds.
    pub took_us: u64,
}

/// A request to divide the flows of an instance among another number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleRequest {
    /// Number of members, from 1 on.
    pub replicas: u16,
}

/// The result of a change of the number of members. If the number was not changed, all fields but the first are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScaleReport {
    /// Microseconds in total.
    pub took_us: u64,
    /// Microseconds of these for which frames of moved flows waited in the rings of their new members.
    pub held_us: u64,
    /// Entries of state that moved from one member to another.
    pub state_taken: u64,
    /// Entries that the other members had no room for.
    pub state_left_out: u64,
}

/// The result of an upgrade in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeReport {
    /// Microseconds in total.
    pub took_us: u64,
    /// Microseconds of these in which the ports were not served: frames waited in the rings.
    pub silent_us: u64,
    /// Microseconds of the silence until the old process had sent its queued frames.
    #[serde(default)]
    pub settle_us: u64,
    /// Microseconds of the silence for exporting the state.
    #[serde(default)]
    pub export_us: u64,
    /// Microseconds of the silence for importing the state. The rest is the transfer between the two processes.
    #[serde(default)]
    pub import_us: u64,
    /// Entries of the NF's state that the new process has taken over.
    pub state_taken: u64,
    /// Entries that the new process has left out: its configuration does not know them, or has no room.
    pub state_left_out: u64,
}

/// The destination of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateRequest {
    /// `HOST:PORT` of a daemon that accepts other daemons; its certificate must be for HOST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Instead of `to`: keeps an instance here after a move with unknown outcome. The caller must know that the
    /// instance does not run on the other host.
    #[serde(default)]
    pub keep: bool,
}

/// The result of a move. All fields are 0 if the connection was cut at the end and the other host has confirmed later
/// that it has the instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MigrateReport {
    /// Microseconds in total.
    pub took_us: u64,
    /// Microseconds of these in which the ports were not served: until the frames that had waited were sent to the
    /// other host.
    pub blocked_us: u64,
    /// Microseconds of the blocked time until the other host had imported the state.
    pub ready_us: u64,
    /// Bytes of the NF's state.
    pub state_bytes: u64,
    /// Entries of it that were taken over.
    pub state_taken: u64,
    /// Entries that were left out: the other host's configuration does not know them, or has no room.
    pub state_left_out: u64,
    /// Frames that waited or still came, and were forwarded.
    pub frames: u64,
    /// Forwarded frames that had no room.
    pub frames_left_out: u64,
    /// Frames that were dropped here since the move began, as the instance's rings were full.
    #[serde(default)]
    pub frames_dropped: u64,
    /// The time of each phase. From `stop` to `first` the ports were not served.
    #[serde(default)]
    pub took: Timeline,
}

/// Maximum length of an image of a saved instance in bytes: the maximum that fits into a request, in base64.
pub const SAVED_BYTES_MAX: usize = 46 << 20;

/// The instance to create from a saved one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// The response of `GET /v1/instances/{name}/image`.
    pub image: String,
    /// A new name: the instance becomes a clone, with addresses and seeds of its own. Absent: the saved name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The configuration of a clone, instead of the saved one: a clone whose configuration has IP addresses needs its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<serde_json::Value>,
    /// The keys of a clone, in the syntax of a deployment's `instances`, instead of all that was saved of the instance: the clone has
    /// its state and its frames alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub instance: Option<serde_json::Value>,
    /// Leaves the instance paused, so that its ports can be connected before the frames in its rings are processed.
    #[serde(default)]
    pub paused: bool,
}

/// A saved instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SavedInstance {
    /// Specification, state of the NF and frames in its rings, in base64.
    pub image: String,
    /// Duration in microseconds.
    pub took_us: u64,
    /// Bytes of the NF's state.
    pub state_bytes: u64,
    /// Frames that waited in its rings.
    pub frames: u64,
}

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreReport {
    /// The instance.
    pub name: String,
    /// Duration in microseconds.
    pub took_us: u64,
    /// Entries of the NF's state that were restored.
    pub state_taken: u64,
    /// Entries that were left out.
    pub state_left_out: u64,
    /// Frames that wait in its rings.
    pub frames: u64,
    /// Frames that had no room in its rings.
    pub frames_left_out: u64,
    /// The time of each phase.
    #[serde(default)]
    pub took: Timeline,
}
