//! The neighbour table: the Ethernet addresses of neighbours, for ARP and neighbour discovery alike.
//!
//! The states and their transitions are those of RFC 4861 section 7.3, which fit ARP as well
//! (RFC 1122 section 2.3.2 asks for the same). Pure state: the caller sends and routes.
//!
//! Each port has its own table, so that hosts on one link cannot crowd out those on another. Within a table, the
//! entries that hosts can provoke are held in two quotas of a quarter each: addresses being asked for (a scan of a
//! connected network) and addresses learned from unconfirmed questions (forged ARP requests). A flood of either kind
//! displaces only its own kind; entries that are REACHABLE, being probed, or configured are never displaced.

use super::hops::HopId;
use crate::ageing::TOGETHER;
use crate::function::Nanos;
use crate::traffic::OnWire;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use nfluid_ring::Offload;
use nfluid_ring::layout::frame_slots;
use nfluid_wire::MacAddr;
use serde::{Deserialize, Serialize};

/// Solicitations before an address is given up: MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT.
const SOLICITATIONS_MAX: u8 = 3;
/// Time between solicitations: RETRANS_TIMER.
const RETRANSMIT: Nanos = Nanos::from_secs(1);
/// Time from the first use of a STALE entry to its first probe: DELAY_FIRST_PROBE_TIME.
const DELAY: Nanos = Nanos::from_secs(5);

/// Bounds of the table and its timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Entries per port.
    pub entries_per_port: usize,
    /// Frames that wait for one neighbour's address.
    pub waiting_per_neighbour: usize,
    /// Slots of 2 KiB for the frames that wait in all. A frame of an ordinary length takes one.
    pub waiting: usize,
    /// Mean time for which an answer is believed: REACHABLE_TIME.
    pub reachable: Nanos,
    /// Time after which an unused entry is removed.
    pub stale: Nanos,
}

/// RFC 4861 section 7.3.2, and PERMANENT for configured entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Incomplete,
    Reachable,
    Stale,
    Delay,
    Probe,
    Permanent,
}

impl State {
    /// As written in listings and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            State::Incomplete => "incomplete",
            State::Reachable => "reachable",
            State::Stale => "stale",
            State::Delay => "delay",
            State::Probe => "probe",
            State::Permanent => "permanent",
        }
    }

    /// All states, for metrics.
    pub(super) const ALL: [State; 6] = [
        State::Incomplete,
        State::Reachable,
        State::Stale,
        State::Delay,
        State::Probe,
        State::Permanent,
    ];
}

/// A neighbour.
#[derive(Debug)]
pub(super) struct Neighbour {
    /// Ethernet address; zero while INCOMPLETE.
    pub mac: MacAddr,
    pub state: State,
    /// End of the state.
    pub deadline: Nanos,
    /// The hop that routes to this neighbour share.
    pub hop: HopId,
    /// A host route to it is in the look-up table.
    pub host_route: bool,
    /// True if the neighbour once answered a question of ours.
    confirmed: bool,
    /// Solicitations sent in this state.
    solicited: u8,
    /// The time of the last message; displacement goes by age.
    heard: Nanos,
    waiting: VecDeque<WaitingFrame>,
}

/// A frame that waits for a neighbour's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitingFrame {
    pub bytes: Vec<u8>,
    pub offload: Offload,
}

impl WaitingFrame {
    /// The packets that the frame is on a wire.
    pub(super) fn packets(&self) -> u64 {
        OnWire::of_bytes(self.bytes.len(), self.offload).packets()
    }

    fn slots(&self) -> usize {
        frame_slots(self.bytes.len())
    }
}

/// The record that another instance needs of a neighbour, besides its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    pub mac: [u8; 6],
    pub state: State,
    confirmed: bool,
    solicited: u8,
    /// Until the state ends.
    left_ns: u64,
    /// Since it was last heard of.
    silent_ns: u64,
}

/// How an address became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The neighbour answered us: an ARP reply that was asked for, an advertisement with the
    /// solicited flag.
    Answer {
        /// True if the evidence may replace an address that differs.
        replaces: bool,
    },
    /// The neighbour announced itself: gratuitous ARP, unsolicited advertisement.
    Announcement {
        /// True if the announcement may replace an address that differs.
        replaces: bool,
    },
    /// The neighbour asked us for our address and so showed its own.
    Question,
}

