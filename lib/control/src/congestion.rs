//! Congestion signals: which cores mark, and by which law (docs/adr/0010).

use crate::quantity::{Micros, Share};
use nfluid_marking::{ALWAYS, LawError, Pie, Red};
use serde::Serialize;
use std::collections::BTreeMap;

/// Time constant of the average that thresholds are compared with, where none is named.
pub const AVERAGE_DEFAULT: Micros = Micros(10_000);
/// The delay to aim at where none is named: CoDel's (RFC 8289), longer than the turns of NFs that share a core.
pub const TARGET_DEFAULT: Micros = Micros(5_000);

/// The law by which a core determines its congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "law", rename_all = "kebab-case")]
pub enum Law {
    /// Congestion signals are off: no frame is marked.
    #[default]
    Off,
    /// The estimated time to process the waiting frames, compared with a target.
    SelfTuning {
        /// The target time.
        target: Micros,
    },
    /// Thresholds on the number of waiting frames.
    Red4 {
        /// No frame is marked up to this number of frames.
        min: u32,
        /// From this number of frames on, the probability rises steeply.
        max: u32,
        /// The probability at `max`, for the cheapest instance.
        probability: Share,
        /// Time constant of the average number of frames.
        average: Micros,
    },
}

impl Law {
    /// Returns the law in the form of `nfluid_marking`, if there is one.
    ///
    /// # Errors
    /// The parameters are invalid.
    pub fn checked(self) -> Result<Option<nfluid_marking::Law>, LawError> {
        match self {
            Law::Off => Ok(None),
            Law::SelfTuning { target } => {
                let pie = Pie::with_target(target.0.saturating_mul(1_000));
                pie.validate()?;
                Ok(Some(nfluid_marking::Law::Pie(pie)))
            }
            Law::Red4 {
                min,
                max,
                probability,
                average,
            } => {
                let part = u64::from(probability.hundredths()) * u64::from(ALWAYS)
                    / u64::from(Share::FULL.hundredths());
                let red = Red {
                    min_frames: min,
                    max_frames: max,
                    probability_max: u32::try_from(part).unwrap_or(ALWAYS),
                    average_ns: average.0.saturating_mul(1_000),
                };
                red.validate()?;
                Ok(Some(nfluid_marking::Law::Red(red)))
            }
        }
    }
}

/// The `congestion` of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Congestion {
    /// The law of cores that are not named.
    #[serde(flatten)]
    pub law: Law,
    /// The laws of named cores.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cores: BTreeMap<u32, Law>,
    /// Chains refuse frames at their entry while a ring further on is full.
    pub backpressure: bool,
}

impl Congestion {
    /// Returns a configuration with this law on all cores.
    pub fn everywhere(law: Law) -> Self {
        Congestion {
            law,
            cores: BTreeMap::new(),
            backpressure: true,
        }
    }

    /// Returns the default: no frame is marked or refused.
    pub fn none() -> Self {
        Congestion {
            backpressure: false,
            ..Congestion::everywhere(Law::Off)
        }
    }
}

impl Default for Congestion {
    fn default() -> Self {
        Congestion::none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_without_sense_are_errors() {
        let red = |min, max, average| Law::Red4 {
            min,
            max,
            probability: Share::FULL,
            average: Micros(average),
        };
        assert!(red(10, 20, 0).checked().is_ok());
        for law in [
            red(20, 10, 0),
            red(0, 10, 0),
            red(10, u32::MAX, 0),
            red(10, 20, u64::MAX),
        ] {
            assert!(law.checked().is_err(), "{law:?}");
        }
        for target in [0, 9, 1_000_001, u64::MAX] {
            let target = Micros(target);
            assert!(Law::SelfTuning { target }.checked().is_err());
        }
        assert_eq!(Law::Off.checked(), Ok(None));
    }
}
