//! Clients that have an instance each, made when their first frame comes: the rules behind which they are, the table of those
//! that have one, and the frames that wait of those that have none. The user half of `bpf/switch/client.h`.

use crate::SwitchError;
use crate::abi::{ETHER_IPV4, ETHER_IPV6};
use crate::program::Switch;
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN, SLOT_SIZE};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

/// Most clients that can have an instance at once.
pub const CLIENTS_MAX: u32 = 16384;
/// Templates are numbered from 1 up to, but without, this.
pub const TEMPLATES_MAX: u32 = 1 << 23;

const RULE_CLIENTS: u32 = 1 << 31;
const RULE_BACK: u32 = 1 << 2;
const RULE_TEMPLATE_SHIFT: u32 = 8;
const CLIENT_MIX: u64 = 6_364_136_223_846_793_005;
const CLIENT_BYTES: usize = 24;
const ARRIVAL_HEAD: usize = 32;
/// Return value that ends the reading of frames early.
const ENOUGH: i32 = -Errno::CANCELED.raw_os_error();

/// The identity by which a template distinguishes clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientBy {
    /// The client's IP address.
    Address,
    /// The VLAN that they are in.
    Vlan,
    /// The client's MAC address.
    Mac,
}

/// The ports of a rule's frames: each frame goes to a port of its client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRule {
    /// Number of the template, below [`TEMPLATES_MAX`].
    pub template: u32,
    /// The identity by which the template distinguishes clients.
    pub by: ClientBy,
    /// True for frames to clients, false for frames from clients. Frames to clients without an instance have no
    /// destination.
    pub back: bool,
}

impl ClientRule {
    /// `dest` of `struct nfl_rule`.
    pub(crate) fn encode(self) -> u32 {
        let by = match self.by {
            ClientBy::Address => 0,
            ClientBy::Vlan => 1,
            ClientBy::Mac => 2,
        };
        let back = if self.back { RULE_BACK } else { 0 };
        RULE_CLIENTS | (self.template % TEMPLATES_MAX) << RULE_TEMPLATE_SHIFT | back | by
    }
}

/// Identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientId {
    /// By IP address.
    Address(IpAddr),
    /// By VLAN id.
    Vlan(u16),
    /// By MAC address.
    Mac([u8; 6]),
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientId::Address(address) => address.fmt(f),
            ClientId::Vlan(vlan) => vlan.fmt(f),
            ClientId::Mac([a, b, c, d, e, last]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
            }
        }
    }
}

/// A client of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// Number of the template.
    pub template: u32,
    /// Which of its clients.
    pub id: ClientId,
}

impl Client {
    /// The bytes of `struct nfl_client`.
    fn encode(&self) -> [u8; CLIENT_BYTES] {
        let mut bytes = [0; CLIENT_BYTES];
        let ether = match self.id {
            ClientId::Address(IpAddr::V4(address)) => {
                bytes[..4].copy_from_slice(&address.octets());
                ETHER_IPV4.to_be()
            }
            ClientId::Address(IpAddr::V6(address)) => {
                bytes[..16].copy_from_slice(&address.octets());
                ETHER_IPV6.to_be()
            }
            ClientId::Vlan(vlan) => {
                bytes[..8].copy_from_slice(&u64::from(vlan).to_ne_bytes());
                0
            }
            ClientId::Mac(mac) => {
                bytes[..6].copy_from_slice(&mac);
                0
            }
        };
        bytes[16..20].copy_from_slice(&self.template.to_ne_bytes());
        bytes[20..24].copy_from_slice(&u32::from(ether).to_ne_bytes());
        bytes
    }

