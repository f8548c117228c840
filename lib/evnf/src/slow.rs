//! A slow path other than the kernel's stack: a tap, between the fast path and the stack
//! (`docs/adr/0027-slow-path.md`).
//!
//! Packets that the fast path hands up go into the tap, where a program reads them. Packets that a program writes into
//! that tap, or into another one, continue as if they had entered at the fast path's interface ([`Direction::Inward`]),
//! or leave there ([`Direction::Outward`]).
//!
//! **Order within a flow.** A packet does not overtake an earlier packet of its flow that is in the slow path, even if
//! the rules change meanwhile, as long as the slow path keeps the order of a flow's packets and leaves its addresses
//! unchanged.

use crate::hook::{Hook, Objects};
use crate::interface;
use crate::load::{Counts, Fast, LoadError, Run, because};
use libbpf_rs::{ErrorKind, Map, MapCore, MapFlags, MapHandle, OpenMapMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The way back is for tc only: it is on taps, whose packets are socket buffers.
const OBJECTS: Objects = Objects {
    xdp: &[],
    tc: Some(include_bytes!(concat!(env!("OUT_DIR"), "/back.tc.bpf.o"))),
    egress: None,
};
const PROGRAM: &str = "evnf_back";
/// The tables that a fast path and its way back share (`bpf/evnf/slow.h`).
const FLOWS: &str = "evnf_slow_flows";
const EXITS: &str = "evnf_slow_exits";
/// The entrance of a slow path, of each fast path's program.
const ENTRANCE: &str = "evnf_slow";

/// Longest time that a flow for the fast path waits for its packets in the slow path.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// The time after which a packet that has not come out of a slow path counts as lost.
pub const LOST: Duration = Duration::from_secs(10);

/// The result of packets between a fast path and its slow path (`enum evnf_slow_exit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlowExit {
    /// The fast path accepts the packet, but earlier packets of its flow are in the slow path: handed up.
    Behind,
    /// Dropped: there was no tap to hand it to.
    Absent,
    /// Handed up, for whatever reason.
    Handed,
    /// Given back by the slow path: on its way into the kernel's stack.
    Returned,
    /// Sent out by the slow path, where the fast path's packets come in.
    Answered,
    /// Given back when its flow had gone fast: dropped.
    Late,
}

impl SlowExit {
    /// All, in the order of their numbers.
    pub const ALL: [SlowExit; 6] = [
        SlowExit::Behind,
        SlowExit::Absent,
        SlowExit::Handed,
        SlowExit::Returned,
        SlowExit::Answered,
        SlowExit::Late,
    ];
}

/// Destination of packets that a slow path returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the kernel's stack, as if they had just come in.
    Inward,
    /// Out of the interface.
    Outward,
}

/// The tables of a slow path, shared with other programs.
#[derive(Clone, Debug)]
pub struct SlowTables {
    flows: Arc<OwnedFd>,
    exits: Arc<OwnedFd>,
    patience: Duration,
    lost: Duration,
}

/// The tables that a fast path and the return path share.
#[derive(Debug)]
pub struct SlowPath {
    /// The program that holds the tables; it is on no interface.
    holder: Fast,
    tables: SlowTables,
}

/// A program for what a slow path gives back.
#[derive(Debug)]
pub struct Back(Fast);

/// The entrance of a slow path in a loaded fast path.
#[derive(Debug)]
pub struct Entrance(MapHandle);

impl SlowPath {
    /// Makes the tables, or opens those that are pinned in a folder of a BPF file system.
    ///
    /// # Errors
    /// When the kernel refuses, or a pinned object is another one.
    pub fn load(pins: Option<&Path>) -> Result<Self, LoadError> {
        let place = |map: &mut OpenMapMut<'_>| {
            let name = map.name().to_string_lossy().into_owned();
            let pin = pins.and_then(|folder| Some(folder.join(pin_name(&name)?)));
            let placed = pin.map_or(Ok(()), |pin| map.set_pin_path(pin));
            placed.map_err(because(PROGRAM, "sharing its tables"))
        };
        let holder = Fast::load_at(Hook::Tc, OBJECTS, PROGRAM, place)?;
        let tables = SlowTables {
            flows: Arc::new(descriptor(&holder.map(FLOWS)?)?),
            exits: Arc::new(descriptor(&holder.map(EXITS)?)?),
            patience: PATIENCE,
            lost: LOST,
        };
        Ok(SlowPath { holder, tables })
    }

    /// Sets other times than [`PATIENCE`] and [`LOST`].
    #[must_use]
    pub fn waiting(mut self, patience: Duration, lost: Duration) -> Self {
        (self.tables.patience, self.tables.lost) = (patience, lost);
        self
    }

    /// Returns the tables of the slow path.
    pub fn tables(&self) -> SlowTables {
        self.tables.clone()
    }

    /// Loads a program for the tap to which the slow path writes: packets continue at the interface of this number.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn back(&self, interface: u32, direction: Direction) -> Result<Back, LoadError> {
        let prepare = |map: &mut OpenMapMut<'_>| {
            if map.name() == ".rodata.back" {
                let outward = u32::from(direction == Direction::Outward);
                let words = [interface.to_ne_bytes(), outward.to_ne_bytes()].concat();
                return put(map, PROGRAM, &words);
            }
            self.tables.share(map, PROGRAM)
        };
        Fast::load_at(Hook::Tc, OBJECTS, PROGRAM, prepare).map(Back)
    }

    /// Returns the packets per exit since the tables were made.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn exits(&self) -> Result<Vec<(SlowExit, Counts)>, LoadError> {
        self.holder.counts_of(EXITS, &SlowExit::ALL)
    }
}

