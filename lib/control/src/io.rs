//! I/O models: the party that executes the switch for an instance (docs/adr/0008).

use crate::quantity::Share;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The party that executes the switch for the frames that an instance sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoModel {
    /// The instance itself, within its own call: the model needs no thread.
    #[default]
    Inline,
    /// Workers that all such instances share, each on a core of its own.
    Split,
    /// A thread for each instance, on the core on which the instance is.
    Merge,
    /// A thread for each instance, on any core that the kernel chooses.
    Mix,
}

impl IoModel {
    /// All models, by their words in documents.
    pub const WORDS: [(&str, IoModel); 4] = [
        ("inline", IoModel::Inline),
        ("split", IoModel::Split),
        ("merge", IoModel::Merge),
        ("mix", IoModel::Mix),
    ];

    /// Returns the word of the model.
    pub const fn word(self) -> &'static str {
        match self {
            IoModel::Inline => "inline",
            IoModel::Split => "split",
            IoModel::Merge => "merge",
            IoModel::Mix => "mix",
        }
    }

    /// Returns true if a thread of the platform, and not of the instance, executes the switch.
    pub fn has_threads(self) -> bool {
        self != IoModel::Inline
    }
}

impl fmt::Display for IoModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The behaviour of an I/O thread without frames to forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoIdle {
    /// Sleeps, after a short polling phase, until an instance rings.
    #[default]
    Sleep,
    /// Polls: no instance has to wake the thread, and its core is never idle.
    Poll,
}

impl fmt::Display for IoIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            IoIdle::Sleep => "sleep",
            IoIdle::Poll => "poll",
        })
    }
}

/// The settings of a platform's I/O threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IoSettings {
    /// Cores of the split workers, one worker each; empty: the last core that instances can use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<u32>,
    /// Behaviour of the threads when no frames wait.
    #[serde(skip_serializing_if = "is_default")]
    pub idle: IoIdle,
    /// Maximum CPU share of all I/O threads together, of one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Share>,
}

impl IoSettings {
    /// Returns the cores of the split workers on a host with these CPUs.
    pub fn worker_cores(&self, host_cpus: &BTreeSet<u32>) -> Vec<u32> {
        if self.cores.is_empty() {
            host_cpus.last().copied().into_iter().collect()
        } else {
            self.cores.clone()
        }
    }
}

/// The `io` of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Io {
    /// The model of instances that name none.
    pub model: IoModel,
    /// The settings of the threads, for all instances.
    #[serde(flatten)]
    pub settings: IoSettings,
}

fn is_default(idle: &IoIdle) -> bool {
    *idle == IoIdle::default()
}
