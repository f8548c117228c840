//! Configuration of an instance of slices.

use crate::application::SliceApplication;
use crate::catalogue::{self, below};
use nfluid_dataflow::manager::{Partition, SLICES_MAX, SliceId, SliceSet, Window};
use nfluid_nf::{ConfigError, config};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most PEs of an instance: a thread each.
const PES_MAX: usize = 64;
/// Most processes of PEs in an instance: a sandbox has room for 256 threads.
const PROCESSES_MAX: usize = 128;
/// Longest interval and deadline.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Longest input of an interval in bytes: a message can name each place in it.
const INPUT_MAX: usize = crate::message::AT_MAX as usize + 1;
/// The port to which samples are sent, unless told otherwise.
const UDP_PORT: u16 = 4991;

/// Where the core manager runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// On the thread of PE 0.
    #[default]
    Pe,
    /// On a thread of its own.
    Own,
}

/// PEs as threads or as processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackEnd {
    /// A thread.
    #[default]
    Threads,
    /// A process per slice.
    Processes,
}

impl BackEnd {
    pub fn name(self) -> &'static str {
        match self {
            BackEnd::Threads => "threads",
            BackEnd::Processes => "processes",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    pes: usize,
    back_end: BackEnd,
    manager: Option<Manager>,
    port: u16,
    slices: BTreeMap<String, SliceDocument>,
}

impl Default for Document {
    fn default() -> Self {
        Document {
            pes: 1,
            back_end: BackEnd::Threads,
            manager: None,
            port: UDP_PORT,
            slices: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SliceDocument {
    graph: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    id: u16,
    #[serde(default = "millisecond")]
    interval: Time,
    deadline: Option<Time>,
    #[serde(default)]
    rank: u8,
    pes: Option<Vec<usize>>,
    window: Option<[Time; 2]>,
}

/// A time, as `500us`, `1ms` or `2s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Time(Duration);

fn millisecond() -> Time {
    Time(Duration::from_millis(1))
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let read = |unit: &str, of: fn(u64) -> Duration| {
            let number = text.strip_suffix(unit)?.trim_end();
            Some(Time(of(number.parse::<u32>().ok()?.into())))
        };
        read("us", Duration::from_micros)
            .or_else(|| read("ms", Duration::from_millis))
            .or_else(|| read("s", Duration::from_secs))
            .ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "'{text}' is no time; write a whole number and a unit (us, ms, s), for example 500us"
                ))
            })
    }
}

/// The configuration, checked.
#[derive(Clone)]
pub struct Config {
    pub pes: usize,
    pub back_end: BackEnd,
    pub manager: Manager,
    /// UDP port of messages.
    pub port: u16,
    pub slices: Vec<SliceConfig>,
}

/// A slice.
#[derive(Clone)]
pub struct SliceConfig {
    pub name: String,
    pub graph: String,
    pub parameters: Value,
    pub application: Arc<dyn SliceApplication>,
    /// Number in messages.
    pub id: u16,
    pub interval: Duration,
    pub deadline: Duration,
    pub rank: u8,
    /// PEs that the slice may use; absent: all.
    pub pes: Option<Vec<usize>>,
    /// Part of the interval in which the slice runs, in nanoseconds; absent: all of it.
    pub window: Option<[u64; 2]>,
}

/// How an instance's slices divide PEs (Superfluidity D5.2, figure 7-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Spatial,
    Temporal,
    SpatioTemporal,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Shared => "shared",
            Mode::Spatial => "spatial",
            Mode::Temporal => "temporal",
            Mode::SpatioTemporal => "spatio-temporal",
        }
    }
}

impl Config {
    pub fn parse(value: &Value) -> Result<Self, ConfigError> {
        let document: Document = config::parse(value)?;
        within("pes", document.pes, 1, PES_MAX)?;
        if document.slices.is_empty() || document.slices.len() > SLICES_MAX {
            let message = format!(
                "an instance has 1 to {SLICES_MAX} slices, not {}",
                document.slices.len()
            );
            return Err(ConfigError::at("slices", message));
        }
        let mut slices: Vec<SliceConfig> = Vec::new();
        for (name, slice) in document.slices {
            let path = format!("slices.{name}");
            check_name(&name).map_err(|error| below(&path, error))?;
            let slice = slice.checked(name, document.pes);
            let slice = slice.map_err(|error| below(&path, error))?;
            if let Some(other) = slices.iter().find(|other| other.id == slice.id) {
                let message = format!("the slice '{}' has this number", other.name);
                return Err(ConfigError::at(format!("{path}.id"), message));
            }
            slices.push(slice);
        }
        let processes: usize = slices
            .iter()
            .map(|slice| slice.pes.as_ref().map_or(document.pes, Vec::len))
            .sum();
        if document.back_end == BackEnd::Processes && processes > PROCESSES_MAX {
            let message = format!(
                "the slices' PEs are {processes} processes, and an instance has at most {PROCESSES_MAX}: \
                 give each slice PEs of its own with 'pes'"
            );
            return Err(ConfigError::at("back_end", message));
        }
        let manager = match (document.back_end, document.manager) {
            (BackEnd::Processes, Some(Manager::Pe)) => {
                let message = "no kernel runs beside the core manager if PEs are processes: remove 'manager', or write 'own'";
                return Err(ConfigError::at("manager", message));
            }
            (BackEnd::Processes, _) => Manager::Own,
            (BackEnd::Threads, manager) => manager.unwrap_or_default(),
        };
        Ok(Config {
            pes: document.pes,
            back_end: document.back_end,
            manager,
            port: document.port,
            slices,
        })
    }

