//! All desired objects of a host.

use super::{
    BUILT_IN_FLAVORS, Chain, Flavor, Instance, Link, SecurityGroup, Switch, Uplink, is_default,
};
use crate::congestion::Congestion;
use crate::group::{Group, Groups};
use crate::io::Io;
use crate::placement::Placement;
use crate::pool::Pool;
use crate::table::Table;
use crate::template::Template;
use serde::Serialize;

/// The version of the document format that this code reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// All desired objects of a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deployment {
    /// Version of the format: [`FORMAT_VERSION`].
    pub version: u32,
    /// Shares may add up to more than the host's cores.
    #[serde(skip_serializing_if = "is_default")]
    pub overcommit: bool,
    /// I/O model of instances that name none, and the settings of I/O threads; absent: inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// Placement of instances that name none; absent: the kernel chooses their cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Groups of tenants.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub groups: Table<Group>,
    /// Congestion signals; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// Flavors of the user, beside the built-in ones.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub flavors: Table<Flavor>,
    /// Prepared instances, by the name of their pool.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub pool: Table<Pool>,
    /// Ports backed by real interfaces.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub uplinks: Table<Uplink>,
    /// Learning bridges.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub switches: Table<Switch>,
    /// Rules for what passes the ports that are in a group.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub security_groups: Table<SecurityGroup>,
    /// Network functions.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub instances: Table<Instance>,
    /// Point-to-point connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Ordered lists of NFs between two end points. Where several chains start at one end point,
    /// the first that matches takes the frame.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub chains: Table<Chain>,
    /// Instances that are created when their first frames arrive. They are tried after the chains.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub templates: Table<Template>,
}

impl Default for Deployment {
    fn default() -> Self {
        Deployment {
            version: FORMAT_VERSION,
            overcommit: false,
            io: None,
            placement: None,
            groups: Table::new(),
            congestion: None,
            flavors: Table::new(),
            pool: Table::new(),
            uplinks: Table::new(),
            switches: Table::new(),
            security_groups: Table::new(),
            instances: Table::new(),
            links: Vec::new(),
            chains: Table::new(),
            templates: Table::new(),
        }
    }
}

impl Deployment {
    /// Returns the flavor of that name: the user's own, else a built-in one.
    pub fn flavor(&self, name: &str) -> Option<Flavor> {
        self.flavors.get(name).copied().or_else(|| {
            BUILT_IN_FLAVORS
                .iter()
                .find(|(built_in, _)| *built_in == name)
                .map(|(_, flavor)| *flavor)
        })
    }

    /// Returns the groups of tenants, by name.
    pub fn group_table(&self) -> Groups {
        let groups = self.groups.iter();
        groups
            .map(|(name, group)| (name.to_owned(), group.clone()))
            .collect()
    }

    /// Returns the I/O model of instances that name none, and the settings of I/O threads.
    pub fn io(&self) -> Io {
        self.io.clone().unwrap_or_default()
    }

    /// Returns the settings of the congestion signals.
    pub fn congestion(&self) -> Congestion {
        self.congestion.clone().unwrap_or_default()
    }
}
