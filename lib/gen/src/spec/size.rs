//! Frame sizes: one, several, all of a range, or a mix with weights.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{SpecError, serde_as_text};
use crate::io::{FRAME_MAX, FRAME_MIN};

/// The IMIX of CSIT, 28 x 64, 16 x 570 and 4 x 1518 bytes with FCS, as it is in slots: without the
/// four bytes of FCS.
pub const IMIX: &str = "60:28,566:16,1514:4";

/// Most frames in one round of a mix.
const CYCLE_MAX: u32 = 10_000;

/// Sizes of frames in bytes without FCS, and how often each comes.
///
/// Text: `64`, `64,128`, `64-1514` (every size of the range once per round), `60:28,566:16,1514:4`
/// (size:weight), or `imix`. The sizes of a mix are spread evenly over a round, always in the same
/// order, so that runs can be repeated exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sizes {
    text: String,
    sizes: Vec<u16>,
    /// A round: indices into `sizes`.
    round: Vec<u16>,
}

serde_as_text!(Sizes);

impl Sizes {
    /// Frames of one size in bytes.
    ///
    /// # Errors
    /// When `size` is outside [`FRAME_MIN`]..=[`FRAME_MAX`].
    pub fn fixed(size: usize) -> Result<Self, SpecError> {
        size.to_string().parse()
    }

    /// The different sizes in bytes.
    pub fn sizes(&self) -> &[u16] {
        &self.sizes
    }

    /// The order in which the sizes come, again and again: indices into [`sizes`](Self::sizes).
    pub fn round(&self) -> &[u16] {
        &self.round
    }

    /// Mean size in bytes.
    pub fn mean(&self) -> f64 {
        let total: u64 = self
            .round
            .iter()
            .map(|&i| u64::from(self.sizes[usize::from(i)]))
            .sum();
        total as f64 / self.round.len() as f64
    }

    /// The smallest size in bytes.
    pub fn smallest(&self) -> usize {
        usize::from(self.sizes.iter().copied().min().unwrap_or_default())
    }

    /// The largest size in bytes.
    pub fn largest(&self) -> usize {
        usize::from(self.sizes.iter().copied().max().unwrap_or_default())
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Sizes {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let fail = |reason: String| SpecError::new("frame sizes", text, reason);
        let list = if text == "imix" { IMIX } else { text };
        let mut weights = Vec::new();
        for part in list.split(',') {
            weights.extend(parse_part(part).map_err(fail)?);
            if weights.len() > CYCLE_MAX as usize {
                return Err(fail(format!("more than {CYCLE_MAX} sizes in one round")));
            }
        }
        let divisor = weights
            .iter()
            .fold(0, |divisor, &(_, weight)| gcd(divisor, weight));
        weights
            .iter_mut()
            .for_each(|(_, weight)| *weight /= divisor.max(1));
        let total: u64 = weights.iter().map(|&(_, weight)| u64::from(weight)).sum();
        if total > u64::from(CYCLE_MAX) {
            return Err(fail(format!("the weights add up to more than {CYCLE_MAX}")));
        }
        Ok(Sizes {
            text: text.to_owned(),
            sizes: weights.iter().map(|&(size, _)| size).collect(),
            round: spread(&weights),
        })
    }
}

/// Reads `64`, `64:7`, `64-1514` or `64-1514:7` into (size, weight) pairs.
fn parse_part(part: &str) -> Result<Vec<(u16, u32)>, String> {
    let (range, weight) = match part.split_once(':') {
        None => (part, 1),
        Some((range, weight)) => match weight.parse() {
            Ok(weight @ 1..=CYCLE_MAX) => (range, weight),
            _ => return Err(format!("the weight \"{weight}\" is not 1 to {CYCLE_MAX}")),
        },
    };
    let (first, last) = match range.split_once('-') {
        None => (parse_size(range)?, parse_size(range)?),
        Some((first, last)) => (parse_size(first)?, parse_size(last)?),
    };
    if first > last {
        return Err(format!("the range {first}-{last} runs downwards"));
    }
    Ok((first..=last).map(|size| (size, weight)).collect())
}

fn parse_size(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(size) if (FRAME_MIN..=FRAME_MAX).contains(&usize::from(size)) => Ok(size),
        _ => Err(format!(
            "\"{text}\" is not a size of {FRAME_MIN} to {FRAME_MAX} bytes; \
             write 64, 64,128, 64-1514, 60:7,1514:1 or imix"
        )),
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Smooth weighted round robin: each step raises every size's credit by its weight and takes the
/// one with the most, which pays the total.
fn spread(weights: &[(u16, u32)]) -> Vec<u16> {
    let total: i64 = weights.iter().map(|&(_, weight)| i64::from(weight)).sum();
    if weights.iter().all(|&(_, weight)| weight == 1) {
        return (0..weights.len() as u16).collect();
    }
    let mut credit = vec![0i64; weights.len()];
    (0..total)
        .map(|_| {
            let mut richest = 0;
            for index in 0..credit.len() {
                credit[index] += i64::from(weights[index].1);
                if credit[index] > credit[richest] {
                    richest = index;
                }
            }
            credit[richest] -= total;
            richest as u16
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(text: &str) -> Sizes {
        text.parse().unwrap()
    }

    #[test]
    fn imix_has_the_documented_mean_and_is_spread() {
        let imix = sizes("imix");
        let expected = (28.0 * 60.0 + 16.0 * 566.0 + 4.0 * 1514.0) / 48.0;
        assert!((imix.mean() - expected).abs() < 1e-9);
        assert_eq!(imix.round().len(), 12);
        assert!(
            imix.round().windows(4).all(|run| run.contains(&0)),
            "{:?}",
            imix.round()
        );
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(sizes("64,128").sizes(), [64, 128]);
        assert_eq!(sizes("64-67").round(), [0, 1, 2, 3]);
        assert_eq!(sizes("64-1514").sizes().len(), 1451);
        assert_eq!(
            (sizes("1514,64").smallest(), sizes("1514,64").largest()),
            (64, 1514)
        );
    }

    #[test]
    fn refusals_say_why() {
        for (text, reason) in [
            ("", "not a size"),
            ("13", "14 to 2032"),
            ("2033", "14 to 2032"),
            ("100-64", "downwards"),
            ("64:0", "weight"),
            ("64:9999,65:9998", "add up"),
            ("14-2032,14-2032,14-2032,14-2032,14-2032", "more than"),
        ] {
            let error = text.parse::<Sizes>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-z,:-]{0,40}") {
            let _ = text.parse::<Sizes>();
        }

        #[test]
        fn weights_are_kept(weights in prop::collection::vec((14u16..=2032, 1u32..50), 1..8)) {
            let list: Vec<_> = weights.iter().map(|(s, w)| format!("{s}:{w}")).collect();
            let sizes: Sizes = list.join(",").parse().unwrap();
            let total: u32 = weights.iter().map(|&(_, weight)| weight).sum();
            for (index, &(_, weight)) in weights.iter().enumerate() {
                let hits = sizes.round().iter().filter(|&&i| usize::from(i) == index).count();
                prop_assert_eq!(hits as u64 * u64::from(total),
                    u64::from(weight) * sizes.round().len() as u64);
            }
            prop_assert_eq!(sizes.to_string().parse::<Sizes>().unwrap(), sizes);
        }
    }
}
