//! Parsing an NF's configuration, as the daemon passes it, into the NF's own type.

use crate::function::ConfigError;
use alloc::string::ToString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads a configuration. Absent (`null`) means all defaults. The type denies unknown fields, so
/// that a misspelt key is an error and not a silent default.
///
/// # Errors
/// Reads a configuration. The error of serde gets the path of the key: `ports[3].range: invalid type ...`.
///
/// ```
/// use nfluid_nf::config;
///
/// #[derive(Debug, serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Config {
///     rates: Vec<u64>,
/// }
///
/// let value = serde_json::json!({"rates": [1, -2]});
/// let error = config::parse::<Config>(&value).unwrap_err();
/// assert_eq!(error.path, "rates[1]");
/// ```
pub fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, ConfigError> {
    let defaults;
    let value = if value.is_null() {
        defaults = Value::Object(Map::new());
        &defaults
    } else {
        value
    };
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { "" } else { &path };
        ConfigError::at(path, error.inner().to_string())
    })
}

/// The configuration of a network function that has nothing to configure: an empty map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoKeys {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, Default, PartialEq, Eq, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Sample {
        depth: u32,
        names: alloc::vec::Vec<alloc::string::String>,
    }

    #[test]
    fn absent_means_defaults() {
        assert_eq!(parse::<Sample>(&Value::Null), Ok(Sample::default()));
    }

    #[test]
    fn an_error_names_the_key() {
        let path = |value| parse::<Sample>(&value).unwrap_err().path;
        assert_eq!(path(json!({"names": ["a", 1]})), "names[1]");
        assert_eq!(path(json!({"depth": "deep"})), "depth");
        assert_eq!(path(json!(["not", "a", "map", 4])), "[0]");
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let error = parse::<Sample>(&json!({"dept": 1})).unwrap_err();
        assert!(error.message.contains("dept"), "{error}");
        assert!(error.message.contains("depth"), "{error}");
    }
}