/// The change that evidence made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No change that concerns forwarding.
    None,
    /// The Ethernet address became known or changed.
    Address,
}

/// The action that is due by time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Ask all hosts on the link.
    SolicitAll,
    /// Ask the neighbour itself.
    SolicitOne(MacAddr),
    /// Remove the neighbour: it did not answer.
    Unreachable,
    /// Remove the neighbour: it is not used.
    Unused,
}

/// The treatment of a frame that should wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Added,
    /// The frame waits in the place of an older frame, which is lost: so many packets.
    Displaced {
        packets: u64,
    },
    /// Too many wait in all.
    Refused,
}

/// Error: the table has no room for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableFull;

type PortTable = BTreeMap<IpAddr, Neighbour>;

/// All ports' neighbours.
#[derive(Debug)]
pub(super) struct Neighbours {
    ports: Vec<PortTable>,
    waiting: Waiting,
}

/// All frames that wait.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    packets: u64,
    slots: usize,
}

impl Waiting {
    fn add(&mut self, frame: &WaitingFrame) {
        self.packets += frame.packets();
        self.slots += frame.slots();
    }

    fn remove<'a>(&mut self, frames: impl IntoIterator<Item = &'a WaitingFrame>) {
        for frame in frames {
            self.packets -= frame.packets();
            self.slots -= frame.slots();
        }
    }
}

/// A neighbour taken out of the table, with the frames that waited for it.
#[derive(Debug)]
pub(super) struct Removed {
    pub hop: HopId,
    pub host_route: bool,
    pub waiting: VecDeque<WaitingFrame>,
}

impl Neighbours {
    pub(super) fn new(ports: usize) -> Self {
        Neighbours {
            ports: (0..ports).map(|_| PortTable::new()).collect(),
            waiting: Waiting::default(),
        }
    }

    pub(super) fn get(&self, port: u8, address: IpAddr) -> Option<&Neighbour> {
        self.ports.get(usize::from(port))?.get(&address)
    }

    pub(super) fn get_mut(&mut self, port: u8, address: IpAddr) -> Option<&mut Neighbour> {
        self.ports.get_mut(usize::from(port))?.get_mut(&address)
    }

