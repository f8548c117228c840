//! How an instance finds its ports: a table in a sealed memory file that it inherits.
//!
//! The table names the inherited file descriptors and the geometry of each port. An instance learns nothing else
//! about the platform. The C form of the table is in `nfluid.h`.

use crate::doorbell::Doorbell;
use crate::layout::SHARED_SLOTS_MAX;
use crate::memory::{Pool, RingMemory};
use crate::port::Port;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Environment variable with the number of the table's file descriptor.
pub const ATTACH_ENV: &str = "NFLUID_ATTACH_FD";
/// First word of the table: "nfl2".
pub const ATTACH_MAGIC: u32 = 0x326c_666e;
/// The magic number of an instance that shares its pool with its trust group: "nfls". Slots move between the members
/// of the group, so a library that does not know trust groups must not attach.
pub const ATTACH_MAGIC_SHARED: u32 = 0x736c_666e;
/// Most ports of one instance, queues counted.
pub const PORTS_MAX: usize = 64;
/// Longest table in bytes.
pub const TABLE_MAX: usize = size_of::<TableHead>() + PORTS_MAX * size_of::<PortEntry>();

/// An entry of the table: one port (one queue of it, where it has several).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortEntry {
    /// Name, NUL-padded.
    pub name: [u8; 32],
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Queue of the port, from 0.
    pub queue: u16,
    /// Number of queues of the port.
    pub queues: u16,
    /// The socket: the capability for the port.
    pub socket_fd: RawFd,
    /// The rings.
    pub ring_fd: RawFd,
    /// Write end of the link peer's doorbell pipe, or -1: the switch rings.
    pub peer_doorbell_fd: RawFd,
    /// Slots per ring.
    pub ring_slots: u32,
    /// First RX slot in the pool; 0 where the pool is shared: the descriptors name the slots.
    pub rx_base: u32,
    /// First of the port's TX slots in the pool; 0 where the pool is shared.
    pub tx_base: u32,
    /// Number of the port's TX slots.
    pub tx_slots: u32,
}

/// The head of the table; `ports` entries follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableHead {
    /// [`ATTACH_MAGIC`] or [`ATTACH_MAGIC_SHARED`].
    pub magic: u32,
    /// Number of entries.
    pub ports: u32,
    /// The pool.
    pub pool_fd: RawFd,
    /// Slots in the pool.
    pub pool_slots: u32,
    /// Read end of the instance's doorbell pipe.
    pub doorbell_fd: RawFd,
    /// The kernel's doorbell: a BPF ring buffer.
    pub kernel_doorbell_fd: RawFd,
    /// The eventfd that wakes the instance's I/O thread, or -1: it can have none.
    pub io_doorbell_fd: RawFd,
}

const _: () = assert!(size_of::<PortEntry>() == 72);
const _: () = assert!(size_of::<TableHead>() == 28);

/// Why an instance could not attach to its ports.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The environment does not name the table.
    #[error(
        "{ATTACH_ENV} is not set to a file descriptor: start this program as an nfluid instance (nfluid apply)"
    )]
    NoTable,
    /// The table could not be read.
    #[error("reading the port table from fd {fd}: {source}")]
    Read {
        /// The table's file descriptor.
        fd: RawFd,
        /// The cause.
        source: io::Error,
    },
    /// The table does not make sense.
    #[error("the port table is damaged: {0}; daemon and library are of different versions?")]
    BadTable(String),
    /// The doorbells cannot be listened to.
    #[error("listening to the doorbells: {0}")]
    Listen(io::Error),
    /// A mapping failed.
    #[error("mapping the {what} ({len} bytes): {source}")]
    Map {
        /// The object to be mapped.
        what: &'static str,
        /// The length in bytes.
        len: usize,
        /// The cause.
        source: io::Error,
    },
}

/// The table in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Head.
    pub head: TableHead,
    /// The entries, for each port and queue.
    pub ports: Vec<PortEntry>,
}

