//! Where the time goes: each phase over all runs.

use crate::trace::Run;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::{significant, table_text};

/// Standard deviations of a mean on each side in which it lies with a probability of 95 %.
const SIDE: f64 = 1.96;

/// The phases of runs, and the whole.
pub struct Breakdown {
    phases: Vec<(&'static str, Samples)>,
    whole: Samples,
}

impl Breakdown {
    /// Divides runs into their phases.
    pub fn of(runs: Vec<Run>) -> Self {
        let mut this = Breakdown {
            phases: Vec::new(),
            whole: Samples::default(),
        };
        for run in runs {
            let mut place = 0;
            for pair in run.marks.windows(2) {
                let [(_, begun), (phase, ended)] = [pair[0], pair[1]];
                let found = this.phases.iter().position(|(name, _)| *name == phase);
                place = match found {
                    Some(found) => found + 1,
                    None => {
                        // Behind the phase that is before it in this run.
                        this.phases.insert(place, (phase, Samples::default()));
                        place + 1
                    }
                };
                this.phases[place - 1].1.push(ended - begun);
            }
            if let [(_, begun), .., (_, ended)] = run.marks[..] {
                this.whole.push(ended - begun);
            }
        }
        this
    }

    /// The number of runs.
    pub fn count(&self) -> usize {
        self.whole.values().len()
    }

    fn rows(&self) -> impl Iterator<Item = (&str, &Samples)> {
        let phases = self.phases.iter().map(|(name, samples)| (*name, samples));
        phases.chain([("in all", &self.whole)])
    }

    /// A table for people.
    pub fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows()
            .map(|(name, samples)| {
                let numbers = [
                    samples.mean(),
                    interval(samples),
                    samples.median(),
                    samples.p99(),
                ];
                let mut row = vec![name.to_owned()];
                row.extend(numbers.map(significant));
                row.push(samples.values().len().to_string());
                row
            })
            .collect();
        let title = format!(
            "From the request until it runs, in ms, {} times",
            self.count()
        );
        table_text(
            &title,
            &["phase", "mean", "+/- 95 %", "median", "p99", "runs"],
            &rows,
        )
    }

    /// The same as a picture: the median of each phase, with a bar from the lower to the upper quartile.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut series = Series::new("phases");
        for (at, (_, samples)) in (0u32..).zip(self.rows()) {
            series.push(f64::from(at), samples);
        }
        let plot = Plot {
            id: "orchestra".to_owned(),
            title: format!("From the request until it runs, {} times", self.count()),
            x: Axis::categories("phase", self.rows().map(|(name, _)| name)),
            y: Axis::linear("ms"),
            series: vec![series],
        };
        plot.svg()
    }
}

/// Half of the interval in which the mean lies with a probability of 95 %.
fn interval(samples: &Samples) -> f64 {
    let values = samples.values();
    let count = values.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let mean = samples.mean();
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    SIDE * (squares / (count - 1.0) / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(marks: &[(&'static str, f64)]) -> Run {
        let mut run = Run::new("x", 100.0);
        for (phase, at) in marks {
            run.end_of(phase, Some(*at));
        }
        run
    }

    // promise: 28.1
    #[test]
    fn phases_keep_their_order_and_add_up() {
        let breakdown = Breakdown::of(vec![
            run(&[("API", 103.0), ("driver", 110.0)]),
            run(&[("API", 105.0), ("artifacts", 106.0), ("driver", 112.0)]),
        ]);
        let found: Vec<_> = breakdown
            .rows()
            .map(|(name, samples)| (name, samples.mean()))
            .collect();
        assert_eq!(
            found,
            [
                ("API", 4.0),
                ("artifacts", 1.0),
                ("driver", 6.5),
                ("in all", 11.0)
            ]
        );
        let text = breakdown.text();
        assert!(text.contains("2 times") && text.contains("1.960"), "{text}");
        assert!(breakdown.svg().expect("a picture").contains("artifacts"));
    }

    #[test]
    fn nothing_is_no_breakdown() {
        assert_eq!(Breakdown::of(Vec::new()).count(), 0);
    }
}