impl SlowTables {
    /// Has a program use these tables.
    fn share(&self, map: &mut OpenMapMut<'_>, program: &'static str) -> Result<(), LoadError> {
        let name = map.name().to_string_lossy().into_owned();
        let shared = match name.as_str() {
            FLOWS => map.reuse_fd(self.flows.as_fd()),
            EXITS => map.reuse_fd(self.exits.as_fd()),
            _ => Ok(()),
        };
        shared.map_err(because(program, "sharing its tables"))
    }
}

/// Prepares a fast path's maps for its slow path. `None`: that is the kernel's stack, and the tables are of no use.
pub(crate) fn prepare(
    map: &mut OpenMapMut<'_>,
    slow: Option<&SlowTables>,
    program: &'static str,
) -> Result<(), LoadError> {
    let Some(slow) = slow else {
        let unused = map.name() == FLOWS;
        let sized = if unused {
            map.set_max_entries(1)
        } else {
            Ok(())
        };
        return sized.map_err(because(program, "sizing its tables"));
    };
    if map.name() == ".rodata.slow" {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let times = [slow.patience, slow.lost].map(|time| ns(time).to_ne_bytes());
        return put(
            map,
            program,
            &[times.concat(), 1u32.to_ne_bytes().to_vec()].concat(),
        );
    }
    slow.share(map, program)
}

/// The entrance of a fast path's slow path.
pub(crate) fn entrance(fast: &Fast) -> Result<Entrance, LoadError> {
    let map = fast.map(ENTRANCE)?;
    let handle = MapHandle::try_from(&map);
    Ok(Entrance(handle.map_err(because(PROGRAM, "its entrance"))?))
}

impl Entrance {
    /// Sends packets to an interface of the calling thread's network namespace, by its number. When that interface
    /// disappears, the entrance is closed: packets are dropped.
    ///
    /// # Errors
    /// When the interface does not exist.
    pub fn lead_to(&self, interface: u32) -> Result<(), LoadError> {
        let key = 0u32.to_ne_bytes();
        let entered = self.0.update(&key, &interface.to_ne_bytes(), MapFlags::ANY);
        entered.map_err(because(PROGRAM, "leading to a tap"))
    }

    /// Closes the entrance: packets are dropped, and counted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn close(&self) -> Result<(), LoadError> {
        match self.0.delete(&0u32.to_ne_bytes()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(because(PROGRAM, "closing its entrance")(error))
            }
            _ => Ok(()),
        }
    }
}

impl Back {
    /// Returns a descriptor of the program, for attaching it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn descriptor(&self) -> Result<OwnedFd, LoadError> {
        self.0.descriptor()
    }

    /// Runs the program on one packet.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn test_run(&mut self, packet: &[u8]) -> Result<Run, LoadError> {
        self.0.test_run(packet, 1)
    }
}

/// The number of an interface of the calling thread's network namespace, if there is one of that name.
pub fn number_of(interface: &str) -> Option<u32> {
    let number = interface::index(interface).ok()?;
    u32::try_from(number).ok()
}

/// Returns the name of a table's pin; `None`: the table is not pinned.
fn pin_name(map: &str) -> Option<&'static str> {
    match map {
        FLOWS => Some("slow_flows"),
        EXITS => Some("slow_exits"),
        _ => None,
    }
}

fn descriptor(map: &Map<'_>) -> Result<OwnedFd, LoadError> {
    let cloned = map.as_fd().try_clone_to_owned();
    cloned.map_err(because(PROGRAM, "duplicating a descriptor"))
}

/// Puts bytes at the beginning of a program's constants.
fn put(map: &mut OpenMapMut<'_>, program: &'static str, bytes: &[u8]) -> Result<(), LoadError> {
    let constants = map.initial_value_mut();
    let place = constants.and_then(|constants| constants.get_mut(..bytes.len()));
    let missing = || because(program, "its constants")("the object has none");
    place.ok_or_else(missing)?.copy_from_slice(bytes);
    Ok(())
}
