//! Configuration of a limiter: limits per direction.

use super::bucket::{BURST_MAX, Limits, RATE_MAX};
use super::meter::{Key, Meter, Side};
use crate::config;
use crate::function::{ConfigError, PortInfo};
use crate::seed;
use alloc::format;
use serde::Deserialize;
use serde_json::Value;

/// Most prefixes with buckets of their own.
const PREFIXES_MAX: usize = 1 << 20;
/// A burst below one frame of Ethernet would never let one pass, nor one below the MTU of a port.
const BURST_MIN: u64 = 1514;
const DSCP_MAX: u8 = 63;

/// Treatment of a yellow packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Yellow {
    /// The packet passes and is counted.
    #[default]
    Pass,
    /// The packet passes with this code point (RFC 2474).
    Dscp(u8),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Per {
    address: Side,
    #[serde(default = "host_v4")]
    ipv4: u8,
    #[serde(default = "subnet_v6")]
    ipv6: u8,
    #[serde(default = "default_prefixes_max")]
    prefixes_max: usize,
}

const fn host_v4() -> u8 {
    32
}

const fn subnet_v6() -> u8 {
    64
}

const fn default_prefixes_max() -> usize {
    4096
}

/// The document of a direction. With `pir` the meter is that of RFC 2698, else of RFC 2697.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Direction {
    cir: u64,
    cbs: u64,
    #[serde(default)]
    ebs: Option<u64>,
    #[serde(default)]
    pir: Option<u64>,
    #[serde(default)]
    pbs: Option<u64>,
    #[serde(default)]
    yellow: Yellow,
    #[serde(default)]
    per: Option<Per>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    forward: Option<Direction>,
    #[serde(default)]
    reverse: Option<Direction>,
    #[serde(default)]
    seed: Option<u64>,
}

/// The configuration, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    directions: [Option<(Direction, Limits)>; 2],
    seed: Option<u64>,
}

impl Config {
    /// Reads and checks a configuration.
    pub(super) fn parse(value: &Value, ports: &[PortInfo]) -> Result<Config, ConfigError> {
        let document: Document = config::parse(value)?;
        let mtus = ports.iter().map(|port| u64::from(port.mtu));
        let burst_min = mtus.fold(BURST_MIN, u64::max);
        let check = |name: &str, direction: Option<Direction>| match direction {
            Some(direction) => direction
                .check(name, burst_min)
                .map(|limits| Some((direction, limits))),
            None => Ok(None),
        };
        Ok(Config {
            directions: [
                check("forward", document.forward)?,
                check("reverse", document.reverse)?,
            ],
            seed: document.seed,
        })
    }

    /// A meter for each limited direction, by arrival port.
    pub(super) fn meters(&self, ports: &[PortInfo]) -> [Option<Meter>; 2] {
        let seed = self.seed.unwrap_or_else(|| seed::from_surroundings(ports));
        self.directions.map(|direction| {
            let (direction, limits) = direction?;
            let key = direction.per.map(|per| Key {
                side: per.address,
                ipv4: per.ipv4,
                ipv6: per.ipv6,
                prefixes_max: per.prefixes_max,
            });
            Some(Meter::new(limits, key, seed))
        })
    }

    pub(super) fn yellow(&self) -> [Yellow; 2] {
        self.directions
            .map(|direction| direction.map_or(Yellow::Pass, |(direction, _)| direction.yellow))
    }
}

impl Direction {
    /// `burst_min`: bytes of the longest packet, for which a burst has to have room.
    fn check(&self, name: &str, burst_min: u64) -> Result<Limits, ConfigError> {
        let path = |key: &str| format!("{name}.{key}");
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(value);
            }
            let message = format!("{value} is not within {least} to {most}");
            Err(ConfigError::at(path(key), message))
        };
        let cir = within("cir", self.cir, 1, RATE_MAX)?;
        let cbs = within("cbs", self.cbs, burst_min, BURST_MAX)?;
        if let Yellow::Dscp(dscp) = self.yellow {
            within("yellow.dscp", dscp.into(), 0, DSCP_MAX.into())?;
        }
        if let Some(per) = self.per {
            within("per.ipv4", per.ipv4.into(), 0, 32)?;
            within("per.ipv6", per.ipv6.into(), 0, 128)?;
            within(
                "per.prefixes_max",
                per.prefixes_max as u64,
                1,
                PREFIXES_MAX as u64,
            )?;
        }
        match (self.ebs, self.pir, self.pbs) {
            (ebs, None, None) => Ok(Limits::SingleRate {
                cir,
                cbs,
                ebs: within("ebs", ebs.unwrap_or(0), 0, BURST_MAX)?,
            }),
            (None, Some(pir), Some(pbs)) => Ok(Limits::TwoRates {
                cir,
                cbs,
                pir: within("pir", pir, cir, RATE_MAX)?,
                pbs: within("pbs", pbs, burst_min, BURST_MAX)?,
            }),
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
                let message =
                    "'ebs' belongs to one rate (RFC 2697), 'pir' and 'pbs' to two (RFC 2698)";
                Err(ConfigError::at(path("ebs"), message))
            }
            (None, Some(_), None) => Err(ConfigError::at(path("pbs"), "'pir' needs 'pbs' too")),
            (None, None, Some(_)) => Err(ConfigError::at(path("pir"), "'pbs' needs 'pir' too")),
        }
    }
}
