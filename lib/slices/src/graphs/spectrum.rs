//! Spectrum: finds the frequencies that are in use. The example of the guide "your own slice".

use crate::application::{RESULT_BYTES_MAX, SliceApplication};
use crate::radio::{self, SAMPLE_BYTES};
use bytemuck::{cast_slice, cast_slice_mut};
use nfluid_baseband::Sample;
use nfluid_baseband::transform::Transform;
use nfluid_dataflow::engine::{Application, Call, Failure, Finished};
use nfluid_dataflow::graph::{Builder, Graph, GraphError, Task, TaskId};
use nfluid_nf::{ConfigError, config};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// The parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    /// Frequencies: samples of a transform.
    bins: usize,
    /// Transforms in an interval, whose powers are added up.
    transforms: usize,
    /// A frequency is in use if its power is so many times the mean.
    threshold: f32,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            bins: 512,
            transforms: 16,
            threshold: 8.0,
        }
    }
}

const TRANSFORM: u16 = 0;
const POWER: u16 = 1;
const THRESHOLD: u16 = 2;

/// The application.
struct Spectrum {
    parameters: Parameters,
    transform: Transform,
    graph: Graph,
    threshold: TaskId,
}

/// Builds the application.
///
/// # Errors
/// A parameter out of its bounds.
pub fn build(value: &Value) -> Result<Arc<dyn SliceApplication>, ConfigError> {
    let parameters: Parameters = config::parse(value)?;
    if !(8..=4096).contains(&parameters.bins) || !parameters.bins.is_power_of_two() {
        return Err(ConfigError::at(
            "bins",
            "write a power of two from 8 to 4096",
        ));
    }
    if !(1..=256).contains(&parameters.transforms) {
        return Err(ConfigError::at("transforms", "write 1 to 256"));
    }
    if !(parameters.threshold.is_finite() && parameters.threshold > 0.0) {
        return Err(ConfigError::at("threshold", "write a number above 0"));
    }
    let graph = compose(parameters).map_err(|error| ConfigError::at("", error.to_string()))?;
    Ok(Arc::new(Spectrum {
        transform: Transform::new(parameters.bins),
        threshold: parameters.transforms as TaskId + 1,
        parameters,
        graph,
    }))
}

/// A task per transform, one that adds up their powers, and one that compares.
fn compose(parameters: Parameters) -> Result<Graph, GraphError> {
    let mut builder = Builder::new();
    let task = |kind: u16, argument: usize, bytes: usize, cost: usize| Task {
        kind,
        output_bytes: (bytes * parameters.bins) as u32,
        cost: (cost * parameters.bins) as u64,
        argument: argument as u64,
    };
    for index in 0..parameters.transforms {
        builder.task(task(TRANSFORM, index, size_of::<Sample>(), 10))?;
    }
    let power = builder.task(task(POWER, 0, size_of::<f32>(), parameters.transforms))?;
    for index in 0..parameters.transforms {
        builder.edge(index as TaskId, power, 0)?;
    }
    let threshold = builder.task(task(THRESHOLD, 0, size_of::<f32>(), 1))?;
    builder.edge(power, threshold, 0)?;
    builder.build()
}

impl Application for Spectrum {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        match call.kind {
            TRANSFORM => {
                let all: &[Sample] = cast_slice(call.external);
                let begin = call.argument as usize * self.parameters.bins;
                let samples = all.get(begin..begin + self.parameters.bins);
                let samples = samples.ok_or_else(|| Failure("samples are missing".to_owned()))?;
                let output: &mut [Sample] = cast_slice_mut(call.output);
                output.copy_from_slice(samples);
                self.transform.forward(output);
            }
            POWER => {
                let sums: &mut [f32] = cast_slice_mut(call.output);
                sums.fill(0.0);
                for spectrum in call.inputs.iter() {
                    let spectrum: &[Sample] = cast_slice(spectrum);
                    for (sum, value) in sums.iter_mut().zip(spectrum) {
                        *sum += value.norm_sqr();
                    }
                }
            }
            _ => {
                let powers: &[f32] = cast_slice(call.inputs.get(0));
                let mean = powers.iter().sum::<f32>() / powers.len() as f32;
                let ratios: &mut [f32] = cast_slice_mut(call.output);
                for (ratio, power) in ratios.iter_mut().zip(powers) {
                    let is_in_use = *power > mean * self.parameters.threshold;
                    *ratio = if is_in_use { power / mean } else { 0.0 };
                }
            }
        }
        Ok(())
    }
}

impl SliceApplication for Spectrum {
    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["transform", "power", "threshold"]
    }

    fn input_bytes(&self) -> usize {
        self.parameters.bins * self.parameters.transforms * SAMPLE_BYTES
    }

    fn external(&self, input: &[u8], _phase: u8) -> Arc<[u8]> {
        cast_slice(&radio::samples(input)).into()
    }

    /// Each result is a list of frequencies in use: the bin's number, 16 bits, and its power over the mean, 32 bits IEEE 754,
    /// big-endian. There is always one, which may be empty.
    fn results(&self, finished: &Finished, sink: &mut dyn FnMut(&[u8])) {
        const ENTRY: usize = 6;
        let ratios: &[f32] = cast_slice(finished.output(self.threshold).unwrap_or_default());
        let in_use = ratios.iter().enumerate().filter(|(_, ratio)| **ratio > 0.0);
        let mut list = Vec::new();
        for (bin, ratio) in in_use {
            list.extend((bin as u16).to_be_bytes());
            list.extend(ratio.to_be_bytes());
        }
        let mut lists = list.chunks(RESULT_BYTES_MAX / ENTRY * ENTRY);
        sink(lists.next().unwrap_or_default());
        lists.for_each(sink);
    }
}
