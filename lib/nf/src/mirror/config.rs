//! Configuration of a mirror: the frames to copy, and how much of them.

use super::selection::Selection;
use crate::config;
use crate::function::ConfigError;
use crate::prefix::Prefix;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nfluid_ring::layout::{FRAME_MIN, LONG_MAX};
use nfluid_wire::IpProtocol;
use serde::Deserialize;
use serde_json::Value;

/// Most prefixes and most ports to match: each frame is compared with all.
const LIST_MAX: usize = 64;
const RATE_MAX: u32 = 10_000_000;
const MEMORY_MAX: usize = 256 << 20;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Direction {
    #[default]
    Both,
    /// From port 0 to port 1.
    Forward,
    /// From port 1 to port 0.
    Reverse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Protocol {
    Tcp,
    Udp,
    Icmp,
    Icmpv6,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Match {
    direction: Direction,
    prefixes: Vec<String>,
    ports: Vec<u16>,
    protocol: Option<Protocol>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    #[serde(rename = "match")]
    matching: Match,
    snaplen: usize,
    rate: u32,
    memory_bytes: usize,
}

impl Default for Document {
    fn default() -> Self {
        Document {
            matching: Match::default(),
            snaplen: LONG_MAX,
            rate: 10_000,
            memory_bytes: 1 << 20,
        }
    }
}

/// The configuration, checked.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) selection: Selection,
    /// Most bytes of a frame that are copied.
    pub(super) snaplen: usize,
    /// Copies per second.
    pub(super) rate: u32,
    /// Bytes of memory for captured frames; 0: none.
    pub(super) memory_bytes: usize,
}

impl Config {
    /// Reads and checks a configuration.
    pub(super) fn parse(value: &Value) -> Result<Config, ConfigError> {
        let document: Document = config::parse(value)?;
        let within = |key: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(value);
            }
            let message = format!("{value} is not within {least} to {most}");
            Err(ConfigError::at(key, message))
        };
        within(
            "match.prefixes",
            document.matching.prefixes.len(),
            0,
            LIST_MAX,
        )?;
        within("match.ports", document.matching.ports.len(), 0, LIST_MAX)?;
        within("rate", document.rate as usize, 1, RATE_MAX as usize)?;
        Ok(Config {
            snaplen: within("snaplen", document.snaplen, FRAME_MIN, LONG_MAX)?,
            rate: document.rate,
            memory_bytes: within("memory_bytes", document.memory_bytes, 0, MEMORY_MAX)?,
            selection: document.matching.selection()?,
        })
    }
}

impl Match {
    fn selection(self) -> Result<Selection, ConfigError> {
        let numbered = self.prefixes.iter().enumerate();
        let prefixes: Result<Vec<Prefix>, ConfigError> = numbered
            .map(|(index, text)| {
                let path = format!("match.prefixes[{index}]");
                Prefix::parse(text).map_err(|why| ConfigError::at(path, why))
            })
            .collect();
        Ok(Selection {
            direction: self.direction,
            prefixes: prefixes?,
            ports: self.ports,
            protocol: self.protocol.map(|protocol| match protocol {
                Protocol::Tcp => IpProtocol::TCP,
                Protocol::Udp => IpProtocol::UDP,
                Protocol::Icmp => IpProtocol::ICMPV4,
                Protocol::Icmpv6 => IpProtocol::ICMPV6,
            }),
        })
    }
}