    /// How the slices divide the PEs.
    pub fn mode(&self) -> Mode {
        let has_pes = self.slices.iter().any(|slice| slice.pes.is_some());
        let has_windows = self.slices.iter().any(|slice| slice.window.is_some());
        match (has_pes, has_windows) {
            (false, false) => Mode::Shared,
            (true, false) => Mode::Spatial,
            (false, true) => Mode::Temporal,
            (true, true) => Mode::SpatioTemporal,
        }
    }

    /// The owners of all PEs; `ids` are the slices' in the engine, in their order.
    pub fn partition(&self, ids: &[SliceId]) -> Partition {
        let windows = self.slices.iter().filter_map(|slice| slice.window);
        let mut edges: Vec<u64> = windows.flatten().chain([0, u64::MAX]).collect();
        edges.sort_unstable();
        edges.dedup();
        let windows = edges.windows(2).map(|edges| {
            let [begin, end] = [edges[0], edges[1]];
            let owners = (0..self.pes).map(|pe| {
                let own = self.slices.iter().zip(ids).filter(|(slice, _)| {
                    let has_pe = slice.pes.as_ref().is_none_or(|pes| pes.contains(&pe));
                    let runs = slice
                        .window
                        .is_none_or(|[from, to]| from <= begin && end <= to);
                    has_pe && runs
                });
                own.fold(SliceSet::NONE, |set, (_, &id)| set.with(id))
            });
            Window {
                begin,
                end,
                owners: owners.collect(),
            }
        });
        // Edges ascend, and each window names all PEs.
        Partition::new(self.pes, windows.collect()).unwrap_or_else(|_| Partition::shared(self.pes))
    }
}

/// Checks that a name can be in metrics and on command lines as it is: the rule of all names in a deployment.
fn check_name(name: &str) -> Result<(), ConfigError> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || ['-', '_'].contains(&c);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins_well && name.chars().all(is_inner) && name.len() <= 63 {
        return Ok(());
    }
    let message =
        "a name has 1 to 63 letters, digits, '-' and '_', beginning with a letter or digit";
    Err(ConfigError::at("", message))
}

impl SliceDocument {
    fn checked(self, name: String, pes: usize) -> Result<SliceConfig, ConfigError> {
        let application = catalogue::build(&self.graph, &self.parameters)?;
        let bytes = application.input_bytes();
        if bytes > INPUT_MAX {
            let message = format!(
                "an interval of this graph reads {bytes} bytes; at most {INPUT_MAX} are possible"
            );
            return Err(ConfigError::at("parameters", message));
        }
        let deadline = self.deadline.unwrap_or(self.interval);
        for (key, Time(time)) in [("interval", self.interval), ("deadline", deadline)] {
            if time.is_zero() || time > TIME_MAX {
                let message = format!("write a time from 1us to {}s", TIME_MAX.as_secs());
                return Err(ConfigError::at(key, message));
            }
        }
        if let Some(own) = &self.pes {
            if own.is_empty() {
                return Err(ConfigError::at(
                    "pes",
                    "name at least one PE, or remove 'pes'",
                ));
            }
            if let Some(pe) = own.iter().find(|&&pe| pe >= pes) {
                let message = format!("there is no PE {pe}: the instance has PEs 0 to {}", pes - 1);
                return Err(ConfigError::at("pes", message));
            }
        }
        if let Some([from, to]) = self.window
            && (from >= to || to > self.interval)
        {
            let message = "a window ends after its begin, and within the interval";
            return Err(ConfigError::at("window", message));
        }
        Ok(SliceConfig {
            name,
            graph: self.graph,
            parameters: self.parameters,
            application,
            id: self.id,
            interval: self.interval.0,
            deadline: deadline.0,
            rank: self.rank,
            pes: self.pes,
            window: self
                .window
                .map(|edges| edges.map(|Time(it)| it.as_nanos() as u64)),
        })
    }
}

fn within(key: &str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let message = format!("{value} is not within {least} to {most}");
    Err(ConfigError::at(key, message))
}
