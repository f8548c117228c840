//! Configuration: the signatures to drop.

use crate::config;
use crate::function::ConfigError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;
use serde_json::Value;

/// Most forbidden signatures (512 KiB of memory).
pub(super) const FORBIDDEN_MAX: usize = 65_536;

/// Most signatures computed per frame: about ten milliseconds.
pub(super) const ROUNDS_MAX: u32 = 1_000_000;

/// The configuration as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Config {
    /// Hexadecimal text, because JSON numbers above 2^53 do not survive every tool.
    forbidden: Vec<String>,
    /// How often each frame is signed.
    rounds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            forbidden: Vec::new(),
            rounds: 1,
        }
    }
}

impl Config {
    /// Reads a configuration.
    pub(super) fn parse(value: &Value) -> Result<Config, ConfigError> {
        config::parse(value)
    }

    /// How often each frame is signed.
    pub(super) fn rounds(&self) -> Result<u32, ConfigError> {
        if (1..=ROUNDS_MAX).contains(&self.rounds) {
            return Ok(self.rounds);
        }
        let message = format!("{} rounds; write 1 to {ROUNDS_MAX}", self.rounds);
        Err(ConfigError::at("rounds", message))
    }

    /// The set of forbidden signatures.
    pub(super) fn forbidden(&self) -> Result<Forbidden, ConfigError> {
        if self.forbidden.len() > FORBIDDEN_MAX {
            return Err(ConfigError::at(
                "forbidden",
                format!(
                    "{} signatures, at most {FORBIDDEN_MAX} are possible",
                    self.forbidden.len()
                ),
            ));
        }
        let parsed: Result<Vec<u64>, ConfigError> =
            self.forbidden.iter().enumerate().map(parse_hex).collect();
        let mut sorted = parsed?;
        sorted.sort_unstable();
        sorted.dedup();
        Ok(Forbidden(sorted))
    }
}

fn parse_hex((index, text): (usize, &String)) -> Result<u64, ConfigError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // `from_str_radix` alone would take a sign.
    if digits.starts_with('+') {
        return Err(not_hex(index, text));
    }
    u64::from_str_radix(digits, 16).map_err(|_| not_hex(index, text))
}

fn not_hex(index: usize, text: &str) -> ConfigError {
    ConfigError::at(
        format!("forbidden[{index}]"),
        format!("'{text}' is not a signature; write 1 to 16 hexadecimal digits, as in 0x9bdf01"),
    )
}

/// Sorted signatures to drop, at most [`FORBIDDEN_MAX`].
#[derive(Debug, Default)]
pub(super) struct Forbidden(Vec<u64>);

impl Forbidden {
    #[inline]
    pub(super) fn contains(&self, signature: u64) -> bool {
        !self.0.is_empty() && self.0.binary_search(&signature).is_ok()
    }
}
