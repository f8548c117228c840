//! The fast path, loaded.

use super::maglev::{Candidate, SLOTS, table};
use crate::chain::Member;
use crate::hook::{Hook, Objects};
use crate::load::{Counts, END_BYTES, Fast, LoadError, address_key, because, end_bytes};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, OpenMapMut, libbpf_sys};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const OBJECTS: Objects = Objects {
    xdp: include_bytes!(concat!(env!("OUT_DIR"), "/balancer.bpf.o")),
    tc: Some(include_bytes!(concat!(
        env!("OUT_DIR"),
        "/balancer.tc.bpf.o"
    ))),
    egress: None,
};

const PROGRAM: &str = "evnf_balancer";
/// Most servers (`EVNF_SERVERS_MAX`).
pub const SERVERS_MAX: u32 = 4096;
/// Most services (`EVNF_SERVICES_MAX`).
pub const SERVICES_MAX: u32 = 1024;

/// Transport protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
}

/// How packets reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// With the server's address as destination; replies pass the balancer.
    Translate = 0,
    /// Unchanged, to the server's MAC address; the server has the service's address and replies directly.
    Direct = 1,
}

/// The traffic that a server may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Connections.
    Up = 0,
    /// Packets of those that it has.
    Draining = 1,
    /// No traffic: the server's connections go to others.
    Down = 2,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// The address at which it listens.
    pub at: SocketAddr,
    /// The traffic that the server may get.
    pub state: State,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The address for clients.
    pub at: SocketAddr,
    /// The protocol of the service.
    pub transport: Transport,
    /// How packets reach its servers.
    pub mode: Mode,
    /// Numbers of its servers, of the same IP version, and their weights.
    pub servers: Vec<(u32, u32)>,
}

/// Exits of the fast path (`enum balancer_exit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// To a server.
    Sent,
    /// From a server to its client.
    Returned,
    /// A packet of no service, passed to the kernel.
    Other,
    /// A fragment, tagged, with options or extension headers: the kernel's.
    Unreadable,
    /// Dropped: no server is up.
    NoServer,
    /// Dropped: the client uses the same port with another service on each server that was tried.
    Conflict,
    /// Dropped: the table of connections takes no more.
    Full,
    /// Translated; the kernel, which finds the next hop's address, sends it on.
    Neighbour,
    /// Dropped: there is no way, or for direct return no neighbour yet.
    NoRoute,
    /// Dropped: longer than the way takes.
    TooLong,
    /// Dropped: shorter than its headers.
    Malformed,
    /// An ICMP error about a connection, to its server or to its client.
    IcmpError,
    /// A ping to a service's address, answered.
    Echo,
}

impl Exit {
    /// All, in the order of their numbers.
    pub const ALL: [Exit; 13] = [
        Exit::Sent,
        Exit::Returned,
        Exit::Other,
        Exit::Unreadable,
        Exit::NoServer,
        Exit::Conflict,
        Exit::Full,
        Exit::Neighbour,
        Exit::NoRoute,
        Exit::TooLong,
        Exit::Malformed,
        Exit::IcmpError,
        Exit::Echo,
    ];
}

/// A balancer.
#[derive(Debug)]
pub struct Balancer {
    fast: Fast,
    servers: Vec<Option<Server>>,
    /// Number of changes of servers.
    generation: u32,
}

impl Balancer {
    /// Loads a balancer that remembers `connections` (each counts twice, once per direction).
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(connections: u32) -> Result<Self, LoadError> {
        Ok(Balancer {
            fast: Fast::load(OBJECTS, PROGRAM, |map| prepare(map, connections, None))?,
            servers: vec![None; SERVERS_MAX as usize],
            generation: 0,
        })
    }

