//! A fast path in the kernel: loaded, attached, run on single packets, its counters.

use crate::hook::{Hook, Objects, context_of_segments};
use crate::interface;
use libbpf_rs::{
    Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenMapMut, OpenObject, ProgramAttachType,
    ProgramInput, ProgramMut,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Room for a packet that has been run.
const PACKET_MAX: usize = 4096;
/// The map of a program's successor (`bpf/evnf/chain.h`): a program's own.
const NEXT: &str = "evnf_next";
/// The map of interfaces whose other end can be given packets (`bpf/evnf/hook.h`), in programs for tc.
const PEERS: &str = "evnf_peers";
/// Entries of it (`EVNF_PEERS_MAX`).
const PEERS_MAX: usize = 16_384;

/// The reason why a fast path could not be loaded, or does not answer.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {what}: {why}")]
pub struct LoadError {
    program: &'static str,
    what: &'static str,
    why: String,
}

pub use crate::hook::Action;

impl LoadError {
    /// Adds what may help.
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.why = format!("{} ({hint})", self.why);
        self
    }
}

/// Counted packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// The bytes of the packets, with Ethernet headers.
    pub bytes: u64,
}

/// A run on one packet.
#[derive(Clone, Debug)]
pub struct Run {
    /// The treatment of the packet.
    pub action: Action,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// Mean time of a run in nanoseconds.
    pub ns: u32,
}

/// A loaded program with its maps.
pub struct Fast {
    object: Object,
    program: &'static str,
    /// The objects that the program was loaded from.
    source: Objects,
    hook: Hook,
}

impl std::fmt::Debug for Fast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fast").field(&self.program).finish()
    }
}

/// Converts an error with its text into an error of a program.
pub(crate) fn because<E: ToString>(
    program: &'static str,
    what: &'static str,
) -> impl FnOnce(E) -> LoadError {
    move |why| LoadError {
        program,
        what,
        why: why.to_string(),
    }
}

/// Runs `work` without libbpf's messages: the returned error has the information.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let print = libbpf_rs::set_print(None);
    let done = work();
    libbpf_rs::set_print(print);
    done
}

