//! The fast path, loaded.

use super::rules::Stage;
use super::tuples::{TUPLE_BYTES, TUPLES_MAX, Tables, compile};
use crate::chain::Member;
use crate::hook::{Hook, Objects};
use crate::load::{Counts, Fast, LoadError, address_key, because};
use crate::slow::{self, Entrance, SlowTables};
use libbpf_rs::OpenMapMut;
use std::net::IpAddr;
use std::path::Path;

const OBJECTS: Objects = Objects {
    xdp: include_bytes!(concat!(env!("OUT_DIR"), "/firewall.bpf.o")),
    tc: Some(include_bytes!(concat!(
        env!("OUT_DIR"),
        "/firewall.tc.bpf.o"
    ))),
    egress: Some(include_bytes!(concat!(
        env!("OUT_DIR"),
        "/firewall.egress.bpf.o"
    ))),
};

const PROGRAM: &str = "evnf_firewall";
/// Bytes before the tuples in the program's constants: their number, the seed.
const HEAD_BYTES: usize = 8;

/// Exits of the fast path (`enum evnf_exit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// A rule of the fast path has dropped it.
    Drop,
    /// All rules accept it. The kernel forwards it.
    Accept,
    /// A rule that only the kernel can decide may match it.
    Ask,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// The packet has a VLAN tag: it belongs to another interface of the host.
    Tagged,
    /// The headers end too early or contradict each other.
    Malformed,
    /// The packet has IP options.
    Options,
    /// The packet is a fragment.
    Fragment,
    /// The packet has IPv6 extension headers.
    Extension,
    /// The packet is for a group of hosts.
    Group,
    /// The packet has no hop left: the host answers it.
    Ttl,
    /// The host neither forwards it nor takes it itself, as far as the fast path can see.
    NoRoute,
}

impl Exit {
    /// All, in the order of their numbers.
    pub const ALL: [Exit; 12] = [
        Exit::Drop,
        Exit::Accept,
        Exit::Ask,
        Exit::NotIp,
        Exit::Tagged,
        Exit::Malformed,
        Exit::Options,
        Exit::Fragment,
        Exit::Extension,
        Exit::Group,
        Exit::Ttl,
        Exit::NoRoute,
    ];
}

/// The parts that a rule set's program shares with others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharing<'a> {
    /// A path on a BPF file system, where the counter of how packets leave is pinned, or will be. Absent: its own.
    pub exits: Option<&'a Path>,
    /// The slow path, at XDP. Absent: the kernel's stack.
    pub slow: Option<&'a SlowTables>,
}

/// A rule set as a loaded XDP program with its tables.
#[derive(Debug)]
pub struct Firewall {
    fast: Fast,
    left_out: Vec<u32>,
}

impl Firewall {
    /// Loads a fast path that decides by these stages. `local`: the host's addresses; packets for other hosts that the
    /// host does not forward are left to the kernel.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(stages: &[Stage], local: &[IpAddr]) -> Result<Self, LoadError> {
        Self::load_with(stages, local, Sharing::default())
    }

    /// Loads the program with the parts that it shares with others.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the pin of its counter is another object.
    pub fn load_with(
        stages: &[Stage],
        local: &[IpAddr],
        sharing: Sharing<'_>,
    ) -> Result<Self, LoadError> {
        let tables = compile(stages);
        let fast = Fast::load(OBJECTS, PROGRAM, |map| match sharing.exits {
            Some(path) if map.name() == "evnf_exits" => map
                .set_pin_path(path)
                .map_err(because(PROGRAM, "sharing its counters")),
            _ => prepare(map, &tables, local.len())
                .and_then(|()| slow::prepare(map, sharing.slow, PROGRAM)),
        })?;
        fast.enter_all("evnf_rules", &tables.entries)?;
        for address in local {
            fast.enter("evnf_local", &address_key(*address), &[1, 0, 0, 0])?;
        }
        Ok(Firewall {
            fast,
            left_out: tables.left_out,
        })
    }

    /// The program.
    pub fn fast(&mut self) -> &mut Fast {
        &mut self.fast
    }

    /// Returns the firewall as a member of a chain: packets that all rules accept go to the next member, all
    /// others to the kernel. If the next member may forward packets, the stages must be those of
    /// [`crate::nft::Split::before_senders`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self) -> Result<Member, LoadError> {
        self.member_at(Hook::Xdp)
    }

    /// Returns the firewall as a member at a hook. All its members share the tables, at any hook. At [`Hook::Egress`]
    /// the stages must be those of [`crate::nft::split_leaving`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member_at(&self, hook: Hook) -> Result<Member, LoadError> {
        Member::of(&self.fast, hook)
    }

    /// Returns the entrance of its slow path: until the entrance leads to an interface, packets for the slow path are
    /// dropped.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn entrance(&self) -> Result<Entrance, LoadError> {
        slow::entrance(&self.fast)
    }

    /// Returns the numbers of rules that the tables have no room for: these rules and the rules behind them in their
    /// chain are left to the kernel.
    pub fn left_out(&self) -> &[u32] {
        &self.left_out
    }

    /// Returns the packets per exit since the program was loaded.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn exits(&self) -> Result<Vec<(Exit, Counts)>, LoadError> {
        self.fast.counts_of("evnf_exits", &Exit::ALL)
    }

    /// Returns the packets that a rule has dropped.
    ///
    /// # Errors
    /// When the rule does not exist, or the kernel does not report the counts.
    pub fn dropped_by(&self, rule: u32) -> Result<Counts, LoadError> {
        self.fast.counts("evnf_rule_counts", rule)
    }
}

/// Sizes and fills the maps whose content has to be known before loading.
fn prepare(map: &mut OpenMapMut<'_>, tables: &Tables, local: usize) -> Result<(), LoadError> {
    let entries = match map.name().to_string_lossy().as_ref() {
        ".rodata.firewall" => {
            let constants = map.initial_value_mut();
            let constants =
                constants.filter(|bytes| bytes.len() >= HEAD_BYTES + TUPLES_MAX * TUPLE_BYTES);
            let missing = || because(PROGRAM, "its constants")("the object has none");
            return constants
                .map(|constants| put_constants(constants, tables))
                .ok_or_else(missing);
        }
        "evnf_rules" => tables.entries.len(),
        "evnf_local" => local,
        "evnf_rule_counts" => tables.rules as usize,
        _ => return Ok(()),
    };
    map.set_max_entries(entries.max(1) as u32)
        .map_err(because(PROGRAM, "sizing its tables"))
}

fn put_constants(constants: &mut [u8], tables: &Tables) {
    let count = tables.tuples.len() as u32;
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8) as u32;
    constants[..4].copy_from_slice(&count.to_ne_bytes());
    constants[4..8].copy_from_slice(&seed.to_ne_bytes());
    for (at, tuple) in tables.tuples.iter().enumerate() {
        let at = HEAD_BYTES + at * TUPLE_BYTES;
        constants[at..at + TUPLE_BYTES].copy_from_slice(tuple);
    }
}
