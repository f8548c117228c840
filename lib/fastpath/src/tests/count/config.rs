//! The configuration of `nf: count`.

use super::Count;
use crate::config::{read, wrong};
use crate::function::{FastFunction, FunctionConfig, Site};
use crate::record::Numbers;
use nfluid_control::apply::PlatformError;
use nfluid_control::host::NfConfigError;
use serde::Deserialize;
use serde_json::Value;

/// A parsed configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CountConfig {
    /// Entries of a table.
    pub entries: u32,
    /// The unit of the metric `count_total`.
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Packets,
    Bytes,
}

impl Default for CountConfig {
    fn default() -> Self {
        CountConfig {
            entries: 64,
            unit: Unit::Packets,
        }
    }
}

pub fn parse(config: &Value) -> Result<CountConfig, NfConfigError> {
    let config: CountConfig = read("", config)?;
    if config.entries == 0 {
        return Err(wrong("entries", "write 1 or more"));
    }
    Ok(config)
}

impl FunctionConfig for CountConfig {
    fn sizes(&self) -> Vec<u32> {
        vec![self.entries]
    }

    fn load(
        &self,
        site: &Site<'_>,
        _: &mut Numbers,
    ) -> Result<Box<dyn FastFunction>, PlatformError> {
        Ok(Box::new(Count::load(self, site.pins)?))
    }
}
