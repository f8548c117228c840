//! Templates: instances that exist while their clients are active.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The state of a template's clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateStatus {
    /// Name of the template.
    pub name: String,
    /// The uplink of the clients.
    pub from: String,
    /// The uplink that frames of clients are sent to.
    pub to: String,
    /// Clients that have an instance.
    pub clients: u32,
    /// Maximum number of clients.
    pub most: u32,
    /// Maximum number of instances created per second.
    pub per_second: u32,
    /// Instances created since the daemon started.
    pub made: u64,
    /// Instances ended since the daemon started.
    pub ended: u64,
    /// Frames of clients without an instance that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
}
