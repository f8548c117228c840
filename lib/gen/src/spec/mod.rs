//! Specification of traffic: sizes, rate, flows, and the content of each frame.
//!
//! Every part is read from one word of text, the same on the command line, in a script and in a
//! file, and is written back as text that reads the same.

mod address;
mod flow;
mod rate;
mod size;
mod time;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use address::{AddressRange, PortRange};
pub use flow::{FLOWS_MAX, FlowIndex, FlowSpec, Transport};
pub use rate::{LAYER1_OVERHEAD, Rate};
pub use size::Sizes;
pub use time::Timespan;

/// A part of a specification that cannot be understood or met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} \"{text}\": {reason}")]
pub struct SpecError {
    /// The intended meaning of the text, as in "frame size".
    pub what: &'static str,
    /// The text, cut to a length fit for a message.
    pub text: String,
    /// The defect, and the right form.
    pub reason: String,
}

/// Most characters of a user's text that an error repeats.
const QUOTED_MAX: usize = 60;

impl SpecError {
    pub(crate) fn new(what: &'static str, text: &str, reason: impl fmt::Display) -> Self {
        let text = text.chars().take(QUOTED_MAX).collect();
        SpecError {
            what,
            text,
            reason: reason.to_string(),
        }
    }
}

/// The content of a frame behind its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Content {
    /// A stream header with sequence number, time and check, renewed for every frame: the receiver can detect loss,
    /// duplication, order, corruption and latency.
    #[default]
    Stamped,
    /// Always the same frames; per frame only the length is set where the port allows it. The
    /// cheapest load, which can only be counted.
    Constant,
}

/// The traffic of one generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficSpec {
    /// Frame sizes in bytes without FCS.
    pub sizes: Sizes,
    /// Offered rate.
    pub rate: Rate,
    /// Headers of the frames.
    pub flows: FlowSpec,
    /// The content of the frames.
    pub content: Content,
    /// Most frames handed over at once, 1 to 256.
    pub burst: usize,
    /// Frames to send; without it, until the time is up.
    pub count: Option<u64>,
    /// How long to send; without it, until the count is reached.
    pub duration: Option<Timespan>,
}

impl Default for TrafficSpec {
    fn default() -> Self {
        TrafficSpec {
            sizes: Sizes::fixed(64).expect("64 is a frame size"),
            rate: Rate::Max,
            flows: FlowSpec::default(),
            content: Content::default(),
            burst: 64,
            count: None,
            duration: None,
        }
    }
}

/// Splits `1.5Mpps` into 1.5 and `Mpps`. Signs and exponents are no part of a number here.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// Makes a type that has `FromStr` and `Display` a string to serde.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = SpecError;
            fn try_from(text: String) -> Result<Self, SpecError> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}
use serde_as_text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_survives_json() {
        let spec = TrafficSpec {
            sizes: "imix".parse().unwrap(),
            rate: "1.5Mpps".parse().unwrap(),
            duration: Some("500ms".parse().unwrap()),
            ..TrafficSpec::default()
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.contains("\"1.5Mpps\""), "{text}");
        assert_eq!(serde_json::from_str::<TrafficSpec>(&text).unwrap(), spec);
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused() {
        for text in [
            r#"{"size": "64"}"#,
            r#"{"sizes": "13"}"#,
            r#"{"rate": "fast"}"#,
        ] {
            assert!(serde_json::from_str::<TrafficSpec>(text).is_err(), "{text}");
        }
    }
}