    /// Loads the balancer with its tables in a folder of a BPF file system, as its only user: opens existing tables of
    /// another process, and makes missing tables. Existing connections stay.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the existing tables have another type or number of connections.
    pub fn load_kept(connections: u32, folder: &Path) -> Result<Self, LoadError> {
        let fast = Fast::load(OBJECTS, PROGRAM, |map| {
            prepare(map, connections, Some(folder))
        })?;
        let mut balancer = Balancer {
            fast,
            servers: Vec::new(),
            generation: 0,
        };
        let generation = balancer.entry("lb_generation", 0)?;
        balancer.generation = generation
            .first_chunk()
            .map_or(0, |n| u32::from_ne_bytes(*n));
        for number in 0..SERVERS_MAX {
            let server = server_of(&balancer.entry("lb_servers", number)?);
            balancer.servers.push(server);
        }
        Ok(balancer)
    }

    /// The program.
    pub fn fast(&mut self) -> &mut Fast {
        &mut self.fast
    }

    /// Returns the balancer as a member of a chain: packets of no service go to the next member.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self) -> Result<Member, LoadError> {
        self.member_at(Hook::Xdp)
    }

    /// Returns the balancer as a member at a hook. All its members share the tables, at any hook.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member_at(&self, hook: Hook) -> Result<Member, LoadError> {
        Member::of(&self.fast, hook)
    }

    /// Enters a server. Another address under a number ends its connections.
    ///
    /// # Errors
    /// A number that cannot be, or the kernel refuses.
    pub fn set_server(&mut self, number: u32, server: Server) -> Result<(), LoadError> {
        let known = self.servers.get_mut(number as usize);
        let known = known.ok_or_else(|| {
            because(PROGRAM, "entering a server")(format!("{number} of {SERVERS_MAX}"))
        })?;
        let mut value = end_bytes(server.at, 0).to_vec();
        value.extend((server.state as u32).to_ne_bytes());
        self.fast
            .enter("lb_servers", &number.to_ne_bytes(), &value)?;
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation.to_ne_bytes();
        self.fast
            .enter("lb_generation", &0u32.to_ne_bytes(), &generation)?;
        *known = Some(server);
        Ok(())
    }

    /// Sets the address and the servers of a service. Connections keep their servers; new ones follow the weights of
    /// servers that are up.
    ///
    /// # Errors
    /// An invalid number, a server that is unknown or of the other IP version, or the kernel refuses.
    pub fn set_service(&mut self, id: u32, service: &Service) -> Result<(), LoadError> {
        let wrong = |why: String| because(PROGRAM, "entering a service")(why);
        if id >= SERVICES_MAX {
            return Err(wrong(format!("{id} of {SERVICES_MAX}")));
        }
        let mut candidates = Vec::new();
        for (number, weight) in &service.servers {
            let server = self.servers.get(*number as usize).copied().flatten();
            let server = server.ok_or_else(|| wrong(format!("there is no server {number}")))?;
            if server.at.is_ipv4() != service.at.is_ipv4() {
                return Err(wrong(format!("{} cannot serve {}", server.at, service.at)));
            }
            candidates.push(Candidate {
                server: *number,
                identity: xxh3_64(&end_bytes(server.at, 0)),
                weight: if server.state == State::Up {
                    *weight
                } else {
                    0
                },
            });
        }
        let slots = table(&candidates);
        if slots.is_empty() {
            // An absent entry is the wanted result.
            let _absent = self.fast.map("lb_tables")?.delete(&id.to_ne_bytes());
        } else {
            let map = maglev_map(&slots)?;
            let fd = map.as_fd().as_raw_fd().to_ne_bytes();
            self.fast.enter("lb_tables", &id.to_ne_bytes(), &fd)?;
        }
        let value = [id.to_ne_bytes(), (service.mode as u32).to_ne_bytes()].concat();
        let key = end_bytes(service.at, service.transport as u8);
        self.fast.enter("lb_services", &key, &value)?;
        let address = address_key(service.at.ip());
        self.fast.enter("lb_addresses", &address, &[0; 4])
    }

    /// Removes a service. Its connections stay; its other packets go to the kernel from here on, and so do pings to its
    /// address if no other service has the address.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_service(
        &self,
        id: u32,
        at: SocketAddr,
        transport: Transport,
    ) -> Result<(), LoadError> {
        let key = end_bytes(at, transport as u8);
        let keys: [(&'static str, &[u8]); 2] =
            [("lb_services", &key), ("lb_tables", &id.to_ne_bytes())];
        for (map, key) in keys {
            match self.fast.map(map)?.delete(key) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(because(PROGRAM, "removing a service")(error));
                }
                _ => {}
            }
        }
        let services = self.fast.map("lb_services")?;
        let mut others = services.keys().filter_map(|key| address_of(&key));
        if !others.any(|other| other == at.ip()) {
            // The service has no such entry if a daemon of an older version entered it.
            let addresses = self.fast.map("lb_addresses")?;
            let _absent = addresses.delete(&address_key(at.ip()));
        }
        Ok(())
    }

    /// An entry of an array.
    fn entry(&self, map: &'static str, at: u32) -> Result<Vec<u8>, LoadError> {
        let found = self
            .fast
            .map(map)?
            .lookup(&at.to_ne_bytes(), MapFlags::ANY)
            .map_err(because(PROGRAM, map))?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the packets per exit since the program was loaded.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn exits(&self) -> Result<Vec<(Exit, Counts)>, LoadError> {
        self.fast.counts_of("lb_exits", &Exit::ALL)
    }

    /// Returns the number of TCP connections that began here with a later packet than their first: they were forgotten
    /// for lack of room, their server is down, or they are older than the balancer.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn begun_midway(&self) -> Result<u64, LoadError> {
        Ok(self.fast.counts("lb_midway", 0)?.packets)
    }

    /// Returns the packets and bytes sent to a server.
    ///
    /// # Errors
    /// When the server does not exist, or the kernel does not report the counts.
    pub fn sent_to(&self, server: u32) -> Result<Counts, LoadError> {
        self.fast.counts("lb_server_counts", server)
    }
}

