//! The fast path, loaded.

use super::copies::{Copied, Copies};
use crate::chain::Member;
use crate::hook::Hook;
use crate::load::{Counts, Fast, LoadError, address_bytes, because};
use libbpf_rs::MapCore;
use std::net::SocketAddr;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inspector.bpf.o"));

const PROGRAM: &str = "evnf_inspector";
/// Bytes of `union evnf_key`.
const KEY_BYTES: usize = 40;
const HAS_PORTS: u8 = 1;
const FLAG_COPY: u8 = 1;
const FLAG_MARK: u8 = 2;

/// How much the fast path has room for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Flows in its table.
    pub flows: u32,
    /// Bytes of copies that wait, a power of two and of the page size.
    pub copies: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            flows: 65_536,
            copies: 1 << 22,
        }
    }
}

/// What becomes of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// They go on to the kernel.
    Pass = 0,
    /// They are sent straight out where the kernel would send them, past its rules and its connection tracking, as by nftables'
    /// flowtables; what cannot be (no way, no neighbour, too long) goes to the kernel.
    Forward = 1,
    /// They are dropped.
    Drop = 2,
}

/// A flow that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which counters are its own, below [`Sizes::flows`].
    pub slot: u32,
    /// What becomes of its packets.
    pub action: Action,
    /// The DSCP that they get, below 64.
    pub dscp: Option<u8>,
    /// Copies of them are handed out too, which say that they have been counted.
    pub copy: bool,
}

/// Both ways of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey([u8; KEY_BYTES]);

impl FlowKey {
    /// Between two ends of the same IP version, in any order. Only TCP and UDP have ports.
    pub fn new(one: SocketAddr, other: SocketAddr, protocol: u8) -> Self {
        let ports = matches!(protocol, 6 | 17);
        let end = |at: SocketAddr| {
            let (address, family) = address_bytes(at.ip());
            (address, if ports { at.port() } else { 0 }, family)
        };
        let (mut low, mut high) = (end(one), end(other));
        if (words(&low.0), low.1) > (words(&high.0), high.1) {
            std::mem::swap(&mut low, &mut high);
        }
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(&low.0);
        key[16..32].copy_from_slice(&high.0);
        key[32..34].copy_from_slice(&low.1.to_ne_bytes());
        key[34..36].copy_from_slice(&high.1.to_ne_bytes());
        key[36] = low.2;
        key[37] = protocol;
        key[38] = if ports { HAS_PORTS } else { 0 };
        FlowKey(key)
    }
}

/// An address as the fast path compares it: word by word, as they are in memory.
fn words(address: &[u8; 16]) -> [u32; 4] {
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| address[at * 4 + byte]));
    [word(0), word(1), word(2), word(3)]
}

/// How a packet left the fast path (`enum inspector_exit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// Of a flow in the table, to the kernel.
    Passed,
    /// Of a flow in the table, sent out.
    Forwarded,
    /// Of a flow in the table, dropped.
    Dropped,
    /// Of another flow: to the kernel, a copy was handed out.
    Copied,
    /// The same, but it is a fragment, tagged, with options or extension headers: it can be no flow's of the table.
    Unreadable,
    /// To the kernel: there was no room for a copy.
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
}

impl Inspector {
    /// Loads one that knows no flow.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn load(sizes: Sizes) -> Result<Self, LoadError> {
        let fast = Fast::load(OBJECT, PROGRAM, |map| {
            let entries = match map.name().to_string_lossy().as_ref() {
                "dpi_flows" | "dpi_counts" => sizes.flows.max(1),
                "dpi_copies" => sizes.copies,
                _ => return Ok(()),
            };
            map.set_max_entries(entries)
                .map_err(because(PROGRAM, "sizing its tables"))
        })?;
        Ok(Inspector { fast })
    }

    /// The program.
    pub fn fast(&mut self) -> &mut Fast {
        &mut self.fast
    }

    /// It as a member of a chain: what it neither drops nor sends out goes on to the next one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self) -> Result<Member, LoadError> {
        Member::of(&self.fast, Hook::Xdp)
    }

    /// Says what becomes of a flow from now on, in one step.
    ///
    /// # Errors
    /// When the table is full.
    pub fn enter(&self, key: &FlowKey, entry: &Entry) -> Result<(), LoadError> {
        let mut value = [0; 8];
        value[..4].copy_from_slice(&entry.slot.to_ne_bytes());
        value[4] = entry.action as u8;
        value[5] = if entry.copy { FLAG_COPY } else { 0 };
        if let Some(dscp) = entry.dscp {
            value[5] |= FLAG_MARK;
            value[6] = dscp & 0x3f;
        }
        self.fast.enter("dpi_flows", &key.0, &value)
    }

    /// Takes a flow out of the table. A packet on its way may still be counted, within milliseconds.
    ///
    /// # Errors
    /// When it is not in the table.
    pub fn remove(&self, key: &FlowKey) -> Result<(), LoadError> {
        let removed = self.fast.map("dpi_flows")?.delete(&key.0);
        removed.map_err(because(PROGRAM, "removing a flow"))
    }

    /// What a slot has counted since the program was loaded.
    ///
    /// # Errors
    /// When there is no such slot, or the kernel does not tell.
    pub fn counted(&self, slot: u32) -> Result<Counts, LoadError> {
        self.fast.counts("dpi_counts", slot)
    }

    /// How packets have left since the program was loaded.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn exits(&self) -> Result<Vec<(Exit, Counts)>, LoadError> {
        self.fast.counts_of("dpi_exits", &Exit::ALL)
    }

    /// Has each copy handed to `take`, when it is waited for; false: no more of them for now. One reader only.
    ///
    /// # Errors
    /// When the ring cannot be mapped.
    pub fn copies<'a>(
        &self,
        take: impl FnMut(Copied<'_>) -> bool + 'a,
    ) -> Result<Copies<'a>, LoadError> {
        Copies::new(PROGRAM, &self.fast.map("dpi_copies")?, take)
    }
}
