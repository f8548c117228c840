//! Parts of the CPUs: of one core, or of all CPUs that instances can use.

use crate::quantity::{Share, ValueError, percentage, serialize_as_text};
use std::fmt;
use std::str::FromStr;

/// The quantity that a portion is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Whole {
    /// A single core.
    Core,
    /// All CPUs that instances can use.
    Platform,
}

/// A part of the CPUs as it is written in a document: `30%` is of one core, `30% of platform` of all CPUs that
/// instances can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Portion {
    hundredths: u32,
    of: Whole,
}

/// Maximum portion: 1000 cores, in hundredths of a percent of a core.
const MOST: u32 = 1000 * Share::FULL.hundredths();

const REMEDY: &str =
    "write a part of one core, for example 30%, or of all CPUs of the platform: 30% of platform";
const GROUP_REMEDY: &str = "write a part of one core, for example 250% for two and a half, or of all CPUs of the platform: 30% of platform";

impl Portion {
    /// Returns a part of one core.
    pub const fn of_core(share: Share) -> Self {
        Portion {
            hundredths: share.hundredths(),
            of: Whole::Core,
        }
    }

    /// Returns the portion in hundredths of a percent of one core, if instances can use `cpus` CPUs; at least 1.
    pub fn hundredths(self, cpus: usize) -> u64 {
        let part = u64::from(self.hundredths);
        match self.of {
            Whole::Core => part,
            Whole::Platform => part.saturating_mul(cpus as u64).max(1),
        }
    }

    /// Returns the portion in percent of one core, if instances can use `cpus` CPUs.
    pub fn percent(self, cpus: usize) -> f64 {
        self.hundredths(cpus) as f64 / 100.0
    }

    /// Parses the portion of an instance: at most one core, or a part of the platform.
    ///
    /// # Errors
    /// The text is invalid; the error describes valid texts.
    pub fn of_instance(text: &str) -> Result<Self, ValueError> {
        let (number, of) = split(text)?;
        let share: Share = number.parse()?;
        Ok(Portion {
            of,
            ..Portion::of_core(share)
        })
    }
}

/// Returns the percentage, and the quantity that it refers to.
fn split(text: &str) -> Result<(&str, Whole), ValueError> {
    match text.split_once(" of ") {
        None => Ok((text, Whole::Core)),
        Some((number, whole)) => match whole.trim() {
            "core" => Ok((number, Whole::Core)),
            "platform" => Ok((number, Whole::Platform)),
            other => {
                let message = format!("there is no part of '{}'", other.escape_debug());
                Err(ValueError::new(message, REMEDY))
            }
        },
    }
}

impl FromStr for Portion {
    type Err = ValueError;

    /// Parses the portion of a group: any number of cores, or a part of the platform.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (number, of) = split(text)?;
        let most = match of {
            Whole::Core => MOST,
            Whole::Platform => Share::FULL.hundredths(),
        };
        let hundredths = percentage(number, most, GROUP_REMEDY)?;
        Ok(Portion { hundredths, of })
    }
}

impl fmt::Display for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.hundredths) / 100.0)?;
        match self.of {
            Whole::Core => Ok(()),
            Whole::Platform => f.write_str(" of platform"),
        }
    }
}

serialize_as_text!(Portion);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_a_core_and_of_the_platform() {
        let core: Portion = "30%".parse().unwrap();
        assert_eq!((core.hundredths(1), core.hundredths(8)), (3000, 3000));
        assert_eq!("30% of core".parse(), Ok(core));
        let platform: Portion = "30% of platform".parse().unwrap();
        assert_eq!(platform.percent(8), 240.0);
        let several: Portion = "250%".parse().unwrap();
        assert_eq!(several.percent(8), 250.0);
        assert!(Portion::of_instance("250%").is_err());
        assert_eq!(Portion::of_instance("30% of platform"), Ok(platform));
    }

    #[test]
    fn absurd_ones_are_refused() {
        for bad in [
            "-1%",
            "0%",
            "30",
            "inf%",
            "NaN%",
            "100001%",
            "101% of platform",
            "-3% of platform",
            "30% of moon",
            "30% of",
            "of platform",
            "",
        ] {
            assert!(bad.parse::<Portion>().is_err(), "{bad}");
            assert!(Portion::of_instance(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(hundredths in 1u32..=10_000, platform in any::<bool>()) {
            let of = if platform { Whole::Platform } else { Whole::Core };
            let portion = Portion { hundredths, of };
            prop_assert_eq!(portion.to_string().parse(), Ok(portion));
            prop_assert_eq!(Portion::of_instance(&portion.to_string()), Ok(portion));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", cpus in any::<usize>()) {
            if let Ok(portion) = text.parse::<Portion>() {
                portion.hundredths(cpus);
            }
        }
    }
}