impl Table {
    /// The bytes that [`Table::parse`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut words: Vec<u8> = Vec::new();
        let h = &self.head;
        for word in [
            h.magic,
            h.ports,
            h.pool_fd as u32,
            h.pool_slots,
            h.doorbell_fd as u32,
            h.kernel_doorbell_fd as u32,
            h.io_doorbell_fd as u32,
        ] {
            words.extend_from_slice(&word.to_ne_bytes());
        }
        for p in &self.ports {
            words.extend_from_slice(&p.name);
            words.extend_from_slice(&p.mac);
            for half in [p.mtu, p.queue, p.queues] {
                words.extend_from_slice(&half.to_ne_bytes());
            }
            for word in [
                p.socket_fd as u32,
                p.ring_fd as u32,
                p.peer_doorbell_fd as u32,
                p.ring_slots,
                p.rx_base,
                p.tx_base,
                p.tx_slots,
            ] {
                words.extend_from_slice(&word.to_ne_bytes());
            }
        }
        words
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`AttachError::BadTable`] for a wrong magic, size, count or ring size, and where two ports share a slot or a
    /// descriptor.
    pub fn parse(bytes: &[u8]) -> Result<Self, AttachError> {
        let bad = |why: &str| AttachError::BadTable(why.to_owned());
        let word = |at: usize| -> Result<u32, AttachError> {
            let four = bytes.get(at..at + 4).ok_or_else(|| bad("too short"))?;
            Ok(u32::from_ne_bytes(four.try_into().expect("four bytes")))
        };
        let half = |at: usize| -> Result<u16, AttachError> {
            let two = bytes.get(at..at + 2).ok_or_else(|| bad("too short"))?;
            Ok(u16::from_ne_bytes(two.try_into().expect("two bytes")))
        };
        let head = TableHead {
            magic: word(0)?,
            ports: word(4)?,
            pool_fd: word(8)? as RawFd,
            pool_slots: word(12)?,
            doorbell_fd: word(16)? as RawFd,
            kernel_doorbell_fd: word(20)? as RawFd,
            io_doorbell_fd: word(24)? as RawFd,
        };
        if head.magic != ATTACH_MAGIC && !head.is_shared() {
            return Err(bad("wrong magic"));
        }
        if head.is_shared() && head.pool_slots > SHARED_SLOTS_MAX {
            return Err(bad("too many slots"));
        }
        if head.ports as usize > PORTS_MAX {
            return Err(bad("too many ports"));
        }
        let mut ports = Vec::with_capacity(head.ports as usize);
        for i in 0..head.ports as usize {
            let at = size_of::<TableHead>() + i * size_of::<PortEntry>();
            let text = bytes.get(at..at + 38).ok_or_else(|| bad("too short"))?;
            let entry = PortEntry {
                name: text[..32].try_into().expect("32 bytes"),
                mac: text[32..].try_into().expect("6 bytes"),
                mtu: half(at + 38)?,
                queue: half(at + 40)?,
                queues: half(at + 42)?,
                socket_fd: word(at + 44)? as RawFd,
                ring_fd: word(at + 48)? as RawFd,
                peer_doorbell_fd: word(at + 52)? as RawFd,
                ring_slots: word(at + 56)?,
                rx_base: word(at + 60)?,
                tx_base: word(at + 64)?,
                tx_slots: word(at + 68)?,
            };
            entry.check(head.pool_slots)?;
            ports.push(entry);
        }
        let table = Table { head, ports };
        if !table.is_disjoint() {
            return Err(bad("ports share slots or descriptors"));
        }
        Ok(table)
    }

    /// Returns true if each slot and each descriptor is named once: the owner of a port owns what the port's entry
    /// names.
    fn is_disjoint(&self) -> bool {
        let own_slots = if self.head.is_shared() {
            &[][..]
        } else {
            &self.ports[..]
        };
        let ranges = own_slots.iter().flat_map(|port| {
            [
                (port.rx_base, port.ring_slots),
                (port.tx_base, port.tx_slots),
            ]
        });
        let mut ranges: Vec<(u32, u32)> = ranges.filter(|(_, slots)| *slots > 0).collect();
        ranges.sort_unstable();
        // Within the pool, which was checked: the sums do not overflow.
        let apart = ranges.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0);
        let head = [
            self.head.pool_fd,
            self.head.doorbell_fd,
            self.head.kernel_doorbell_fd,
            self.head.io_doorbell_fd,
        ];
        let of_ports = self
            .ports
            .iter()
            .flat_map(|port| [port.socket_fd, port.ring_fd, port.peer_doorbell_fd]);
        let mut fds: Vec<RawFd> = head.into_iter().chain(of_ports).collect();
        fds.retain(|fd| *fd >= 0);
        fds.sort_unstable();
        apart && fds.windows(2).all(|two| two[0] != two[1])
    }
}

impl TableHead {
    /// Is the pool that of a trust group?
    pub fn is_shared(&self) -> bool {
        self.magic == ATTACH_MAGIC_SHARED
    }
}

impl PortEntry {
    /// The name up to the first NUL.
    pub fn name(&self) -> &str {
        let end = self
            .name
            .iter()
            .position(|&b| b == 0)
            .unwrap_or(self.name.len());
        std::str::from_utf8(&self.name[..end]).unwrap_or("")
    }

