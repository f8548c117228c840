//! The record of a run: figures with every repetition, plots, and their origin.

use crate::environment::Environment;
use crate::plot::Plot;
use crate::statistics::Samples;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;

/// A figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// As in the issues and docs/performance.md.
    pub id: String,
    /// Median.
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// Unit.
    pub unit: Cow<'static, str>,
    /// Distance of the quartiles in percent of the median.
    #[serde(deserialize_with = "number")]
    pub spread_percent: f64,
    /// All repetitions.
    #[serde(deserialize_with = "numbers")]
    pub samples: Vec<f64>,
    /// Cores used, batch, ring size, ...
    pub conditions: String,
}

impl Figure {
    /// The median of `samples`, with their spread.
    pub fn of(
        id: impl Into<String>,
        samples: &Samples,
        unit: &'static str,
        conditions: &str,
    ) -> Self {
        Figure {
            id: id.into(),
            value: samples.median(),
            unit: unit.into(),
            spread_percent: samples.spread_percent(),
            samples: samples.values().to_vec(),
            conditions: conditions.to_owned(),
        }
    }
}

/// The run of an experiment, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The experiment's name on the command line.
    pub experiment: String,
    /// The experiment's subject, in a line.
    pub summary: String,
    /// The command that repeats the run.
    pub command: String,
    /// When it ended (RFC 3339, UTC); empty where that makes no difference, in a simulation.
    pub date: String,
    /// Where it ran.
    pub environment: Environment,
    /// As in the environment, when the run ended.
    pub core_to_core_ns_end: Option<f64>,
    /// True if repetitions were few and short.
    pub quick: bool,
    /// In the order in which the experiment gave them.
    pub figures: Vec<Figure>,
    /// The same.
    pub plots: Vec<Plot>,
}

impl Record {
    /// Several runs as one, which `command` repeats; nothing of none.
    pub fn join(records: &[Record], command: &str) -> Option<Record> {
        let (first, rest) = records.split_first()?;
        let mut joined = first.clone();
        for record in rest {
            joined.experiment = "all".to_owned();
            joined.summary = "several experiments, one after the other".to_owned();
            joined.command = command.to_owned();
            joined.date.clone_from(&record.date);
            joined.core_to_core_ns_end = record.core_to_core_ns_end;
            joined.figures.extend_from_slice(&record.figures);
            joined.plots.extend_from_slice(&record.plots);
        }
        Some(joined)
    }
}

/// Returns the command that repeats a run of `program`.
pub fn command(program: &str, experiment: &str, quick: bool) -> String {
    let quick = if quick { " --quick" } else { "" };
    format!("{program} {experiment}{quick}")
}

/// JSON has no NaN: it is written as null.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(from)?;
    Ok(numbers.into_iter().map(|n| n.unwrap_or(f64::NAN)).collect())
}

/// A record with texts that need escaping, for tests.
#[cfg(any(test, feature = "sample"))]
pub fn sample(experiment: &str) -> Record {
    use crate::plot::{Axis, Series};
    let samples = [8.0, 9.0, 10.0].into_iter().collect();
    let mut series = Series::new("inline");
    series.push(1.0, &samples);
    let figure = |id: &str, value: f64, samples: &[f64]| Figure {
        id: format!("{experiment}.{id}"),
        value,
        unit: "us".into(),
        spread_percent: 11.0,
        samples: samples.to_vec(),
        conditions: "one <core> & \"another\" | x".to_owned(),
    };
    Record {
        experiment: experiment.to_owned(),
        summary: "round trips".to_owned(),
        command: command("nfluid-bench", experiment, true),
        date: "2026-11-21T06:00:00.000Z".to_owned(),
        environment: Environment {
            kernel: "6.18".to_owned(),
            cpu: "A <CPU>".to_owned(),
            cores: 2,
            core_to_core_ns: Some(31.0),
            load: 0.5,
            virtualised: true,
            version: "0.1.0".to_owned(),
            commit: Some("0123456789ab".to_owned()),
            optimised: true,
        },
        core_to_core_ns_end: None,
        quick: true,
        figures: vec![
            figure("roundtrip_ratio", 9.0, &[8.0, 9.0, 10.0]),
            figure("nothing", f64::NAN, &[f64::NAN]),
        ],
        plots: vec![Plot {
            id: format!("{experiment}.plot"),
            title: "Round trips".to_owned(),
            x: Axis::linear("core"),
            y: Axis::linear("us"),
            series: vec![series],
        }],
    }
}
