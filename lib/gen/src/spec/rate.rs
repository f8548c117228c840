//! Rates in packets or bits per second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{SpecError, number_and_unit, serde_as_text};

/// Bytes that a frame takes on an Ethernet wire beyond those in its slot: preamble and start
/// delimiter (8), FCS (4), inter-frame gap (12); IEEE 802.3.
pub const LAYER1_OVERHEAD: usize = 24;

/// Highest rate in packets or bits per second that is taken for meant.
const RATE_MAX: f64 = 1e13;

/// An offered rate.
///
/// Text: `10kpps`, `1.5Mpps`, `2Gbps` (bytes of the frames in their slots), `10Gbps/l1` (with
/// preamble, FCS and gap, as line rates are quoted), `1000` (packets per second), `max`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Rate {
    /// As fast as the port takes frames.
    Max,
    /// Packets per second.
    Packets(f64),
    /// Bits per second of frames without preamble, FCS and gap.
    Bits(f64),
    /// Bits per second with preamble, FCS and gap.
    Layer1Bits(f64),
}

serde_as_text!(Rate);

const UNITS: [(&str, f64); 4] = [("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)];

impl Rate {
    /// Packets per second for frames of `mean_size` bytes; `None` is without limit.
    pub fn packets_per_second(self, mean_size: f64) -> Option<f64> {
        match self {
            Rate::Max => None,
            Rate::Packets(pps) => Some(pps),
            Rate::Bits(bps) => Some(bps / (8.0 * mean_size)),
            Rate::Layer1Bits(bps) => Some(bps / (8.0 * (mean_size + LAYER1_OVERHEAD as f64))),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit, suffix) = match *self {
            Rate::Max => return f.write_str("max"),
            Rate::Packets(value) => (value, "pps", ""),
            Rate::Bits(value) => (value, "bps", ""),
            Rate::Layer1Bits(value) => (value, "bps", "/l1"),
        };
        let (prefix, scale) = UNITS
            .into_iter()
            .find(|&(_, scale)| value >= scale && value / scale * scale == value)
            .unwrap_or(("", 1.0));
        write!(f, "{}{prefix}{unit}{suffix}", value / scale)
    }
}

impl FromStr for Rate {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let fail = |reason: &str| SpecError::new("rate", text, reason);
        if text == "max" {
            return Ok(Rate::Max);
        }
        let (number, unit) = number_and_unit(text)
            .ok_or_else(|| fail("write 10kpps, 1.5Mpps, 2Gbps, 2Gbps/l1 or max"))?;
        let (scale, kind) = match unit.chars().next() {
            Some('k' | 'K') => (1e3, &unit[1..]),
            Some('M' | 'm') => (1e6, &unit[1..]),
            Some('G' | 'g') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let value = number * scale;
        if value > RATE_MAX {
            return Err(fail("beyond 10,000 Gbps or Gpps"));
        }
        match kind {
            "pps" | "" => Ok(Rate::Packets(value)),
            "bps" => Ok(Rate::Bits(value)),
            "bps/l1" => Ok(Rate::Layer1Bits(value)),
            _ => Err(fail(
                "the unit is pps, bps or bps/l1 with k, M or G before it",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_documented_forms() {
        for (text, rate) in [
            ("10kpps", Rate::Packets(10e3)),
            ("1.5Mpps", Rate::Packets(1.5e6)),
            ("2Gbps", Rate::Bits(2e9)),
            ("10Gbps/l1", Rate::Layer1Bits(10e9)),
            ("1000", Rate::Packets(1000.0)),
            ("0pps", Rate::Packets(0.0)),
            ("max", Rate::Max),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap(), rate, "{text}");
        }
    }

    #[test]
    fn refusals() {
        for text in [
            "",
            "-1pps",
            "1.2.3pps",
            "10 kpps",
            "10Tbps",
            "99999Gbps",
            "nan",
            "1e9",
            ".",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn line_rate_of_ten_gigabit_ethernet() {
        // RFC 2544 appendix B style: 64-byte frames with FCS, 14,880,952 per second.
        let pps = Rate::Layer1Bits(10e9).packets_per_second(60.0).unwrap();
        assert_eq!(pps as u64, 14_880_952);
        assert_eq!(Rate::Max.packets_per_second(60.0), None);
    }

    proptest! {
        #[test]
        fn text_survives_a_round_trip(value in 0.0f64..1e12, kind in 0..3) {
            let rate = match kind {
                0 => Rate::Packets(value),
                1 => Rate::Bits(value),
                _ => Rate::Layer1Bits(value),
            };
            prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}") {
            let _ = text.parse::<Rate>();
        }
    }
}
