//! Pausing, upgrading, saving and restoring instances.

use super::Timeline;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What becomes of frames for an instance that is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PausedTraffic {
    /// They wait in its rings; what finds a ring full is dropped and counted (`ring_full`).
    #[default]
    Hold,
    /// They are dropped and counted (`port_down`).
    Drop,
    /// They go where it would send them: what is for one of its two ports, to where the other one leads.
    Bypass,
}

impl PausedTraffic {
    /// The name as it appears in JSON.
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

/// How to pause an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// What becomes of frames for it meanwhile.
    #[serde(default)]
    pub traffic: PausedTraffic,
}

/// How long something took within the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Took {
    /// Microseconds.
    pub took_us: u64,
}

/// Among how many instances the flows of one are to be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleRequest {
    /// So many, from 1 on.
    pub replicas: u16,
}

/// What a change of that number has done. All zero but the first: it was so already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScaleReport {
    /// Microseconds for all of it.
    pub took_us: u64,
    /// Microseconds of it for which frames of flows that changed their instance waited in its rings.
    pub held_us: u64,
    /// Entries of state that went from one instance to another.
    pub state_taken: u64,
    /// Entries that the others had no room for.
    pub state_left_out: u64,
}

/// What an upgrade in place has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeReport {
    /// Microseconds for all of it.
    pub took_us: u64,
    /// Microseconds of it in which nobody served the ports: frames waited in the rings.
    pub silent_us: u64,
    /// Of those, until what the predecessor had sent was on its way.
    #[serde(default)]
    pub settle_us: u64,
    /// Of those, to write the state.
    #[serde(default)]
    pub export_us: u64,
    /// Of those, to take it in. The rest is the way between the two.
    #[serde(default)]
    pub import_us: u64,
    /// Entries of the NF's state that the successor has taken over.
    pub state_taken: u64,
    /// Entries that it has left out: its configuration does not know them, or has no room.
    pub state_left_out: u64,
}

/// Where an instance is to be moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateRequest {
    /// `HOST:PORT` of a daemon that listens for others; its certificate has to be for HOST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Instead: an instance of which it is not known whether it was moved goes on here. Only who knows that it does not run
    /// there may say so.
    #[serde(default)]
    pub keep: bool,
}

/// What a move has done. All is 0 if the connection was cut in the end and the other host has said later that it has the
/// instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MigrateReport {
    /// Microseconds for all of it.
    pub took_us: u64,
    /// Microseconds of it in which nobody served the ports: until the frames that had waited were on their way.
    pub blocked_us: u64,
    /// Of those, until the other host had taken the state in.
    pub ready_us: u64,
    /// Bytes of the NF's state.
    pub state_bytes: u64,
    /// Entries of it that were taken over.
    pub state_taken: u64,
    /// Entries that were left out: the other host's configuration does not know them, or has no room.
    pub state_left_out: u64,
    /// Frames that waited, or came still, and were handed on.
    pub frames: u64,
    /// Frames that were handed on and found no room.
    pub frames_left_out: u64,
    /// Frames that were dropped here since the move began, as the instance's rings were full.
    #[serde(default)]
    pub frames_dropped: u64,
    /// Where the time went; from `stop` to `first` nobody served the ports.
    #[serde(default)]
    pub took: Timeline,
}

/// Longest image of a saved instance in bytes: what a request may carry, in base64.
pub const SAVED_BYTES_MAX: usize = 46 << 20;

/// What to make of a saved instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// What `GET /v1/instances/{name}/image` has answered.
    pub image: String,
    /// Its new name: it becomes a clone, with addresses and seeds of its own. Absent: the name that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The configuration of a clone, in the place of the one that it had: where that says IP addresses, a clone needs its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<serde_json::Value>,
    /// Leave it paused, so that it can be wired before the frames in its rings go on.
    #[serde(default)]
    pub paused: bool,
}

/// A saved instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SavedInstance {
    /// Specification, state of the NF and frames in its rings, in base64.
    pub image: String,
    /// Microseconds that it took.
    pub took_us: u64,
    /// Bytes of the NF's state.
    pub state_bytes: u64,
    /// Frames that waited in its rings.
    pub frames: u64,
}

/// What a restore has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreReport {
    /// The instance.
    pub name: String,
    /// Microseconds that it took.
    pub took_us: u64,
    /// Entries of the NF's state that it has.
    pub state_taken: u64,
    /// Entries that it has not.
    pub state_left_out: u64,
    /// Frames that wait in its rings.
    pub frames: u64,
    /// Frames that found no room there.
    pub frames_left_out: u64,
    /// Where the time went.
    #[serde(default)]
    pub took: Timeline,
}
