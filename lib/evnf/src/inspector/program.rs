//! The fast path, loaded.

use super::entry::Action;
use super::tables::Tables;
use crate::chain::Member;
use crate::hook::{Hook, Objects};
use crate::load::{Counts, Fast, LoadError, because};
use std::os::fd::AsFd;
use std::path::Path;

const OBJECTS: Objects = Objects {
    xdp: include_bytes!(concat!(env!("OUT_DIR"), "/inspector.bpf.o")),
    tc: Some(include_bytes!(concat!(
        env!("OUT_DIR"),
        "/inspector.tc.bpf.o"
    ))),
    egress: None,
};

const PROGRAM: &str = "evnf_inspector";
const FLOWS: &str = "dpi_flows";
pub(super) const COUNTS: &str = "dpi_counts";
const COPIES: &str = "dpi_copies";
const LEDGER: &str = "dpi_ledger";

/// Sizes of the fast path's tables.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Flows in its table.
    pub flows: u32,
    /// Bytes of copies that wait, a power of two and of the page size.
    pub copies: u32,
    /// Number of 64-bit words for the classifier's counters.
    pub ledger: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            flows: 65_536,
            copies: 1 << 22,
            ledger: 1,
        }
    }
}

/// Exits of the fast path (`enum inspector_exit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// A packet of a flow in the table, passed to the kernel.
    Passed,
    /// A packet of a flow in the table, sent out.
    Forwarded,
    /// A packet of a flow in the table, dropped.
    Dropped,
    /// A packet of another flow, passed to the kernel, with a copy to the classifier.
    Copied,
    /// As [`Exit::Copied`], but the packet is a fragment, tagged, or has options or extension headers: it can belong to
    /// no flow of the table.
    Unreadable,
    /// A packet passed to the kernel without a copy, because the ring was full.
    Unseen,
    /// Neither IPv4 nor IPv6: to the kernel.
    NotIp,
}

impl Exit {
    /// All, in the order of their numbers.
    pub const ALL: [Exit; 7] = [
        Exit::Passed,
        Exit::Forwarded,
        Exit::Dropped,
        Exit::Copied,
        Exit::Unreadable,
        Exit::Unseen,
        Exit::NotIp,
    ];
}

/// A fast path.
#[derive(Debug)]
pub struct Inspector {
    fast: Fast,
    tables: Tables,
}

impl Inspector {
    /// Loads an inspector without flows.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(sizes: Sizes) -> Result<Self, LoadError> {
        Inspector::load_in(sizes, None)
    }

    /// Loads the inspector with its tables in a folder of a BPF file system, as its only user: opens existing tables,
    /// and makes missing tables. Known flows stay known.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the existing tables have another type or size.
    pub fn load_kept(sizes: Sizes, folder: &Path) -> Result<Self, LoadError> {
        Inspector::load_in(sizes, Some(folder))
    }

    fn load_in(sizes: Sizes, folder: Option<&Path>) -> Result<Self, LoadError> {
        let fast = Fast::load(OBJECTS, PROGRAM, |map| {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                FLOWS | COUNTS => Some(sizes.flows.max(1)),
                COPIES => Some(sizes.copies),
                LEDGER => Some(sizes.ledger.max(1)),
                _ => None,
            };
            if let Some(entries) = entries {
                map.set_max_entries(entries)
                    .map_err(because(PROGRAM, "sizing its tables"))?;
            }
            match folder {
                Some(folder) if name.starts_with("dpi_") => map
                    .set_pin_path(folder.join(name))
                    .map_err(because(PROGRAM, "keeping its tables")),
                _ => Ok(()),
            }
        })?;
        let descriptor = |name| {
            let descriptor = fast.map(name)?.as_fd().try_clone_to_owned();
            descriptor.map_err(because(PROGRAM, "duplicating a table's descriptor"))
        };
        let fds = [
            descriptor(FLOWS)?,
            descriptor(COUNTS)?,
            descriptor(COPIES)?,
            descriptor(LEDGER)?,
        ];
        let tables = Tables::handed(fds, cpus()?)?;
        Ok(Inspector { fast, tables })
    }

    /// Forbids these actions from now on: flows with such an entry pass. All other actions are permitted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forbid(&self, actions: &[Action]) -> Result<(), LoadError> {
        let bits = actions
            .iter()
            .fold(0u32, |bits, action| bits | 1 << *action as u8);
        let only = 0u32.to_ne_bytes();
        self.fast.enter("dpi_forbidden", &only, &bits.to_ne_bytes())
    }

    /// Returns the inspector's tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The program.
    pub fn fast(&mut self) -> &mut Fast {
        &mut self.fast
    }

    /// Returns the inspector as a member of a chain: packets that it neither drops nor sends out go to the next
    /// member.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self) -> Result<Member, LoadError> {
        self.member_at(Hook::Xdp)
    }

    /// Returns the inspector as a member at a hook. All its members share the tables, at any hook.
    ///
    /// # Errors
    /// When the kernel refuses, or the inspector has no form for the hook.
    pub fn member_at(&self, hook: Hook) -> Result<Member, LoadError> {
        Member::of(&self.fast, hook)
    }

    /// Returns the packets per exit since the program was loaded.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn exits(&self) -> Result<Vec<(Exit, Counts)>, LoadError> {
        self.fast.counts_of("dpi_exits", &Exit::ALL)
    }
}

/// Returns the number of possible CPUs of the kernel: the number of values of each entry of a per-CPU table.
///
/// # Errors
/// When the kernel does not report the number.
pub fn cpus() -> Result<usize, LoadError> {
    libbpf_rs::num_possible_cpus().map_err(because(PROGRAM, "counting CPUs"))
}
