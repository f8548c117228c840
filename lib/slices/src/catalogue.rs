//! The slices that exist, by the name of their graph: the one place that lists them all.

use crate::application::SliceApplication;
use crate::graphs::{hash_tree, lte_uplink, spectrum};
use nfluid_nf::ConfigError;
use serde_json::Value;
use std::sync::Arc;

/// Builds a slice's application from its parameters.
pub type Builder = fn(&Value) -> Result<Arc<dyn SliceApplication>, ConfigError>;

/// An entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in a deployment: `graph: spectrum`.
    pub name: &'static str,
    /// A line for help texts.
    pub summary: &'static str,
    /// Builds the application.
    pub build: Builder,
}

/// All graphs, in alphabetical order.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "hash-tree",
        summary: "hashes an interval's bytes as a tree (SHA-256), and tells the root",
        build: hash_tree::build,
    },
    Entry {
        name: "lte-uplink",
        summary: "receives a subframe of an LTE uplink: from subcarriers to transport blocks",
        build: lte_uplink::build,
    },
    Entry {
        name: "spectrum",
        summary: "finds the frequencies that are in use: transform, power, threshold",
        build: spectrum::build,
    },
];

/// Builds the application of a graph.
///
/// # Errors
/// An unknown name (at `graph`), or a parameter that the graph refuses (below `parameters`).
pub fn build(name: &str, parameters: &Value) -> Result<Arc<dyn SliceApplication>, ConfigError> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| {
        let known: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        let known = known.join(", ");
        ConfigError::at(
            "graph",
            format!("unknown graph '{name}'; there are: {known}"),
        )
    })?;
    (entry.build)(parameters).map_err(|error| below("parameters", error))
}

/// The same error at a place of which `path` is the parent.
pub(crate) fn below(path: &str, mut error: ConfigError) -> ConfigError {
    error.path = match error.path.as_str() {
        "" => path.to_owned(),
        inner => format!("{path}.{inner}"),
    };
    error
}