impl Fast {
    /// Loads `program` for XDP. `prepare` sees each map before.
    pub(crate) fn load(
        source: impl Into<Objects>,
        program: &'static str,
        prepare: impl FnMut(&mut OpenMapMut<'_>) -> Result<(), LoadError>,
    ) -> Result<Self, LoadError> {
        Fast::load_at(Hook::Xdp, source.into(), program, prepare)
    }

    pub(crate) fn load_at(
        hook: Hook,
        source: Objects,
        program: &'static str,
        mut prepare: impl FnMut(&mut OpenMapMut<'_>) -> Result<(), LoadError>,
    ) -> Result<Self, LoadError> {
        let object = source.of(hook).ok_or_else(|| {
            because(program, "loading")(match hook {
                Hook::Egress => "it is for what comes in only: it has no variant for egress",
                _ => "it is for XDP only: it has no variant for tc",
            })
        })?;
        let mut open = ObjectBuilder::default()
            .open_memory(object)
            .map_err(because(program, "opening"))?;
        for mut map in open.maps_mut() {
            prepare(&mut map)?;
        }
        if hook == Hook::Component {
            call_from_an_extension(&mut open);
        }
        let loaded = quietly(|| open.load());
        let object = loaded.map_err(because(program, "loading"))?;
        Ok(Fast {
            object,
            program,
            source,
            hook,
        })
    }

    /// Loads the program once more, at a hook, with the same tables but a successor of its own.
    pub(crate) fn again(&self, hook: Hook) -> Result<Self, LoadError> {
        Fast::load_at(hook, self.source, self.program, |map| {
            let name = map.name().to_string_lossy().into_owned();
            if name == NEXT || name == PEERS && self.hook != hook {
                return Ok(());
            }
            let shared = self.map(&name)?;
            let reused = map.reuse_fd(shared.as_fd());
            reused.map_err(because(self.program, "sharing its tables"))
        })
    }

    /// Returns the program's hook.
    pub(crate) fn hook(&self) -> Hook {
        self.hook
    }

    /// Attaches the program to an interface of the calling thread's network namespace, at XDP natively where the
    /// driver can. The program stays until the link is dropped.
    ///
    /// # Errors
    /// When the interface does not exist, or, at XDP, another program is attached; the error names it.
    pub fn attach(&mut self, interface: &str) -> Result<Link, LoadError> {
        let (name, hook) = (self.program, self.hook);
        let index = interface::index(interface).map_err(because(name, "finding the interface"))?;
        let program = self.program();
        let attached = quietly(|| hook.attach(&program, index));
        attached.map_err(|error| {
            let at_xdp = hook.is_xdp();
            let occupant = at_xdp.then(|| interface::occupant(program.as_fd(), index));
            let why = match occupant.flatten() {
                Some(other) => format!(
                    "{interface} has an XDP program already, {other}; the kernel takes one on each interface: \
                     take that away first (ip link set dev {interface} xdp off), or have it end"
                ),
                None => format!("{interface}: {error}"),
            };
            because(name, "attaching")(why)
        })
    }

    /// Puts it in the place of the program that a link has attached, in one step.
    pub(crate) fn take_place(&mut self, link: &mut Link) -> Result<(), LoadError> {
        let name = self.program;
        let replaced = link.update_prog(&self.program());
        replaced.map_err(because(name, "replacing a program"))
    }

    /// Sets the successor, which gets the packets that this program passes.
    pub(crate) fn set_next(&self, next: Option<&mut Fast>) -> Result<(), LoadError> {
        let key = 0u32.to_ne_bytes();
        match next {
            Some(next) => {
                let program = next.program().as_fd().as_raw_fd();
                self.enter(NEXT, &key, &program.to_ne_bytes())
            }
            None => {
                // An absent entry is the wanted result.
                let _absent = self.map(NEXT)?.delete(&key);
                Ok(())
            }
        }
    }

    /// Enters the interfaces whose other ends can be given packets directly: interfaces of kind veth whose other end
    /// is in another namespace, and no others. XDP needs no such entry.
    pub(crate) fn set_peers(&self, interfaces: &[u32]) -> Result<(), LoadError> {
        if self.hook.is_xdp() {
            return Ok(());
        }
        let map = self.map(PEERS)?;
        let gone = |key: &Vec<u8>| {
            let number = key.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
            number.is_none_or(|number| !interfaces.contains(&number))
        };
        let gone: Vec<Vec<u8>> = map.keys().filter(gone).collect();
        for key in gone {
            map.delete(&key).map_err(because(self.program, PEERS))?;
        }
        for number in interfaces.iter().take(PEERS_MAX) {
            self.enter(PEERS, &number.to_ne_bytes(), &1u32.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Keeps the program's successor at a path on a BPF file system, where no file is: the map forgets the successor
    /// when no process holds the map.
    pub(crate) fn pin_next(&mut self, path: &Path) -> Result<(), LoadError> {
        let mut maps = self.object.maps_mut();
        let next = maps.find(|map| map.name() == NEXT);
        let pinned = next.expect("each program has one").pin(path);
        pinned.map_err(because(self.program, "pinning its successor"))
    }

    /// Runs the program on one packet `repeat` times.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn test_run(&mut self, packet: &[u8], repeat: u32) -> Result<Run, LoadError> {
        self.run(packet, repeat, None)
    }

    /// Runs it on a packet that is going to be cut into segments with so many bytes each; at tc only.
    pub(crate) fn test_run_segments(
        &mut self,
        packet: &[u8],
        segment_bytes: u32,
    ) -> Result<Run, LoadError> {
        self.run(packet, 1, Some(&mut context_of_segments(segment_bytes)))
    }

    fn run(
        &mut self,
        packet: &[u8],
        repeat: u32,
        context: Option<&mut [u8]>,
    ) -> Result<Run, LoadError> {
        let mut out = [0; PACKET_MAX];
        let input = ProgramInput {
            data_in: Some(packet),
            data_out: Some(&mut out),
            context_in: context,
            repeat,
            ..ProgramInput::default()
        };
        let (name, hook) = (self.program, self.hook);
        let output = self.program().test_run(input);
        let output = output.map_err(because(name, "running it on a packet"))?;
        Ok(Run {
            action: hook.action(output.return_value),
            ns: u32::try_from(output.duration.as_nanos()).unwrap_or(u32::MAX),
            packet: output.data.unwrap_or_default().to_vec(),
        })
    }

    /// Returns a descriptor of the program, for attaching it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn descriptor(&self) -> Result<OwnedFd, LoadError> {
        let mut programs = self.object.progs();
        let found = programs.find(|program| program.name().to_string_lossy() == self.program);
        let program = found.expect("it was loaded");
        let descriptor = program.as_fd().try_clone_to_owned();
        descriptor.map_err(because(self.program, "duplicating its descriptor"))
    }

    fn program(&mut self) -> ProgramMut<'_> {
        let mut programs = self.object.progs_mut();
        let found = programs.find(|program| program.name().to_string_lossy() == self.program);
        found.expect("it was loaded")
    }

    /// A map of the program.
    pub(crate) fn map(&self, name: &str) -> Result<Map<'_>, LoadError> {
        let mut maps = self.object.maps();
        let found = maps.find(|map| map.name().to_string_lossy() == name);
        let why = || because(self.program, "finding a map")(format!("there is no {name}"));
        found.ok_or_else(why)
    }

    /// Enters a value.
    pub(crate) fn enter(
        &self,
        map: &'static str,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), LoadError> {
        let entered = self.map(map)?.update(key, value, MapFlags::ANY);
        entered.map_err(because(self.program, map))
    }

    /// Enters values of a whole table by one call.
    pub(crate) fn enter_all<'a, const K: usize, const V: usize>(
        &self,
        map: &'static str,
        entries: impl IntoIterator<Item = &'a ([u8; K], [u8; V])>,
    ) -> Result<(), LoadError> {
        let (keys, values): (Vec<[u8; K]>, Vec<[u8; V]>) = entries.into_iter().copied().unzip();
        if keys.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(keys.len()).map_err(because(self.program, map))?;
        let (keys, values) = (keys.concat(), values.concat());
        let any = MapFlags::ANY;
        let entered = self.map(map)?.update_batch(&keys, &values, count, any, any);
        entered.map_err(because(self.program, map))
    }

