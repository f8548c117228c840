//! Axes: where a value lies on one, where it has marks, and what they say.

use crate::terminal::significant;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// An axis of a plot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity on the axis, with its unit.
    pub label: String,
    /// The scale of the values.
    pub scale: Scale,
}

/// The scale of an axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By their logarithm; values of 0 and below are not shown.
    Log,
    /// Names side by side; a value is the index of a name.
    Categories(Vec<String>),
}

/// Marks that there are at most by value, so that their texts do not touch.
const MARKS: usize = 12;
/// Part of the axis that stays empty at an end.
const MARGIN: f64 = 0.04;

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Axis {
            label: label.into(),
            scale: Scale::Linear,
        }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Axis {
            label: label.into(),
            scale: Scale::Log,
        }
    }

    /// An axis of names.
    pub fn categories<T: Into<String>>(
        label: impl Into<String>,
        names: impl IntoIterator<Item = T>,
    ) -> Self {
        Axis {
            label: label.into(),
            scale: Scale::Categories(names.into_iter().map(Into::into).collect()),
        }
    }

    /// Where `value` lies, in positions that grow evenly along the axis; nowhere if the axis cannot
    /// show it.
    pub(super) fn position(&self, value: f64) -> Option<f64> {
        let position = match &self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
            Scale::Categories(names) => {
                return (0.0..names.len() as f64).contains(&value).then_some(value);
            }
        };
        position.is_finite().then_some(position)
    }

    /// The positions that the axis shows, so that all of `values` are among them.
    pub(super) fn range(&self, values: &[f64]) -> Range<f64> {
        let shown = values.iter().filter_map(|value| self.position(*value));
        let (mut low, mut high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| {
            (a.min(v), b.max(v))
        });
        match &self.scale {
            Scale::Categories(names) => return -0.5..(names.len().max(1) as f64 - 0.5),
            Scale::Linear => (low, high) = (low.min(0.0), high.max(0.0)),
            Scale::Log if low > high => (low, high) = (0.0, 1.0),
            Scale::Log => {}
        }
        let margin = if high > low {
            (high - low) * MARGIN
        } else {
            // A single value in the middle.
            0.5
        };
        let below = if self.scale == Scale::Linear && low == 0.0 {
            0.0
        } else {
            margin
        };
        (low - below)..(high + margin)
    }

    /// Positions of the marks.
    pub(super) fn marks(&self, values: &[f64], range: &Range<f64>) -> Vec<f64> {
        match &self.scale {
            Scale::Linear => even_steps(range),
            Scale::Categories(names) => (0..names.len()).map(|i| i as f64).collect(),
            Scale::Log => {
                let mut marks: Vec<f64> = values.iter().filter_map(|v| self.position(*v)).collect();
                marks.sort_by(f64::total_cmp);
                marks.dedup();
                let apart = marks
                    .windows(2)
                    .all(|pair| pair[1] - pair[0] > (range.end - range.start) / MARKS as f64 / 2.0);
                if marks.len() > MARKS || !apart {
                    marks = round_numbers(range);
                }
                marks
            }
        }
    }

    /// Returns the label of a mark.
    pub(super) fn text(&self, position: f64) -> String {
        let number = |value: f64| {
            let text = significant(value);
            match text.split_once('.') {
                Some((whole, part)) if part.bytes().all(|digit| digit == b'0') => whole.to_owned(),
                Some(_) => text.trim_end_matches('0').to_owned(),
                None => text,
            }
        };
        match &self.scale {
            Scale::Linear => number(position),
            Scale::Log => number(10f64.powf(position)),
            Scale::Categories(names) => names
                .get(position.round().max(0.0) as usize)
                .cloned()
                .unwrap_or_default(),
        }
    }
}

/// Multiples of 1, 2 or 5 times a power of ten, about ten of them.
fn even_steps(range: &Range<f64>) -> Vec<f64> {
    let raw = (range.end - range.start) / 10.0;
    let power = 10f64.powf(raw.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let factor = factors.into_iter().find(|f| f * power >= raw * 0.999);
    let step = power * factor.unwrap_or(10.0);
    let first = (range.start / step).ceil();
    (0..=2 * MARKS)
        .map(|i| (first + i as f64) * step)
        .take_while(|mark| *mark <= range.end)
        .collect()
}

/// 1, 2 and 5 of each power of ten; the powers alone where those would be too many.
fn round_numbers(range: &Range<f64>) -> Vec<f64> {
    let decades = range.start.floor() as i32..=range.end.ceil() as i32;
    let factors: &[f64] = if range.end - range.start > 4.0 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    decades
        .flat_map(|power| factors.iter().map(move |f| f64::from(power) + f.log10()))
        .filter(|position| range.contains(position))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Axis;

    #[test]
    fn linear_axes_begin_at_zero_and_show_everything() {
        let axis = Axis::linear("Mpps");
        let range = axis.range(&[2.0, 10.0]);
        assert!(range.start == 0.0 && range.end > 10.0);
        let range = axis.range(&[-5.0, 10.0]);
        assert!(range.start < -5.0 && range.end > 10.0);
        assert!(!axis.range(&[]).is_empty());
        assert_eq!(
            axis.marks(&[], &(0.0..10.4)),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
    }

    #[test]
    fn log_axes_are_marked_with_the_values_or_with_round_numbers() {
        let axis = Axis::log("bytes");
        let texts = |values: &[f64]| -> Vec<String> {
            let range = axis.range(values);
            let marks = axis.marks(values, &range);
            marks.iter().map(|mark| axis.text(*mark)).collect()
        };
        assert_eq!(texts(&[1514.0, 64.0, 256.0]), ["64", "256", "1514"]);
        assert_eq!(texts(&[10.0, 10.1, 10.2, 900.0])[1], "20");
        assert_eq!(axis.position(0.0), None);
        assert_eq!(axis.position(-1.0), None);
    }

    #[test]
    fn categories_have_their_names() {
        let axis = Axis::categories("share", ["50/50", "30/70"]);
        let range = axis.range(&[]);
        assert_eq!(axis.marks(&[], &range), [0.0, 1.0]);
        assert_eq!(axis.text(1.0), "30/70");
        assert_eq!(axis.position(2.0), None);
    }
}
