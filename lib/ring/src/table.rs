//! The table that names an instance's ports: the inherited file descriptors and the geometry of each port.

use crate::error::AttachError;
use crate::layout::{BLOCK_SLOTS, RING_MAX, RING_MIN, SHARED_SLOTS_MAX, is_long_area};
use crate::long::LongArea;
use crate::offload::Level;
use std::os::fd::RawFd;

/// Environment variable with the number of the table's file descriptor.
pub const ATTACH_ENV: &str = "NFLUID_ATTACH_FD";
/// First word of the table: "nfl3".
pub const ATTACH_MAGIC: u32 = 0x336c_666e;
/// The magic number of an instance that shares its pool with its trust group: "nfs3". Slots move between the members
/// of the group, so a library that does not know trust groups must not attach.
pub const ATTACH_MAGIC_SHARED: u32 = 0x3373_666e;
/// Most ports of one instance, queues counted.
pub const PORTS_MAX: usize = 64;
/// Longest table in bytes.
pub const TABLE_MAX: usize = size_of::<TableHead>() + PORTS_MAX * size_of::<PortEntry>();

/// An entry of the table: one port (one queue of it, where it has several).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    pub queues: u8,
    /// The number of the port's [`Level`]: see [`PortEntry::level`].
    pub level: u8,
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
    /// First slot in the pool for long frames that the port receives, a multiple of 64.
    pub rx_long_base: u32,
    /// The number of these slots: 0, or a power of two, 64..=4096.
    pub rx_long_slots: u32,
    /// First slot in the pool for long frames that the port's owner makes, a multiple of 64.
    pub tx_long_base: u32,
    /// The number of these slots, as `rx_long_slots`.
    pub tx_long_slots: u32,
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

