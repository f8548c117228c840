//! Plots: what an experiment hands its report, and what is drawn from it.
//!
//! ```text
//! let mut inline = Series::new("inline");
//! inline.push(64.0, &samples);           // x, and the repetitions measured there
//! report.plot(Plot {
//!     id: "h5.bridge".to_owned(),         // h5.bridge.svg in the results folder
//!     title: "Bridge, one core's worth".to_owned(),
//!     x: Axis::log("frame size in bytes"),
//!     y: Axis::linear("Mpps"),
//!     series: vec![inline],
//! });
//! ```
//! A point is a median, with a bar from the lower to the upper quartile; what was measured once, as
//! in a plot over time, is `series.push(second, &Samples::from(value))`.

mod axis;
mod svg;

pub use axis::Axis;

use crate::statistics::Samples;
use serde::{Deserialize, Serialize};

/// A plot: lines over a common x axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plot {
    /// Name of its file without `.svg`, as in the figures' ids: `h2.firewall10`.
    pub id: String,
    /// The title, in a line.
    pub title: String,
    /// The axis of what was varied.
    pub x: Axis,
    /// The axis of what was measured.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// A line of a plot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// On the x axis; the index of a category.
    pub x: f64,
    /// Median of the repetitions.
    pub median: f64,
    /// Their lower quartile.
    pub low: f64,
    /// Their upper quartile.
    pub high: f64,
}

impl Plot {
    /// Adds the points of another part of the same plot.
    pub fn extend(&mut self, other: Plot) {
        for series in other.series {
            match self.series.iter_mut().find(|own| own.name == series.name) {
                Some(own) => own.points.extend(series.points),
                None => self.series.push(series),
            }
        }
    }
}

impl Series {
    /// A line without points.
    pub fn new(name: impl Into<String>) -> Self {
        Series {
            name: name.into(),
            points: Vec::new(),
        }
    }

    /// Adds what was measured at `x`. Without a repetition, and where a number is not finite, there
    /// is no point.
    pub fn push(&mut self, x: f64, samples: &Samples) {
        let point = Point {
            x,
            median: samples.median(),
            low: samples.low_quartile(),
            high: samples.high_quartile(),
        };
        let numbers = [point.x, point.median, point.low, point.high];
        if !samples.values().is_empty() && numbers.into_iter().all(f64::is_finite) {
            self.points.push(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::axis::Scale;
    use super::{Axis, Plot, Series};
    use crate::statistics::Samples;

    fn plot(x: Axis, y: Axis) -> Plot {
        let mut measured = Series::new("inline");
        for (x, values) in [(64.0, [1.0, 2.0, 4.0]), (1514.0, [0.5, 0.6, 0.7])] {
            measured.push(x, &values.into_iter().collect());
        }
        let mut other = Series::new("split & <merge>");
        other.push(256.0, &Samples::from(3.0));
        Plot {
            id: "h5.test".to_owned(),
            title: "Bridge \"alone\"".to_owned(),
            x,
            y,
            series: vec![measured, other],
        }
    }

    #[test]
    fn the_drawing_has_title_axes_and_every_series() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = |label: &str| Axis {
                label: label.to_owned(),
                scale: scale.clone(),
            };
            let svg = plot(axis("bytes"), axis("Mpps")).svg().unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            for text in [
                "bytes",
                "Mpps",
                "inline",
                "split &amp; &lt;merge&gt;",
                "Bridge &quot;alone&quot;",
            ] {
                assert!(svg.contains(text), "no {text}: {svg}");
            }
            assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
            assert_eq!(svg.matches("stroke-width=\"2\"").count(), 2, "{svg}");
        }
    }

    #[test]
    fn parts_of_a_plot_make_one() {
        let mut whole = plot(Axis::log("bytes"), Axis::log("Mpps"));
        let mut more = whole.clone();
        more.series.truncate(1);
        more.series.push(Series::new("merge"));
        whole.extend(more);
        let points: Vec<_> = whole.series.iter().map(|s| s.points.len()).collect();
        assert_eq!(points, [4, 1, 0]);
        assert_eq!(whole.series[2].name, "merge");
    }

    #[test]
    fn categories_are_named_under_the_axis() {
        let mut series = Series::new("A");
        series.push(0.0, &Samples::from(-3.0));
        series.push(1.0, &Samples::from(2.0));
        let plot = Plot {
            series: vec![series],
            ..plot(
                Axis::categories("share", ["50/50", "30/70"]),
                Axis::linear("error in %"),
            )
        };
        let svg = plot.svg().unwrap();
        assert!(svg.contains("50/50") && svg.contains("30/70"), "{svg}");
    }

    #[test]
    fn values_that_an_axis_cannot_show_are_left_out() {
        let mut series = Series::new("none");
        series.push(1.0, &Samples::default());
        series.push(1.0, &Samples::from(f64::NAN));
        series.push(f64::INFINITY, &Samples::from(1.0));
        assert!(series.points.is_empty());
        series.push(0.0, &Samples::from(1.0));
        let mut plot = plot(Axis::log("x"), Axis::log("y"));
        plot.series = vec![series];
        let svg = plot.svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 0, "no zero on a log axis");
        plot.series.clear();
        assert!(plot.svg().is_ok(), "nothing was measured");
    }
}