    /// The counters of a map that has one for each of these, in their order.
    pub(crate) fn counts_of<E: Copy>(
        &self,
        map: &'static str,
        all: &[E],
    ) -> Result<Vec<(E, Counts)>, LoadError> {
        let counted = all.iter().zip(0..);
        counted
            .map(|(one, at)| Ok((*one, self.counts(map, at)?)))
            .collect()
    }

    /// A counter, over all CPUs.
    pub(crate) fn counts(&self, map: &'static str, at: u32) -> Result<Counts, LoadError> {
        let each = self
            .map(map)?
            .lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY)
            .map_err(because(self.program, map))?;
        let mut sum = Counts::default();
        for words in each.iter().flatten() {
            let word = |at: usize| {
                let bytes = words
                    .get(at..at + 8)
                    .and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            sum.packets += word(0);
            sum.bytes += word(8);
        }
        Ok(sum)
    }
}

/// Makes programs callable from an extension, a program that replaces a function of another program: the kernel
/// compares the attach types of both (since Linux 6.18, and later 6.1 and 6.12), and an extension has none.
fn call_from_an_extension(open: &mut OpenObject) {
    for mut program in open.progs_mut() {
        // Number 0, which for XDP means no attach type.
        program.set_attach_type(ProgramAttachType::CgroupInetIngress);
    }
}

/// Bytes of `struct evnf_end`.
pub(crate) const END_BYTES: usize = 20;

/// The bytes of `struct evnf_end`.
pub(crate) fn end_bytes(at: SocketAddr, proto: u8) -> [u8; END_BYTES] {
    let (address, family) = address_bytes(at.ip());
    let mut bytes = [0; END_BYTES];
    bytes[..16].copy_from_slice(&address);
    bytes[16..18].copy_from_slice(&at.port().to_ne_bytes());
    bytes[18] = proto;
    bytes[19] = family;
    bytes
}

/// Octets of an address as the programs have them, in the first of 16 bytes, and its IP version.
pub(crate) fn address_bytes(address: IpAddr) -> ([u8; 16], u8) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => {
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, 4)
        }
        IpAddr::V6(address) => (address.octets(), 6),
    }
}

/// The bytes of `struct evnf_address`.
pub(crate) fn address_key(address: IpAddr) -> [u8; 20] {
    let (bytes, family) = address_bytes(address);
    let mut key = [0; 20];
    key[..16].copy_from_slice(&bytes);
    key[16..].copy_from_slice(&u32::from(family).to_ne_bytes());
    key
}
