//! The descriptors that the program of an instance is given: the maps of its ports and a socket for each port.
//!
//! An instance gets one pool of frame slots and, per port (and queue), one ring map and one socket. Nothing else of
//! the platform is reachable through these descriptors. The process that hands them over need not keep them: the maps
//! are pinned, and a successor gets sockets of its own.

use crate::SwitchError;
use crate::instance::InstanceMemory;
use crate::maps::{create_doorbell, create_ring, open_pinned, pin_maps};
use crate::program::Switch;
use libbpf_rs::MapHandle;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The maps of an instance.
#[derive(Debug)]
pub struct Maps {
    /// The pool of frame slots.
    pub pool: MapHandle,
    /// The kernel's doorbell for all ports of the instance.
    pub kernel_doorbell: MapHandle,
    /// The rings of each port.
    pub rings: Vec<MapHandle>,
}

impl Maps {
    pub(crate) fn create(pool: MapHandle, ports: usize) -> Result<Self, SwitchError> {
        Ok(Maps {
            pool,
            kernel_doorbell: create_doorbell()?,
            rings: (0..ports)
                .map(|_| create_ring())
                .collect::<Result<_, _>>()?,
        })
    }

    /// Pins the maps in `directory`, on a BPF file system, so that they outlive this process.
    ///
    /// # Errors
    /// When the directory cannot be made or the kernel refuses.
    pub fn pin(&mut self, directory: &Path) -> Result<(), SwitchError> {
        let mut all = vec![
            (&mut self.pool, "pool".to_owned()),
            (&mut self.kernel_doorbell, "bell".to_owned()),
        ];
        let rings = self.rings.iter_mut().enumerate();
        all.extend(rings.map(|(i, ring)| (ring, ring_name(i))));
        pin_maps(directory, all)
    }

    /// The maps of an instance with so many ports (queues counted) that were pinned in `directory`.
    ///
    /// # Errors
    /// When one is missing or the kernel refuses.
    pub fn open(directory: &Path, ports: usize) -> Result<Self, SwitchError> {
        let open = |name: &str| open_pinned(&directory.join(name));
        Ok(Maps {
            pool: open("pool")?,
            kernel_doorbell: open("bell")?,
            rings: (0..ports)
                .map(|i| open(&ring_name(i)))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn ring_name(port: usize) -> String {
    format!("ring{port}")
}

/// The maps of an instance, and the sockets that are the capabilities for its ports.
#[derive(Debug)]
pub struct Handover {
    /// The maps.
    pub maps: Maps,
    /// A socket for each port.
    pub sockets: Vec<OwnedFd>,
}

impl Handover {
    /// Makes a handover whose sockets have no identity yet.
    pub(crate) fn of(maps: Maps) -> Result<Self, SwitchError> {
        let sockets = maps.rings.iter().map(|_| dead_socket());
        Ok(Handover {
            sockets: sockets.collect::<Result<_, _>>()?,
            maps,
        })
    }

    /// The descriptors that the instance inherits, each once, in the order in which [`InstanceMemory::table`] expects
    /// their numbers: pool, kernel doorbell, then ring and socket of each port.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.maps.pool.as_fd(), self.maps.kernel_doorbell.as_fd()];
        for (ring, socket) in self.maps.rings.iter().zip(&self.sockets) {
            fds.extend([ring.as_fd(), socket.as_fd()]);
        }
        fds
    }
}

impl Switch {
    /// Returns the descriptors for a successor of an instance: `maps`, which are the instance's, and sockets of the
    /// successor's own.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hand_over(&self, memory: &InstanceMemory, maps: Maps) -> Result<Handover, SwitchError> {
        let handover = Handover::of(maps)?;
        self.identify_all(memory, &handover)?;
        Ok(handover)
    }
}

/// Makes the socket of a port: one end of a pair whose other end is closed. The socket can neither send nor be
/// connected anywhere; its only use is the call.
fn dead_socket() -> Result<OwnedFd, SwitchError> {
    let (socket, _other) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(SwitchError::system("making a port's socket"))?;
    Ok(socket)
}
