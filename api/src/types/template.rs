//! Templates: instances that are there while somebody needs them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// How it stands with a template's clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateStatus {
    /// Its name.
    pub name: String,
    /// The uplink that clients come by.
    pub from: String,
    /// The uplink that their frames go to.
    pub to: String,
    /// Clients that have an instance.
    pub clients: u32,
    /// Most that may.
    pub most: u32,
    /// Most instances that are made per second.
    pub per_second: u32,
    /// Instances made since the daemon started.
    pub made: u64,
    /// Instances ended since.
    pub ended: u64,
    /// Frames of clients without an instance that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
}