    /// All neighbours as (port, address, neighbour), sorted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, IpAddr, &Neighbour)> {
        let ports = self.ports.iter().enumerate();
        ports.flat_map(|(port, table)| table.iter().map(move |(a, n)| (port as u8, *a, n)))
    }

    /// Packets that wait for an address.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.packets
    }

    /// Returns the entry to displace before a neighbour in this state is added on the port. `Ok(None)`: there is
    /// room.
    pub(super) fn make_room(
        &self,
        port: u8,
        state: State,
        limits: &Limits,
    ) -> Result<Option<IpAddr>, TableFull> {
        let table = self.ports.get(usize::from(port)).ok_or(TableFull)?;
        let quota = (limits.entries_per_port / 4).max(1);
        let oldest = |kind: fn(&Neighbour) -> bool| {
            let of_kind = table.iter().filter(|(_, n)| kind(n));
            let (address, _) = of_kind.min_by_key(|(_, n)| n.heard)?;
            Some(*address)
        };
        let count = |kind: fn(&Neighbour) -> bool| table.values().filter(|n| kind(n)).count();
        let asked_for: fn(&Neighbour) -> bool = |n| n.state == State::Incomplete;
        let unconfirmed: fn(&Neighbour) -> bool = |n| n.state == State::Stale && !n.confirmed;
        let stale: fn(&Neighbour) -> bool = |n| n.state == State::Stale;
        let full = table.len() >= limits.entries_per_port;
        match state {
            State::Incomplete if count(asked_for) >= quota => Ok(oldest(asked_for)),
            State::Stale if count(unconfirmed) >= quota => Ok(oldest(unconfirmed)),
            _ if !full => Ok(None),
            State::Stale => oldest(unconfirmed).map(Some).ok_or(TableFull),
            _ => oldest(unconfirmed)
                .or_else(|| oldest(stale))
                .or_else(|| oldest(asked_for))
                .map(Some)
                .ok_or(TableFull),
        }
    }

    /// Adds a neighbour; [`Neighbours::make_room`] comes first. An existing neighbour is replaced, and its waiting
    /// frames are lost.
    pub(super) fn add(
        &mut self,
        port: u8,
        address: IpAddr,
        mac: MacAddr,
        state: State,
        hop: HopId,
    ) {
        let Some(table) = self.ports.get_mut(usize::from(port)) else {
            return;
        };
        let neighbour = Neighbour {
            mac,
            state,
            deadline: Nanos(0),
            hop,
            host_route: false,
            confirmed: false,
            solicited: 0,
            heard: Nanos(0),
            waiting: VecDeque::new(),
        };
        if let Some(old) = table.insert(address, neighbour) {
            self.waiting.remove(&old.waiting);
        }
    }

    /// Notes when a neighbour that was just added in state INCOMPLETE was first asked for, or in
    /// state STALE was heard of.
    pub(super) fn start(&mut self, port: u8, address: IpAddr, limits: &Limits, now: Nanos) {
        if let Some(neighbour) = self.get_mut(port, address) {
            neighbour.heard = now;
            if neighbour.state == State::Incomplete {
                neighbour.solicited = 1;
                neighbour.deadline = after(now, RETRANSMIT);
            } else {
                neighbour.deadline = after(now, limits.stale);
            }
        }
    }

    /// Takes a neighbour out.
    pub(super) fn remove(&mut self, port: u8, address: IpAddr) -> Option<Removed> {
        let table = self.ports.get_mut(usize::from(port))?;
        let neighbour = table.remove(&address)?;
        self.waiting.remove(&neighbour.waiting);
        Some(Removed {
            hop: neighbour.hop,
            host_route: neighbour.host_route,
            waiting: neighbour.waiting,
        })
    }

    /// Lets a copy of a frame wait for the neighbour's address. Where the neighbour has its share of waiting
    /// frames, the oldest one makes room (RFC 4861 section 7.2.2).
    pub(super) fn wait(
        &mut self,
        port: u8,
        address: IpAddr,
        (bytes, offload): (&[u8], Offload),
        limits: &Limits,
    ) -> Wait {
        let mut waiting = self.waiting;
        let Some(neighbour) = self.get_mut(port, address) else {
            return Wait::Refused;
        };
        let is_full = neighbour.waiting.len() >= limits.waiting_per_neighbour;
        let oldest = neighbour.waiting.front().filter(|_| is_full);
        waiting.remove(oldest);
        if waiting.slots + frame_slots(bytes.len()) > limits.waiting {
            return Wait::Refused;
        }
        let frame = WaitingFrame {
            bytes: bytes.to_vec(),
            offload,
        };
        waiting.add(&frame);
        let wait = match oldest.map(WaitingFrame::packets) {
            Some(packets) => {
                neighbour.waiting.pop_front();
                Wait::Displaced { packets }
            }
            None => Wait::Added,
        };
        neighbour.waiting.push_back(frame);
        self.waiting = waiting;
        wait
    }

    /// The frames that waited for the neighbour.
    pub(super) fn take_waiting(&mut self, port: u8, address: IpAddr) -> VecDeque<WaitingFrame> {
        let taken = match self.get_mut(port, address) {
            Some(neighbour) => core::mem::take(&mut neighbour.waiting),
            None => VecDeque::new(),
        };
        self.waiting.remove(&taken);
        taken
    }

    /// Takes evidence about a neighbour that is in the table (RFC 4861 sections 7.2.3 and 7.2.5). `mac` is `None` if
    /// the message had none.
    pub(super) fn observe(
        &mut self,
        (port, address): (u8, IpAddr),
        mac: Option<MacAddr>,
        evidence: Evidence,
        limits: &Limits,
        now: Nanos,
    ) -> Change {
        let Some(neighbour) = self.get_mut(port, address) else {
            return Change::None;
        };
        if neighbour.state == State::Permanent {
            return Change::None;
        }
        if neighbour.state == State::Incomplete && mac.is_none() {
            return Change::None;
        }
        let known = neighbour.state != State::Incomplete;
        let differs = mac.is_some_and(|mac| mac != neighbour.mac);
        let replaces = match evidence {
            Evidence::Answer { replaces } | Evidence::Announcement { replaces } => replaces,
            Evidence::Question => true,
        };
        if known && differs && !replaces {
            if neighbour.state == State::Reachable {
                neighbour.enter(State::Stale, after(now, limits.stale));
            }
            return Change::None;
        }
        neighbour.heard = now;
        if let Some(mac) = mac {
            neighbour.mac = mac;
        }
        if matches!(evidence, Evidence::Answer { .. }) {
            neighbour.confirmed = true;
            let reachable = spread(limits.reachable, address);
            neighbour.enter(State::Reachable, after(now, reachable));
        } else if differs || !known {
            neighbour.enter(State::Stale, after(now, limits.stale));
        }
        if differs {
            Change::Address
        } else {
            Change::None
        }
    }

    /// Returns the action that is due for the neighbour. `used`: a packet was sent to it since the last call.
    pub(super) fn due(
        &mut self,
        (port, address): (u8, IpAddr),
        used: bool,
        limits: &Limits,
        now: Nanos,
    ) -> Option<Due> {
        let neighbour = self.get_mut(port, address)?;
        let expired = now >= neighbour.deadline;
        match neighbour.state {
            State::Permanent => None,
            State::Reachable => {
                if expired {
                    neighbour.enter(State::Stale, after(now, limits.stale));
                }
                None
            }
            State::Stale if used => {
                neighbour.enter(State::Delay, after(now, DELAY));
                None
            }
            State::Stale => expired.then_some(Due::Unused),
            _ if !expired => None,
            State::Delay => {
                neighbour.enter(State::Probe, after(now, RETRANSMIT));
                neighbour.solicited = 1;
                Some(Due::SolicitOne(neighbour.mac))
            }
            State::Incomplete | State::Probe => {
                if neighbour.solicited >= SOLICITATIONS_MAX {
                    return Some(Due::Unreachable);
                }
                neighbour.solicited += 1;
                neighbour.deadline = after(now, RETRANSMIT);
                Some(match neighbour.state {
                    State::Probe => Due::SolicitOne(neighbour.mac),
                    _ => Due::SolicitAll,
                })
            }
        }
    }
}

