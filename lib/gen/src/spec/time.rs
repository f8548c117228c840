//! Lengths of time as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SpecError, number_and_unit, serde_as_text};

/// Longest time taken for meant: 100 days.
const TIME_MAX_S: f64 = 8_640_000.0;

/// A length of time. Text: `10` or `10s`, `500ms`, `100us`, `2m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timespan(pub Duration);

serde_as_text!(Timespan);

impl Timespan {
    /// In nanoseconds.
    pub fn as_ns(self) -> u64 {
        self.0.as_nanos() as u64
    }
}

impl fmt::Display for Timespan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let (scale, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|&(scale, _)| ns.is_multiple_of(scale))
            .unwrap_or((1, "ns"));
        write!(f, "{}{unit}", ns / scale)
    }
}

impl FromStr for Timespan {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let fail = |reason: &str| SpecError::new("time", text, reason);
        let (number, unit) =
            number_and_unit(text).ok_or_else(|| fail("write 10s, 500ms, 100us, 2m or 1h"))?;
        let scale_s = match unit {
            "h" => 3600.0,
            "m" | "min" => 60.0,
            "s" | "" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(fail("the unit is h, m, s, ms, us or ns")),
        };
        if number * scale_s > TIME_MAX_S {
            return Err(fail("longer than 100 days"));
        }
        let ns = (number * scale_s * 1e9).round() as u64;
        Ok(Timespan(Duration::from_nanos(ns)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_documented_forms() {
        for (text, ns) in [
            ("10", 10_000_000_000),
            ("10s", 10_000_000_000),
            ("500ms", 500_000_000),
            ("0.5s", 500_000_000),
            ("100us", 100_000),
            ("2m", 120_000_000_000),
        ] {
            assert_eq!(text.parse::<Timespan>().unwrap().as_ns(), ns, "{text}");
        }
        for text in ["", "s", "1 s", "-1s", "1y", "101000h"] {
            assert!(text.parse::<Timespan>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_survives_a_round_trip(us in 0u64..4_000_000_000_000) {
            let time = Timespan(Duration::from_micros(us));
            prop_assert_eq!(time.to_string().parse::<Timespan>().unwrap(), time);
        }
    }
}