    fn check(&self, pool_slots: u32) -> Result<(), AttachError> {
        use crate::layout::{RING_MAX, RING_MIN};
        let ring_ok = self.ring_slots.is_power_of_two()
            && (RING_MIN as u32..=RING_MAX as u32).contains(&self.ring_slots);
        let within =
            |base: u32, count: u32| base.checked_add(count).is_some_and(|end| end <= pool_slots);
        if ring_ok && within(self.rx_base, self.ring_slots) && within(self.tx_base, self.tx_slots) {
            Ok(())
        } else {
            Err(AttachError::BadTable(format!(
                "port '{}' does not fit its pool",
                self.name()
            )))
        }
    }
}

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

    /// Takes the names, addresses, sizes and peers' doorbells of `table`, which is about the same ports.
    ///
    /// # Errors
    /// [`AttachError::BadTable`] when the ports are others; a peer's doorbell that is not open.
    pub fn assign(mut self, table: &Table) -> Result<Self, AttachError> {
        if table.ports.len() != self.ports.len() {
            return Err(AttachError::BadTable("other ports".to_owned()));
        }
        for ((entry, fds, _), new) in self.ports.iter_mut().zip(&table.ports) {
            let same = PortEntry {
                name: entry.name,
                mac: entry.mac,
                mtu: entry.mtu,
                peer_doorbell_fd: entry.peer_doorbell_fd,
                ..*new
            };
            if same != *entry || entry.peer_doorbell_fd >= 0 {
                return Err(AttachError::BadTable("other ports".to_owned()));
            }
            if new.peer_doorbell_fd >= 0 {
                fds.peer_doorbell = Some(own(new.peer_doorbell_fd)?);
            }
            *entry = *new;
        }
        Ok(self)
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
}

/// File descriptors of one port, from which a [`Port`] is made.
#[derive(Debug)]
pub struct PortFds {
    /// The capability.
    pub socket: OwnedFd,
    /// The rings.
    pub ring: OwnedFd,
    /// Write end of the link peer's doorbell.
    pub peer_doorbell: Option<OwnedFd>,
    /// Wakes the instance's I/O thread.
    pub io_doorbell: Option<Arc<OwnedFd>>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> PortEntry {
        let mut name = [0u8; 32];
        name[..2].copy_from_slice(b"in");
        PortEntry {
            name,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            queue: 0,
            queues: 1,
            socket_fd: 5,
            ring_fd: 6,
            peer_doorbell_fd: -1,
            ring_slots: 64,
            rx_base: 0,
            tx_base: 64,
            tx_slots: 64,
        }
    }

    fn table() -> Table {
        let head = TableHead {
            magic: ATTACH_MAGIC,
            ports: 1,
            pool_fd: 4,
            pool_slots: 128,
            doorbell_fd: 7,
            kernel_doorbell_fd: -1,
            io_doorbell_fd: -1,
        };
        Table {
            head,
            ports: vec![entry()],
        }
    }

    fn two_ports() -> Table {
        let mut table = table();
        (table.head.ports, table.head.pool_slots) = (2, 256);
        table.ports.push(PortEntry {
            socket_fd: 8,
            ring_fd: 9,
            rx_base: 128,
            tx_base: 192,
            ..entry()
        });
        table
    }

    // promise: 1.10
    #[test]
    fn a_table_survives_the_way_through_bytes() {
        let bytes = table().to_bytes();
        assert_eq!(bytes.len(), size_of::<TableHead>() + size_of::<PortEntry>());
        assert_eq!(Table::parse(&bytes).expect("valid"), table());
    }

    #[test]
    fn a_shared_pool_s_slots_are_named_elsewhere() {
        let mut shared = two_ports();
        shared.head.magic = ATTACH_MAGIC_SHARED;
        shared.ports[1].rx_base = 0;
        assert_eq!(Table::parse(&shared.to_bytes()).expect("valid"), shared);
        shared.head.pool_slots = SHARED_SLOTS_MAX + 1;
        assert!(Table::parse(&shared.to_bytes()).is_err());
    }

    // promise: 1.10
    #[test]
    fn damaged_tables_are_refused() {
        let bytes = table().to_bytes();
        for cut in 0..bytes.len() {
            assert!(Table::parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for share in [
            |port: &mut PortEntry| port.rx_base = 0,
            |port: &mut PortEntry| port.tx_base = 191,
            |port: &mut PortEntry| port.ring_fd = 6,
            |port: &mut PortEntry| port.peer_doorbell_fd = 4,
        ] {
            let mut shared = two_ports();
            assert!(Table::parse(&shared.to_bytes()).is_ok());
            share(&mut shared.ports[1]);
            assert!(Table::parse(&shared.to_bytes()).is_err(), "{shared:?}");
        }
        let mut outside = table();
        outside.ports[0].rx_base = 65;
        assert!(Table::parse(&outside.to_bytes()).is_err());
        let mut odd = table();
        odd.ports[0].ring_slots = 65;
        assert!(Table::parse(&odd.to_bytes()).is_err());
    }
}