impl Neighbour {
    /// Returns the next time at which the table has work, if it is not used before. Requests are repeated in time;
    /// entries that only have to be forgotten are handled together.
    pub(super) fn next_tick(&self) -> Option<Nanos> {
        match self.state {
            State::Permanent => None,
            State::Reachable | State::Stale => Some(after(self.deadline, TOGETHER)),
            State::Incomplete | State::Delay | State::Probe => Some(self.deadline),
        }
    }

    /// Returns the record for another instance.
    pub(super) fn memory(&self, now: Nanos) -> Memory {
        Memory {
            mac: self.mac.0,
            state: self.state,
            confirmed: self.confirmed,
            solicited: self.solicited,
            left_ns: self.deadline.since(now).0,
            silent_ns: now.since(self.heard).0,
        }
    }

    /// The frames that wait for its address.
    pub(super) fn waiting(&self) -> impl ExactSizeIterator<Item = &WaitingFrame> {
        self.waiting.iter()
    }

    /// Goes on where the neighbour of another instance was, which is in the same state.
    pub(super) fn remember(&mut self, memory: &Memory, limits: &Limits, now: Nanos) {
        let most = match self.state {
            State::Reachable => limits.reachable.0.saturating_mul(2),
            State::Stale => limits.stale.0,
            _ => DELAY.0,
        };
        self.confirmed = memory.confirmed;
        self.solicited = memory.solicited.min(SOLICITATIONS_MAX);
        self.deadline = after(now, Nanos(memory.left_ns.min(most)));
        self.heard = Nanos(now.0.saturating_sub(memory.silent_ns));
    }

    fn enter(&mut self, state: State, deadline: Nanos) {
        self.state = state;
        self.deadline = deadline;
        self.solicited = 0;
    }
}

fn after(now: Nanos, time: Nanos) -> Nanos {
    Nanos(now.0.saturating_add(time.0))
}

/// `mean` times a factor between 0.5 and 1.5, so that not all neighbours are probed at once. RFC
/// 4861 section 6.3.4 draws it by chance; here the address decides.
fn spread(mean: Nanos, address: IpAddr) -> Nanos {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let low = (bits as u64 ^ (bits >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    Nanos(mean.0 / 2 + mean.0 / 256 * low)
}
