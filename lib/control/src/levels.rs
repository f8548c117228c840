//! Levels: the frames that the uplinks of a server let in, and the stacks of instances.

use crate::model::Frames;
use serde::Serialize;
use std::collections::BTreeSet;

/// The frames that each uplink lets in: the domains with other than plain frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Levels(Vec<Level>);

/// Uplinks and network stacks of one domain, which let in the same frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// The uplinks, by name.
    pub uplinks: BTreeSet<String>,
    /// The instances on a network stack of their own, by name.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub stacks: BTreeSet<String>,
    /// Frames that they let in.
    pub frames: Frames,
}

impl FromIterator<Level> for Levels {
    fn from_iter<I: IntoIterator<Item = Level>>(levels: I) -> Self {
        let raised = levels.into_iter().filter(|level| !level.frames.is_plain());
        Levels(raised.collect())
    }
}

impl Levels {
    /// Returns what an uplink lets in.
    pub fn of_uplink(&self, name: &str) -> Frames {
        let level = self.0.iter().find(|level| level.uplinks.contains(name));
        level.map_or(Frames::Plain, |level| level.frames)
    }

    /// Returns the domain of an instance on a network stack of its own; `None`: its frames are plain.
    pub fn of_stack(&self, name: &str) -> Option<&Level> {
        self.0.iter().find(|level| level.stacks.contains(name))
    }

    /// Returns the domains whose frames are not plain.
    pub fn raised(&self) -> impl Iterator<Item = &Level> {
        self.0.iter()
    }

    /// Returns true if all frames are plain.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
