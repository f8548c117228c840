//! The record of a fast path, for a later daemon.

use crate::processes::Processes;
use nfluid_control::spec::InstanceSpec;
use nfluid_netdev::ChangedFeatures;
use nfluid_sandbox::{FileVersion, ProcessIdentity};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The record of one fast path, written before anything is pinned.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The specification, as JSON.
    pub spec: String,
    /// Written by daemons without chains, for each interface: the mode, and the reason if it is not native XDP.
    #[serde(default)]
    pub modes: Vec<(String, String)>,
    /// Written by daemons without chains: features of the interface that were changed, to be restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<ChangedFeatures>,
    /// Numbers of a balancer's servers and services.
    #[serde(default)]
    pub numbers: Numbers,
    /// The process of an eDPI's slow path.
    #[serde(default)]
    pub slow: Option<SlowRecord>,
}

/// The process of a slow path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRecord {
    /// Its kernel user, for the life of the instance.
    pub user: u32,
    /// The running process, or the last one.
    pub process: Option<ProcessIdentity>,
    /// The version of the program's file.
    pub program: Option<FileVersion>,
    /// nDPI's version, as nDPI reports it.
    pub library: String,
    /// nDPI's names of applications, by its numbers.
    pub applications: Vec<String>,
    /// Number of processes that have died.
    pub deaths: u64,
}

/// The numbers of servers and services in tables of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// By key of the service.
    pub services: BTreeMap<String, u32>,
    /// By key of the server.
    pub servers: BTreeMap<String, u32>,
    /// The lowest number that no server has had.
    pub next_server: u32,
    /// Numbers of servers that are in no service any more, but may have connections. The earliest removed comes first.
    pub gone: Vec<u32>,
    /// Keys of servers that are down.
    pub down: BTreeSet<String>,
    /// Percent of its configured weight that a server has because of its load, by key. Absent: 100.
    #[serde(default)]
    pub percents: BTreeMap<String, u32>,
}

impl SlowRecord {
    /// Ends the process, started by this or an earlier daemon, and all other processes in its cgroup.
    pub fn end(&mut self, processes: &dyn Processes, name: &str) {
        processes.end(name, self.process.take().as_ref());
    }
}

impl Record {
    /// Makes the record of a new fast path.
    ///
    /// # Errors
    /// When the specification cannot be written as JSON.
    pub fn of(spec: &InstanceSpec) -> serde_json::Result<Self> {
        Ok(Record {
            spec: serde_json::to_string(spec)?,
            ..Record::default()
        })
    }
}

impl Numbers {
    /// Returns the number of a service: its own, or a free number. `None`: there are `most` services.
    pub fn service(&mut self, key: &str, most: u32) -> Option<u32> {
        if let Some(id) = self.services.get(key) {
            return Some(*id);
        }
        let used: BTreeSet<u32> = self.services.values().copied().collect();
        let id = (0..most).find(|id| !used.contains(id))?;
        self.services.insert(key.to_owned(), id);
        Some(id)
    }

    /// Returns the number of a server: its own, else a number that no server has had, else the number of the server
    /// that was removed first. `None`: there are `most` servers.
    pub fn server(&mut self, key: &str, most: u32) -> Option<u32> {
        if let Some(number) = self.servers.get(key) {
            return Some(*number);
        }
        let number = if self.next_server < most {
            self.next_server += 1;
            self.next_server - 1
        } else if self.gone.is_empty() {
            return None;
        } else {
            self.gone.remove(0)
        };
        self.servers.insert(key.to_owned(), number);
        Some(number)
    }

    /// Removes the servers that are not wanted any more. Returns their keys and numbers.
    pub fn leave_out(&mut self, wanted: &BTreeSet<String>) -> Vec<(String, u32)> {
        let servers = std::mem::take(&mut self.servers);
        let (kept, gone) = servers
            .into_iter()
            .partition(|(key, _)| wanted.contains(key));
        self.servers = kept;
        self.down.retain(|key| wanted.contains(key));
        self.percents.retain(|key, _| wanted.contains(key));
        let gone: BTreeMap<String, u32> = gone;
        self.gone.extend(gone.values());
        gone.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 15.13
    #[test]
    fn the_number_of_a_server_that_is_gone_is_given_away_last() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.server("a", 3), Some(0));
        assert_eq!(numbers.server("b", 3), Some(1));
        assert_eq!(numbers.server("a", 3), Some(0));
        let gone = numbers.leave_out(&BTreeSet::from(["b".to_owned()]));
        assert_eq!(gone, [("a".to_owned(), 0)]);
        assert_eq!(numbers.server("c", 3), Some(2), "nobody has had it");
        assert_eq!(numbers.server("d", 3), Some(0), "nothing else is left");
        assert_eq!(numbers.server("e", 3), None);
        assert_eq!(numbers.service("x", 1), Some(0));
        assert_eq!(numbers.service("x", 1), Some(0));
        assert_eq!(numbers.service("y", 1), None);
    }
}