/// Sizes the maps whose size has to be known before loading, and sets where they are kept.
fn prepare(
    map: &mut OpenMapMut<'_>,
    connections: u32,
    folder: Option<&Path>,
) -> Result<(), LoadError> {
    let name = map.name().to_string_lossy().into_owned();
    if name == "lb_connections" {
        map.set_max_entries(connections.saturating_mul(2).max(2))
            .map_err(because(PROGRAM, "sizing its tables"))?;
    }
    match folder {
        Some(folder) if name.starts_with("lb_") => map
            .set_pin_path(folder.join(name))
            .map_err(because(PROGRAM, "keeping its tables")),
        _ => Ok(()),
    }
}

/// The address that `struct evnf_end` begins with; `None`: nothing yet.
fn address_of(end: &[u8]) -> Option<IpAddr> {
    match end.get(19)? {
        4 => Some(IpAddr::from(*end.first_chunk::<4>()?)),
        6 => Some(IpAddr::from(*end.first_chunk::<16>()?)),
        _ => None,
    }
}

/// Reads `struct lb_server`; `None`: the entry is empty.
fn server_of(bytes: &[u8]) -> Option<Server> {
    let (end, state) = bytes.split_first_chunk::<END_BYTES>()?;
    Some(Server {
        at: SocketAddr::new(address_of(end)?, u16::from_ne_bytes([end[16], end[17]])),
        state: match u32::from_ne_bytes(*state.first_chunk()?) {
            0 => State::Up,
            1 => State::Draining,
            _ => State::Down,
        },
    })
}

/// A table of a service, filled.
fn maglev_map(slots: &[u32]) -> Result<MapHandle, LoadError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let map = MapHandle::create(
        MapType::Array,
        Some("lb_table"),
        4,
        4,
        SLOTS as u32,
        &options,
    )
    .map_err(because(PROGRAM, "making a table of slots"))?;
    let keys: Vec<u8> = (0..slots.len() as u32).flat_map(u32::to_ne_bytes).collect();
    let values: Vec<u8> = slots.iter().flat_map(|slot| slot.to_ne_bytes()).collect();
    map.update_batch(
        &keys,
        &values,
        slots.len() as u32,
        MapFlags::ANY,
        MapFlags::ANY,
    )
    .map_err(because(PROGRAM, "filling a table of slots"))?;
    Ok(map)
}
