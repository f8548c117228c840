//! The fast path, loaded.

use super::settings::{CONSTANTS_BYTES, ENDS_MAX, Settings};
use crate::balancer::Transport;
use crate::chain::Member;
use crate::hook::Hook;
use crate::load::{Counts, Fast, LoadError, because, end_bytes};
use libbpf_rs::OpenMapMut;
use std::path::Path;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guard.bpf.o"));

const PROGRAM: &str = "evnf_guard";
/// The map that is a program's own, as its constants are: other ends are another program.
const ENDS: &str = "guard_ends";
/// Bytes of `struct guard_end`.
const END_BYTES: usize = 16;

/// Exits of the fast path (`enum guard_exit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// Within its limits.
    Passed,
    /// A packet of a connection to a protected destination.
    Connection,
    /// The packet acknowledges a cookie.
    Acknowledged,
    /// A SYN to a protected end, for the kernel to answer.
    Syn,
    /// A fragment, tagged, with options or extension headers: within its limits.
    Unreadable,
    /// IPv6 neighbour discovery: not limited.
    Neighbour,
    /// Neither IPv4 nor IPv6: not limited.
    NotIp,
    /// A packet to several hosts of the network: not limited.
    Group,
    /// A SYN that was answered by a cookie.
    Answered,
    /// Dropped: its source sends too much.
    Source,
    /// Dropped: its destination gets too much.
    Destination,
    /// Dropped: unknown sources together send too much.
    Unknown,
    /// Dropped: there is too much of what cannot be read.
    TooUnreadable,
    /// Dropped: its bucket finds no place.
    Crowded,
    /// Dropped: to a protected end, of no connection, and it acknowledges no cookie.
    NoConnection,
    /// Dropped: a SYN that also ends something.
    Flags,
    /// Dropped: shorter than its headers.
    Malformed,
    /// Dropped: a SYN for which the kernel makes no cookie, or that has no room for the answer.
    NoCookie,
}

impl Exit {
    /// All, in the order of their numbers.
    pub const ALL: [Exit; 18] = [
        Exit::Passed,
        Exit::Connection,
        Exit::Acknowledged,
        Exit::Syn,
        Exit::Unreadable,
        Exit::Neighbour,
        Exit::NotIp,
        Exit::Group,
        Exit::Answered,
        Exit::Source,
        Exit::Destination,
        Exit::Unknown,
        Exit::TooUnreadable,
        Exit::Crowded,
        Exit::NoConnection,
        Exit::Flags,
        Exit::Malformed,
        Exit::NoCookie,
    ];

    /// Returns true if such packets were dropped.
    pub fn is_drop(self) -> bool {
        self > Exit::Answered
    }
}

/// A guard. Other settings are another program, on the same tables if they are kept.
#[derive(Debug)]
pub struct Guard {
    fast: Fast,
}

impl Guard {
    /// Loads a guard.
    ///
    /// # Errors
    /// When the kernel refuses the program. SYN cookies need Linux 6.0.
    pub fn load(settings: &Settings) -> Result<Self, LoadError> {
        Self::load_with(settings, None)
    }

    /// Loads the guard with its tables in a folder of a BPF file system: opens existing tables of another program or
    /// process, and makes missing tables. Counts, connections and known sources stay.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the existing tables have another size.
    pub fn load_kept(settings: &Settings, folder: &Path) -> Result<Self, LoadError> {
        Self::load_with(settings, Some(folder))
    }

    fn load_with(settings: &Settings, folder: Option<&Path>) -> Result<Self, LoadError> {
        if settings.ends.len() > ENDS_MAX {
            let why = format!("{} of {ENDS_MAX}", settings.ends.len());
            return Err(because(PROGRAM, "protecting ends")(why));
        }
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8);
        let constants = settings.constants(seed);
        let loaded = Fast::load(OBJECT, PROGRAM, |map| {
            prepare(map, settings, &constants, folder)
        });
        let fast = loaded.map_err(|error| {
            if settings.ends.is_empty() || has_cookies() {
                return error;
            }
            error.with_hint("SYN cookies in XDP need Linux 6.0 or later")
        })?;
        for end in &settings.ends {
            let key = end_bytes(*end, Transport::Tcp as u8);
            fast.enter(ENDS, &key, &[0; END_BYTES])?;
        }
        Ok(Guard { fast })
    }

    /// The program.
    pub fn fast(&mut self) -> &mut Fast {
        &mut self.fast
    }

    /// Returns the guard as a member of a chain: packets that the guard neither drops nor answers go to the next
    /// member.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self) -> Result<Member, LoadError> {
        self.member_at(Hook::Xdp)
    }

    /// Returns the guard as a member at an XDP hook.
    ///
    /// # Errors
    /// When the kernel refuses, or the hook is not one of XDP.
    pub fn member_at(&self, hook: Hook) -> Result<Member, LoadError> {
        Member::of(&self.fast, hook)
    }

    /// Returns the packets per exit since the tables were made.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn exits(&self) -> Result<Vec<(Exit, Counts)>, LoadError> {
        self.fast.counts_of("guard_exits", &Exit::ALL)
    }
}

/// Returns true if this kernel's XDP programs can make SYN cookies, by the kernel's version.
fn has_cookies() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let major = release.split('.').next().and_then(|n| n.parse().ok());
    major.is_none_or(|major: u32| major >= 6)
}

/// Sets the sizes, constants and pins that must be known before loading.
fn prepare(
    map: &mut OpenMapMut<'_>,
    settings: &Settings,
    constants: &[u8; CONSTANTS_BYTES],
    folder: Option<&Path>,
) -> Result<(), LoadError> {
    let name = map.name().to_string_lossy().into_owned();
    let entries = match name.as_str() {
        ".rodata.guard" => {
            let place = map.initial_value_mut();
            let place = place.and_then(|bytes| bytes.get_mut(..CONSTANTS_BYTES));
            let missing = || because(PROGRAM, "its constants")("the object has none");
            return place
                .map(|place| place.copy_from_slice(constants))
                .ok_or_else(missing);
        }
        "guard_sources" | "guard_destinations" => Some(settings.sizes.sets()),
        "guard_connections" | "guard_known" => Some(settings.sizes.connections.max(1)),
        _ => None,
    };
    if let Some(entries) = entries {
        map.set_max_entries(entries)
            .map_err(because(PROGRAM, "sizing its tables"))?;
    }
    match folder {
        Some(folder) if name.starts_with("guard_") && name != ENDS => map
            .set_pin_path(folder.join(name))
            .map_err(because(PROGRAM, "keeping its tables")),
        _ => Ok(()),
    }
}
