//! How an image says that its program is run.

use oci_spec::image::ImageConfiguration;
use serde::{Deserialize, Serialize};

/// The part of an image's configuration that is obeyed ("config" of the OCI image specification).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The program and its first arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// More arguments; without an entrypoint, the program is the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Environment variables, `NAME=value` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// User, and group after a colon, by name or number; empty: root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Working directory; empty: `/`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The signal that asks the program to end; empty: SIGTERM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    /// Ports that it serves, for people to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Directories that it wants to be volumes, for people to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

impl Settings {
    pub(crate) fn of(config: &ImageConfiguration) -> Self {
        let Some(config) = config.config() else {
            return Settings::default();
        };
        Settings {
            entrypoint: config.entrypoint().clone().unwrap_or_default(),
            command: config.cmd().clone().unwrap_or_default(),
            environment: config.env().clone().unwrap_or_default(),
            user: config.user().clone().unwrap_or_default(),
            directory: config.working_dir().clone().unwrap_or_default(),
            stop_signal: config.stop_signal().clone().unwrap_or_default(),
            ports: config.exposed_ports().clone().unwrap_or_default(),
            volumes: config.volumes().clone().unwrap_or_default(),
        }
    }
}