const _: () = assert!(size_of::<PortEntry>() == 88);
const _: () = assert!(size_of::<TableHead>() == 28);

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
            for half in [p.mtu, p.queue] {
                words.extend_from_slice(&half.to_ne_bytes());
            }
            words.extend_from_slice(&[p.queues, p.level]);
            for word in [
                p.socket_fd as u32,
                p.ring_fd as u32,
                p.peer_doorbell_fd as u32,
                p.ring_slots,
                p.rx_base,
                p.tx_base,
                p.tx_slots,
                p.rx_long_base,
                p.rx_long_slots,
                p.tx_long_base,
                p.tx_long_slots,
            ] {
                words.extend_from_slice(&word.to_ne_bytes());
            }
        }
        words
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`AttachError::OtherVersion`] for the magic number of another version, [`AttachError::BadTable`] for any other
    /// wrong one, a wrong size, count, level or ring size, and where two ports share a slot or a descriptor.
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
            return Err(if head.is_of_other_version() {
                AttachError::OtherVersion
            } else {
                bad("wrong magic")
            });
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
                queues: *bytes.get(at + 42).ok_or_else(|| bad("too short"))?,
                level: *bytes.get(at + 43).ok_or_else(|| bad("too short"))?,
                socket_fd: word(at + 44)? as RawFd,
                ring_fd: word(at + 48)? as RawFd,
                peer_doorbell_fd: word(at + 52)? as RawFd,
                ring_slots: word(at + 56)?,
                rx_base: word(at + 60)?,
                tx_base: word(at + 64)?,
                tx_slots: word(at + 68)?,
                rx_long_base: word(at + 72)?,
                rx_long_slots: word(at + 76)?,
                tx_long_base: word(at + 80)?,
                tx_long_slots: word(at + 84)?,
            };
            if entry.level > Level::Super as u8 {
                return Err(bad("an unknown level"));
            }
            if head.is_shared() && entry.rx_long_slots + entry.tx_long_slots > 0 {
                return Err(bad("long frames in a shared pool"));
            }
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
                (port.rx_long_base, port.rx_long_slots),
                (port.tx_long_base, port.tx_long_slots),
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

    /// Returns true if the magic number is one of this version but for its last character.
    fn is_of_other_version(&self) -> bool {
        const NAME: u32 = 0x00ff_ffff;
        [ATTACH_MAGIC, ATTACH_MAGIC_SHARED]
            .iter()
            .any(|own| self.magic != *own && self.magic & NAME == own & NAME)
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

    /// Level of the frames that the switch lets through to the port: frames above it are dropped before they reach it.
    #[inline]
    pub const fn level(&self) -> Level {
        Level::numbered(self.level)
    }

    /// Returns true if `new` is about the same port: name, address, MTU, level and the peer's doorbell may be others.
    pub(crate) fn is_same_port(&self, new: &PortEntry) -> bool {
        let same = PortEntry {
            name: self.name,
            mac: self.mac,
            mtu: self.mtu,
            level: self.level,
            peer_doorbell_fd: self.peer_doorbell_fd,
            ..*new
        };
        same == *self
    }

    /// The slots for long frames that the port receives.
    pub(crate) fn rx_long(&self) -> LongArea {
        LongArea {
            base: self.rx_long_base,
            slots: self.rx_long_slots,
        }
    }

    /// The slots for long frames that the port's owner makes.
    pub(crate) fn tx_long(&self) -> LongArea {
        LongArea {
            base: self.tx_long_base,
            slots: self.tx_long_slots,
        }
    }

    pub(crate) fn check(&self, pool_slots: u32) -> Result<(), AttachError> {
        let ring_ok = self.ring_slots.is_power_of_two()
            && (RING_MIN as u32..=RING_MAX as u32).contains(&self.ring_slots);
        let within =
            |base: u32, count: u32| base.checked_add(count).is_some_and(|end| end <= pool_slots);
        let long_ok = |area: LongArea| {
            is_long_area(area.slots)
                && area.base.is_multiple_of(BLOCK_SLOTS as u32)
                && within(area.base, area.slots)
        };
        if ring_ok
            && within(self.rx_base, self.ring_slots)
            && within(self.tx_base, self.tx_slots)
            && long_ok(self.rx_long())
            && long_ok(self.tx_long())
        {
            Ok(())
        } else {
            Err(AttachError::BadTable(format!(
                "port '{}' does not fit its pool",
                self.name()
            )))
        }
    }
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
            level: Level::Super as u8,
            socket_fd: 5,
            ring_fd: 6,
            peer_doorbell_fd: -1,
            ring_slots: 64,
            rx_base: 0,
            tx_base: 64,
            tx_slots: 64,
            ..PortEntry::default()
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
        assert_eq!(table().ports[0].level(), Level::Super);
    }

    #[test]
    fn a_port_stays_the_same_at_another_level_and_not_with_other_slots() {
        let prepared = PortEntry {
            level: Level::Plain as u8,
            ..entry()
        };
        assert!(prepared.is_same_port(&entry()));
        let other = PortEntry {
            rx_long_slots: 64,
            ..entry()
        };
        assert!(!prepared.is_same_port(&other));
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

    #[test]
    fn a_table_of_another_version_is_named_as_such() {
        let refused = |magic: &[u8; 4]| {
            let mut bytes = table().to_bytes();
            bytes[..4].copy_from_slice(magic);
            Table::parse(&bytes).expect_err("another magic number")
        };
        for other in [b"nfl2", b"nfl4", b"nfs2"] {
            assert!(matches!(refused(other), AttachError::OtherVersion));
        }
        for wrong in [b"xfl3", b"nfx3"] {
            assert!(matches!(refused(wrong), AttachError::BadTable(_)));
        }
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
        for long in [
            |port: &mut PortEntry| port.rx_long_slots = 96,
            |port: &mut PortEntry| (port.rx_long_base, port.rx_long_slots) = (32, 64),
            |port: &mut PortEntry| (port.tx_long_base, port.tx_long_slots) = (192, 128),
            |port: &mut PortEntry| (port.tx_long_base, port.tx_long_slots) = (0, 64),
        ] {
            let mut table = two_ports();
            long(&mut table.ports[1]);
            assert!(Table::parse(&table.to_bytes()).is_err(), "{table:?}");
        }
        let mut outside = table();
        outside.ports[0].rx_base = 65;
        assert!(Table::parse(&outside.to_bytes()).is_err());
        let mut above = table();
        above.ports[0].level = 3;
        assert!(Table::parse(&above.to_bytes()).is_err());
        let mut odd = table();
        odd.ports[0].ring_slots = 65;
        assert!(Table::parse(&odd.to_bytes()).is_err());
    }
}
