//! Pools of shells: prepared instances of built-in NFs, of which creating takes one.

use crate::model::{Deployment, Instance, Program};
use crate::placement::Placement;
use crate::quantity::Bytes;
use crate::spec::InstanceSpec;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Most shells of a pool.
pub const SIZE_MAX: u32 = 4096;
/// Most shells of a pool that follows the rate of creations and does not say.
pub const MOST_DEFAULT: u32 = 64;
/// Ports of a shell that does not say.
pub const PORTS_DEFAULT: u32 = 2;

/// How many shells there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Always so many.
    Fixed(u32),
    /// As many as were taken within a second of late; at most so many.
    Rate {
        /// The bound.
        most: u32,
    },
}

impl Size {
    /// At most.
    pub fn most(self) -> u32 {
        match self {
            Size::Fixed(count) | Size::Rate { most: count } => count,
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Size::Fixed(count) => serializer.serialize_u32(*count),
            Size::Rate { .. } => serializer.serialize_str("rate"),
        }
    }
}

/// A pool, as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Ring size and memory, by name.
    pub flavor: String,
    /// Ports of each shell, of one queue.
    pub ports: u32,
    /// How many shells.
    pub size: Size,
}

impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("flavor", &self.flavor)?;
        map.serialize_entry("ports", &self.ports)?;
        map.serialize_entry("size", &self.size)?;
        if let Size::Rate { most } = self.size {
            map.serialize_entry("most", &most)?;
        }
        map.end()
    }
}

/// A pool with nothing left to default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSpec {
    /// Name of the flavor.
    pub flavor: String,
    /// Slots per ring.
    pub ring: u32,
    /// Memory limit of a shell; an instance gets its own.
    pub memory: Bytes,
    /// Ports of each shell.
    pub ports: u32,
    /// How many shells.
    pub size: Size,
}

/// All pools, by name.
pub type Pools = BTreeMap<String, PoolSpec>;

/// The pools of a valid deployment.
pub fn pools(deployment: &Deployment) -> Pools {
    let resolve = |(name, pool): (&str, &Pool)| {
        let flavor = deployment.flavor(&pool.flavor)?;
        let spec = PoolSpec {
            flavor: pool.flavor.clone(),
            ring: flavor.ring,
            memory: flavor.memory,
            ports: pool.ports,
            size: pool.size,
        };
        Some((name.to_owned(), spec))
    };
    deployment.pool.iter().filter_map(resolve).collect()
}

impl PoolSpec {
    /// Whether shells of `other` are like its own, however many there are to be.
    pub fn makes_as(&self, other: &PoolSpec) -> bool {
        let sized = PoolSpec {
            size: other.size,
            ..self.clone()
        };
        sized == *other
    }

    /// Whether a shell of this pool can become such an instance.
    pub fn suits(&self, instance: &InstanceSpec) -> bool {
        let resources = &instance.resources;
        matches!(instance.program, Program::BuiltIn { .. })
            && instance.ring == self.ring
            && instance.ports.len() == self.ports as usize
            && instance.ports.iter().all(|port| port.queues == 1)
            && instance.trust.is_none()
            && resources.group.is_none()
            && resources.placement == Placement::Free
    }
}

/// Ports of an instance, every queue counted.
pub fn ports_of(instance: &Instance) -> u64 {
    let ports = instance.ports.iter();
    ports
        .map(|(_, port)| u64::from(port.queues.unwrap_or(1)))
        .sum()
}