    /// Reads a `struct nfl_client`, of a template that distinguishes clients by `by`.
    fn decode(bytes: &[u8; CLIENT_BYTES], by: ClientBy) -> Option<Self> {
        let [a, b, c, d, e, f, ..] = *bytes;
        let id = match by {
            ClientBy::Mac => ClientId::Mac([a, b, c, d, e, f]),
            ClientBy::Vlan => ClientId::Vlan(u16::from_ne_bytes([a, b])),
            ClientBy::Address if word(bytes, 20)? == u32::from(ETHER_IPV4.to_be()) => {
                ClientId::Address(Ipv4Addr::new(a, b, c, d).into())
            }
            ClientBy::Address => {
                let octets: [u8; 16] = bytes[..16].try_into().ok()?;
                ClientId::Address(Ipv6Addr::from(octets).into())
            }
        };
        Some(Client {
            template: word(bytes, 16)?,
            id,
        })
    }

    /// `client_digest` of the program.
    fn digest(&self) -> u64 {
        let bytes = self.encode();
        let half = |at: usize| {
            let octets = bytes[at..at + 8].try_into();
            octets.map_or(0, u64::from_ne_bytes)
        };
        let template = u64::from(self.template).wrapping_mul(CLIENT_MIX | 1 << 32);
        let mixed = half(8).wrapping_mul(CLIENT_MIX).wrapping_add(template);
        (half(0) ^ mixed ^ mixed >> 48) << 16 >> 16
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let octets = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(octets))
}

/// A frame of a client that had no instance when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    client: [u8; CLIENT_BYTES],
    /// The uplink's port on which it came.
    pub uplink: u32,
    /// The frame, without FCS.
    pub frame: Vec<u8>,
}

impl Arrival {
    fn parse(record: &[u8]) -> Option<Self> {
        let len = word(record, CLIENT_BYTES + 4)? as usize;
        if !(FRAME_MIN..=FRAME_MAX).contains(&len) || record.len() < ARRIVAL_HEAD + SLOT_SIZE {
            return None;
        }
        Some(Arrival {
            client: record[..CLIENT_BYTES].try_into().ok()?,
            uplink: word(record, CLIENT_BYTES)?,
            frame: record[ARRIVAL_HEAD..ARRIVAL_HEAD + len].to_vec(),
        })
    }

    /// Returns the number of the template whose rule the frame matched.
    pub fn template(&self) -> u32 {
        word(&self.client, 16).unwrap_or(0)
    }

    /// Returns the client of the frame, if its template distinguishes clients by `by`.
    pub fn client(&self, by: ClientBy) -> Option<Client> {
        Client::decode(&self.client, by)
    }
}

/// Reads the frames that wait; there is one reader per platform. The reader stays on the thread that has made it.
pub struct Arrivals {
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Taken>>,
}

#[derive(Default)]
struct Taken {
    frames: Vec<Arrival>,
    most: usize,
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals").finish_non_exhaustive()
    }
}

impl Arrivals {
    /// The frames that wait, in their order, `most` at most; if there is none, those that come within `patience`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn take(&self, patience: Duration, most: usize) -> Result<Vec<Arrival>, SwitchError> {
        self.taken.borrow_mut().most = most;
        let outcome = self.ring.poll_raw(patience);
        let stopped = [ENOUGH, -Errno::INTR.raw_os_error()];
        if outcome < 0 && !stopped.contains(&outcome) {
            let error = std::io::Error::from_raw_os_error(-outcome);
            return Err(SwitchError::system("reading frames that wait")(error));
        }
        Ok(std::mem::take(&mut self.taken.borrow_mut().frames))
    }
}

