//! Configuration of a bridge: empty. Unknown keys are refused all the same.

use crate::config;
use crate::function::ConfigError;
use serde::Deserialize;
use serde_json::Value;

/// The bridge's configuration: an empty map, or none at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {}

impl Config {
    /// Reads and checks a configuration.
    pub(super) fn parse(value: &Value) -> Result<Config, ConfigError> {
        config::parse(value)
    }
}
