//! I/O threads for the instances of a private platform, in this process or in a process of their own, for tests and
//! benchmarks.

use crate::scratch::{Scratch, ScratchInstance, spawn_with};
use nfluid_io::duty::{Doorbells, Duty};
use nfluid_ring::attach::inherited;
use nfluid_ring::memory::RingMemory;
use nfluid_switch::serve::Serve;
use nfluid_switch::{Form, SwitchError};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{Child, Command};
use std::sync::Arc;

/// Environment variable with the descriptors that a process has inherited.
const INHERITED_ENV: &str = "NFLUID_IO_INHERITED";

/// Returns one duty per port of `instance`, in port order.
///
/// # Errors
/// When a descriptor cannot be duplicated or a ring cannot be mapped.
pub fn duties(instance: &ScratchInstance) -> io::Result<Vec<Duty>> {
    let parts = instance.io_parts();
    let owned = |fd: BorrowedFd<'_>| fd.try_clone_to_owned();
    let ports = parts.ports.into_iter();
    let ports =
        ports.map(|(port, ring, peer)| Ok((port, owned(ring)?, peer.map(owned).transpose()?)));
    duties_of(owned(parts.io_doorbell)?, owned(parts.own_doorbell)?, ports)
}

/// Returns the duties of an instance: its doorbells, and per port the number, the ring and the doorbell of the link's
/// peer.
fn duties_of(
    io_doorbell: OwnedFd,
    own_doorbell: OwnedFd,
    ports: impl Iterator<Item = io::Result<(u32, OwnedFd, Option<OwnedFd>)>>,
) -> io::Result<Vec<Duty>> {
    let doorbells = Arc::new(Doorbells {
        io: io_doorbell,
        instance: Some(own_doorbell),
        cores: Vec::new(),
    });
    let duty = |port: io::Result<(u32, OwnedFd, Option<OwnedFd>)>| {
        let (port, ring, peer) = port?;
        let ring = RingMemory::map(ring.as_fd()).map_err(io::Error::other)?;
        Ok(Duty::new(port, ring, Arc::clone(&doorbells), peer))
    };
    ports.map(duty).collect()
}

/// Numbers of inherited descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct Inherited {
    serve: RawFd,
    form: Form,
    instances: Vec<InheritedInstance>,
}

#[derive(Debug, Serialize, Deserialize)]
struct InheritedInstance {
    io_doorbell: RawFd,
    own_doorbell: RawFd,
    /// Port, ring, doorbell of the link's peer.
    ports: Vec<(u32, RawFd, Option<RawFd>)>,
}

/// Starts `command`; the new process calls [`from_env`] to get the rings and doorbells of `instances`.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn(
    scratch: &Scratch,
    instances: &[&ScratchInstance],
    command: &mut Command,
) -> Result<Child, SwitchError> {
    let serve = scratch.switch.serve()?;
    let mut fds = vec![serve.program()];
    let mut inherited = Inherited {
        serve: serve.program().as_raw_fd(),
        form: scratch.switch.form(),
        instances: Vec::new(),
    };
    for instance in instances {
        let parts = instance.io_parts();
        fds.extend([parts.io_doorbell, parts.own_doorbell]);
        fds.extend(parts.ports.iter().map(|(_, ring, _)| *ring));
        fds.extend(parts.ports.iter().filter_map(|(_, _, peer)| *peer));
        let numbers = parts
            .ports
            .iter()
            .map(|(port, ring, peer)| (*port, ring.as_raw_fd(), peer.map(|fd| fd.as_raw_fd())));
        inherited.instances.push(InheritedInstance {
            io_doorbell: parts.io_doorbell.as_raw_fd(),
            own_doorbell: parts.own_doorbell.as_raw_fd(),
            ports: numbers.collect(),
        });
    }
    let inherited =
        serde_json::to_string(&inherited).map_err(|error| SwitchError::Limit(error.to_string()))?;
    spawn_with(command.env(INHERITED_ENV, inherited), &fds)
}

/// Returns the switch and the ports of each instance that [`spawn`] passed to this process. Call once.
///
/// # Errors
/// When the process was not started by [`spawn`].
pub fn from_env() -> io::Result<(Serve, Vec<Vec<Duty>>)> {
    let own = |fd: RawFd| inherited(fd).map_err(io::Error::other);
    let inherited = std::env::var(INHERITED_ENV).map_err(io::Error::other)?;
    let inherited: Inherited = serde_json::from_str(&inherited)?;
    let serve = Serve::of(own(inherited.serve)?, inherited.form);
    let instance = |instance: InheritedInstance| {
        let ports = instance.ports.into_iter();
        let ports =
            ports.map(|(port, ring, peer)| Ok((port, own(ring)?, peer.map(own).transpose()?)));
        duties_of(
            own(instance.io_doorbell)?,
            own(instance.own_doorbell)?,
            ports,
        )
    };
    let instances: io::Result<_> = inherited.instances.into_iter().map(instance).collect();
    Ok((serve, instances?))
}