impl Switch {
    /// The reader of the frames that wait.
    ///
    /// # Errors
    /// When the map cannot be opened.
    pub fn arrivals(&self) -> Result<Arrivals, SwitchError> {
        let failed = || SwitchError::bpf("opening map nfl_arrivals");
        let map = MapHandle::try_from(self.map("nfl_arrivals")?).map_err(failed())?;
        let taken = Rc::<RefCell<Taken>>::default();
        let into = Rc::clone(&taken);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |record| {
                let mut taken = into.borrow_mut();
                taken.frames.extend(Arrival::parse(record));
                if taken.frames.len() >= taken.most {
                    ENOUGH
                } else {
                    0
                }
            })
            .map_err(failed())?;
        let ring = builder.build().map_err(failed())?;
        Ok(Arrivals { ring, taken })
    }

    /// Directs the frames of `client` to port `entry`, and frames for the client to port `back`, from now on.
    ///
    /// # Errors
    /// The table has [`CLIENTS_MAX`] clients already, or the kernel refuses.
    pub fn set_client(&self, client: &Client, entry: u32, back: u32) -> Result<(), SwitchError> {
        let digest = client.digest() << 16;
        // No port has number 0.
        let word = |port: u32| {
            if port == 0 {
                0
            } else {
                digest | u64::from(port & 0xffff)
            }
        };
        let words = [entry, back].map(word);
        let value: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.map("nfl_clients")?
            .update(&client.encode(), &value, MapFlags::ANY)
            .map_err(SwitchError::bpf(format!("entering client {}", client.id)))
    }

    /// Makes the frames of `client` wait from now on; frames for the client go to port `back`. Frames in transit to the
    /// client's port may still arrive there, until [`Switch::await_programs`] returns.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn suspend_client(&self, client: &Client, back: u32) -> Result<(), SwitchError> {
        self.set_client(client, 0, back)
    }

    /// Makes the frames of `client` wait from now on; frames for the client have no destination.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_client(&self, client: &Client) -> Result<(), SwitchError> {
        match self.map("nfl_clients")?.delete(&client.encode()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(SwitchError::bpf(format!("removing client {}", client.id))(
                    error,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Removes all clients: those of an earlier daemon.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_clients(&self) -> Result<(), SwitchError> {
        let clients = self.map("nfl_clients")?;
        for key in clients.keys() {
            match clients.delete(&key) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(SwitchError::bpf("removing clients")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(template: u32, id: ClientId) -> Client {
        Client { template, id }
    }

    fn address(text: &str) -> ClientId {
        ClientId::Address(text.parse().expect("an address"))
    }

    #[test]
    fn a_client_is_the_same_after_the_way_through_the_program() {
        let all = [
            (address("10.1.2.3"), ClientBy::Address),
            (address("2001:db8::"), ClientBy::Address),
            (address("2001:db8::1"), ClientBy::Address),
            (ClientId::Vlan(4094), ClientBy::Vlan),
            (ClientId::Mac([2, 0, 0, 0, 0, 9]), ClientBy::Mac),
        ];
        for (id, by) in all {
            let client = client(7, id);
            assert_eq!(Client::decode(&client.encode(), by), Some(client));
        }
    }

    #[test]
    fn an_address_of_the_other_family_is_another_client() {
        let (four, six) = (address("32.1.13.184"), address("2001:db8::"));
        assert_ne!(client(1, four).encode(), client(1, six).encode());
    }

    #[test]
    fn clients_of_one_template_differ_in_their_digests() {
        let of = |last: u8| client(3, address(&format!("10.0.0.{last}"))).digest();
        let digests: std::collections::BTreeSet<u64> = (0..=255).map(of).collect();
        assert_eq!(digests.len(), 256);
        assert!(digests.iter().all(|digest| digest >> 48 == 0));
        let id = ClientId::Mac([2; 6]);
        assert_ne!(client(1, id).digest(), client(2, id).digest());
    }

    #[test]
    fn records_that_are_too_short_or_lie_about_their_length_are_none() {
        let mut record = vec![0u8; ARRIVAL_HEAD + SLOT_SIZE];
        assert_eq!(Arrival::parse(&record), None, "no bytes");
        record[28..32].copy_from_slice(&64u32.to_ne_bytes());
        assert_eq!(Arrival::parse(&record).map(|a| a.frame.len()), Some(64));
        assert_eq!(Arrival::parse(&record[..100]), None);
        record[28..32].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Arrival::parse(&record), None);
    }
}
