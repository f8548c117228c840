//! Discovery of an instance's ports: a table in a sealed memory file that the instance inherits.
//!
//! The table ([`crate::table`]) is all that an instance learns about the platform.

use crate::doorbell::Doorbell;
use crate::error::AttachError;
use crate::memory::{Pool, RingMemory};
use crate::port::{Port, PortFds};
use crate::table::{ATTACH_ENV, PortEntry, TABLE_MAX, Table};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Ports that are mapped and not used yet. A process that uses them now goes on until [`Prepared::attach`].
#[derive(Debug)]
pub struct Prepared {
    ports: Vec<(PortEntry, PortFds, RingMemory)>,
    pool: Arc<Pool>,
    doorbell: Doorbell,
}

impl Prepared {
    /// Maps the ports that the environment names, and closes the table. Call it once, before other threads start.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn from_env() -> Result<Self, AttachError> {
        let fd: RawFd = std::env::var(ATTACH_ENV)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|fd| *fd >= 0)
            .ok_or(AttachError::NoTable)?;
        let table = Table::parse(&read_table(fd)?)?;
        // A descriptor whose content is no table belongs to other code. Only a checked descriptor is known to be ours
        // to close.
        drop(own(fd)?);
        Self::from_table(&table)
    }

    /// Maps the ports of `table`, taking ownership of the descriptors that it names.
    ///
    /// # Errors
    /// When a mapping fails or a descriptor is named that is not open.
    pub fn from_table(table: &Table) -> Result<Self, AttachError> {
        let head = &table.head;
        let given = |fd: RawFd| if fd < 0 { Ok(None) } else { own(fd).map(Some) };
        let pool = own(head.pool_fd)?;
        let pool = Arc::new(Pool::of(head, pool.as_fd())?);
        let io_doorbell = given(head.io_doorbell_fd)?.map(Arc::new);
        let mut ports = Vec::with_capacity(table.ports.len());
        for entry in &table.ports {
            let fds = PortFds {
                socket: own(entry.socket_fd)?,
                ring: own(entry.ring_fd)?,
                peer_doorbell: given(entry.peer_doorbell_fd)?,
                io_doorbell: io_doorbell.clone(),
            };
            entry.check(pool.slots())?;
            let ring = RingMemory::map(fds.ring.as_fd())?;
            ports.push((*entry, fds, ring));
        }
        Ok(Prepared {
            ports,
            pool,
            doorbell: Doorbell::new(given(head.doorbell_fd)?, given(head.kernel_doorbell_fd)?)?,
        })
    }

    /// Takes the names, addresses, MTUs, levels and peers' doorbells of `table`, which is about the same ports.
    ///
    /// # Errors
    /// [`AttachError::BadTable`] when the ports are others; a peer's doorbell that is not open.
    pub fn assign(mut self, table: &Table) -> Result<Self, AttachError> {
        if table.ports.len() != self.ports.len() {
            return Err(AttachError::BadTable("other ports".to_owned()));
        }
        for ((entry, fds, _), new) in self.ports.iter_mut().zip(&table.ports) {
            if !entry.is_same_port(new) || entry.peer_doorbell_fd >= 0 {
                return Err(AttachError::BadTable("other ports".to_owned()));
            }
            if new.peer_doorbell_fd >= 0 {
                fds.peer_doorbell = Some(own(new.peer_doorbell_fd)?);
            }
            *entry = *new;
        }
        Ok(self)
    }

    /// Returns the slots that the ports share.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the platform's entries of the ports, in the order of the deployment.
    pub fn entries(&self) -> impl Iterator<Item = &PortEntry> {
        self.ports.iter().map(|(entry, ..)| entry)
    }

    /// Uses the ports from now on, and goes on where their former owner has stopped.
    pub fn attach(self) -> Attached {
        let pool = self.pool;
        let ports = self.ports.into_iter();
        Attached {
            ports: ports
                .map(|(entry, fds, ring)| Port::new(entry, fds, ring, Arc::clone(&pool)))
                .collect(),
            doorbell: self.doorbell,
            pool,
        }
    }
}

/// The ports, the memory and the doorbell that an instance is attached to.
#[derive(Debug)]
pub struct Attached {
    /// The ports, in the order of the deployment, queues of a port one after the other.
    pub ports: Vec<Port>,
    /// The doorbell that all of them share.
    pub doorbell: Doorbell,
    /// The slots that all of them share.
    pub pool: Arc<Pool>,
}

impl Attached {
    /// Attaches to the ports that the environment names. Call it once, before other threads start.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn from_env() -> Result<Self, AttachError> {
        Prepared::from_env().map(Prepared::attach)
    }

    /// Attaches to the ports of `table`, taking ownership of the descriptors that it names.
    ///
    /// # Errors
    /// When a mapping fails or a descriptor is named that is not open.
    pub fn from_table(table: &Table) -> Result<Self, AttachError> {
        Prepared::from_table(table).map(Prepared::attach)
    }

    /// Makes a port from its descriptors, for programs that made the descriptors themselves.
    ///
    /// # Errors
    /// When the ring cannot be mapped.
    pub fn port(entry: &PortEntry, fds: PortFds, pool: Arc<Pool>) -> Result<Port, AttachError> {
        entry.check(pool.slots())?;
        let ring = RingMemory::map(fds.ring.as_fd())?;
        Ok(Port::new(*entry, fds, ring, pool))
    }
}

/// Takes ownership of a descriptor that this process inherited for its own use. Call it once per
/// descriptor.
///
/// # Errors
/// When no such descriptor is open.
pub fn inherited(fd: RawFd) -> Result<OwnedFd, AttachError> {
    own(fd)
}

fn own(fd: RawFd) -> Result<OwnedFd, AttachError> {
    // SAFETY: only asks the kernel about a number; nothing is dereferenced.
    let open = fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    if !open {
        return Err(AttachError::BadTable(format!(
            "descriptor {fd} is not open"
        )));
    }
    // SAFETY: the descriptor is open, was inherited for this purpose, and is named by the table once: no other code
    // closes it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn read_table(fd: RawFd) -> Result<Vec<u8>, AttachError> {
    // SAFETY: not -1, borrowed for this function only, and pread checks it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut bytes = vec![0u8; TABLE_MAX];
    let read =
        rustix::io::pread(borrowed, &mut bytes[..], 0).map_err(|errno| AttachError::Read {
            fd,
            source: errno.into(),
        })?;
    bytes.truncate(read);
    Ok(bytes)
}
