//! Descriptors that the program of an instance inherits: its maps and sockets, doorbells, tables and sockets, under
//! numbers that its environment contains.

use super::{GivenDoorbells, control_socket};
use crate::doorbell;
use crate::maker::Maker;
use crate::seed::seeded;
use anyhow::Context;
use nfluid_control::model::Program;
use nfluid_control::spec::InstanceSpec;
use nfluid_protocol::daemon::memory_file;
use nfluid_protocol::environment;
use nfluid_ring::table::ATTACH_ENV;
use nfluid_switch::instance::Doorbells;
use nfluid_switch::{Handover, InstanceMemory};
use std::ffi::CString;
use std::os::fd::{OwnedFd, RawFd};

/// First number under which an instance finds what it inherits; below are the standard streams.
pub(super) const FIRST_FD: RawFd = 3;
/// For every queue of every port, the instance whose doorbell it rings.
fn peers_by_queue<'a>(spec: &InstanceSpec, peers: &'a [Option<String>]) -> Vec<Option<&'a str>> {
    let ports = spec.ports.iter().zip(peers);
    ports
        .flat_map(|(port, peer)| (0..port.queues).map(|_queue| peer.as_deref()))
        .collect()
}

/// The number under which an instance with these ports finds the bell of its I/O thread: after its maps and sockets, and its
/// own bell.
pub fn io_doorbell_number(handover: &Handover) -> RawFd {
    FIRST_FD + handover.fds().len() as RawFd + 1
}

/// Descriptors that an instance inherits, besides its maps and sockets.
pub(super) struct Inheritance {
    /// The number of the first of them.
    first: RawFd,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) io_doorbell: RawFd,
    pub(super) env: Vec<CString>,
}

impl Inheritance {
    /// Adds a descriptor; the number under which it is found.
    pub(super) fn give(&mut self, fd: OwnedFd) -> RawFd {
        self.fds.push(fd);
        self.first + self.fds.len() as RawFd - 1
    }
}

impl Maker {
    /// Own bell, peers' bells, port table, configuration, control socket, which is made unless there is one - and their
    /// numbers.
    pub(super) fn inheritance(
        &self,
        name: &str,
        spec: &InstanceSpec,
        (memory, handover): (&InstanceMemory, &Handover),
        seed: u64,
        given: &GivenDoorbells<'_>,
        control: Option<OwnedFd>,
    ) -> anyhow::Result<Inheritance> {
        let paths = &self.paths;
        let map_fds = handover.fds().len() as RawFd;
        let mut inheritance = Inheritance {
            first: FIRST_FD + map_fds,
            fds: Vec::new(),
            io_doorbell: -1,
            env: Vec::new(),
        };
        let mut give = |fd: OwnedFd| inheritance.give(fd);
        let bell =
            give(doorbell::open_both(&paths.doorbell(name)).context("opening the doorbell")?);
        let io_doorbell = give(given.io.try_clone().context("duplicating an I/O bell")?);
        let mut peers = Vec::new();
        for peer in peers_by_queue(spec, given.peers) {
            peers.push(match peer {
                Some(peer) => {
                    give(doorbell::open_of_peer(paths, peer).context("opening a peer's doorbell")?)
                }
                None => -1,
            });
        }
        let numbers: Vec<RawFd> = (FIRST_FD..FIRST_FD + map_fds).collect();
        let bells = Doorbells {
            own: bell,
            io: io_doorbell,
            peers: &peers,
        };
        let table = memory.table(&numbers, &bells).to_bytes();
        let mut env = vec![(ATTACH_ENV, give(memory_file("ports", &table)?).to_string())];
        if let Program::BuiltIn { nf } = &spec.program {
            env.push((environment::NF, nf.clone()));
        }
        let config = serde_json::to_vec(&seeded(&spec.program, &spec.config, seed))?;
        env.push((
            environment::CONFIG,
            give(memory_file("config", &config)?).to_string(),
        ));
        let listens_at = match &given.succession {
            Some(succession) => {
                let predecessor = succession
                    .way
                    .try_clone()
                    .context("duplicating the way to its predecessor")?;
                env.push((environment::PREDECESSOR, give(predecessor).to_string()));
                succession.control.to_owned()
            }
            None => paths.control(name),
        };
        let control = control.map_or_else(|| control_socket(&listens_at), Ok)?;
        env.push((environment::CONTROL, give(control).to_string()));
        inheritance.env = environment(env)?;
        inheritance.io_doorbell = io_doorbell;
        Ok(inheritance)
    }
}

pub(super) fn environment(
    entries: impl IntoIterator<Item = (&'static str, String)>,
) -> anyhow::Result<Vec<CString>> {
    let entry =
        |(key, value)| CString::new(format!("{key}={value}")).context("a NUL in the environment");
    entries.into_iter().map(entry).collect()
}
