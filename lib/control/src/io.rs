//! I/O models: the party that executes the switch for an instance (docs/adr/0008).

use crate::quantity::Share;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The party that executes the switch for the frames that an instance sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoModel {
    /// The instance itself, in its own call: no thread exists for it.
    #[default]
    Inline,
    /// Workers that all such instances share, each on a core of its own.
    Split,
    /// A thread for each instance, on the core on which the instance is.
    Merge,
    /// A thread for each instance, wherever the kernel puts it.
    Mix,
}

impl IoModel {
    /// Every model, by the word that a document has for it.
    pub const WORDS: [(&str, IoModel); 4] = [
        ("inline", IoModel::Inline),
        ("split", IoModel::Split),
        ("merge", IoModel::Merge),
        ("mix", IoModel::Mix),
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            IoModel::Inline => "inline",
            IoModel::Split => "split",
            IoModel::Merge => "merge",
            IoModel::Mix => "mix",
        }
    }

    /// Whether a thread that is not the instance's executes the switch.
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
    /// Cores of the split workers, one worker each; empty: the last core that instances may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<u32>,
    /// What threads do when there is nothing to forward.
    #[serde(skip_serializing_if = "is_default")]
    pub idle: IoIdle,
    /// Most of one core that all I/O threads together get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Share>,
}

impl IoSettings {
    /// The cores of the split workers on a host with these.
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
    /// How the threads are, whichever instances need them.
    #[serde(flatten)]
    pub settings: IoSettings,
}

fn is_default(idle: &IoIdle) -> bool {
    *idle == IoIdle::default()
}
