//! Requests to a NIC for steering (`linux/ethtool.h`; there is no netlink message for flow rules).

use crate::error::NetdevError;
use crate::features::{Features, ethtool, ioctl_socket};
use crate::flow::{FLOW_BYTES, Flow};
use std::io;
use std::os::fd::OwnedFd;

const ETHTOOL_GRXRINGS: u32 = 0x2d;
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GRXCLSRULE: u32 = 0x2f;
const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
const ETHTOOL_SRXCLSRLDEL: u32 = 0x31;
const ETHTOOL_SRXCLSRLINS: u32 = 0x32;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_SRXFHINDIR: u32 = 0x39;

/// Flag of a table whose driver chooses the place.
const RX_CLS_LOC_SPECIAL: u32 = 0x8000_0000;
/// Any place.
pub const ANYWHERE: u32 = u32::MAX;

/// `struct ethtool_rxnfc`, in words: command, flow type, `data`, a rule, `rule_cnt`.
const RXNFC_WORDS: usize = 48;
const DATA: usize = 2;
const RULE: usize = 4;
const RULE_LOCATION: usize = 44;
const RULE_COUNT: usize = 46;
/// Behind `rule_cnt`: `rule_locs`.
const LOCATIONS: usize = 47;
/// More rules than any NIC has: 64 Ki places.
const RULES_MAX: u32 = 1 << 16;
/// More entries than the table has by which a NIC spreads frames.
const SPREAD_MAX: u32 = 4096;
/// As `ethtool -k` calls it.
const FEATURE: &str = "rx-ntuple-filter";

/// A NIC's table of flow rules, and how it spreads what matches none.
pub trait FlowTable {
    /// Returns the number of receive queues.
    fn queues(&self) -> io::Result<u32>;
    /// Returns true if the NIC obeys flow rules now.
    fn is_on(&self) -> io::Result<bool>;
    /// Has it obey them, or not.
    fn switch(&self, on: bool) -> io::Result<()>;
    /// Places of its table; `None`: it chooses the places itself.
    fn places(&self) -> io::Result<Option<u32>>;
    /// Place of each rule that it has, and the queue that it leads to.
    fn rules(&self) -> io::Result<Vec<(u32, Option<u32>)>>;
    /// Adds a rule.
    fn insert(&self, flow: &Flow, queue: u32, place: u32) -> io::Result<()>;
    /// Removes the rule at a place.
    fn remove(&self, place: u32) -> io::Result<()>;
    /// The queues among which it spreads what no rule matches, by hash.
    fn spread(&self) -> io::Result<Vec<u32>>;
    /// Spreads it otherwise.
    fn set_spread(&self, queues: &[u32]) -> io::Result<()>;
}

/// An interface of the calling thread's namespace.
#[derive(Debug)]
pub struct Nic {
    interface: String,
    socket: OwnedFd,
}

impl Nic {
    /// The interface of this name.
    ///
    /// # Errors
    /// When the kernel has no socket left for the question.
    pub fn open(interface: &str) -> Result<Self, NetdevError> {
        Ok(Nic {
            interface: interface.to_owned(),
            socket: ioctl_socket()?,
        })
    }

    fn ask(&self, words: &mut [u32]) -> io::Result<()> {
        ethtool(&self.socket, &self.interface, words)
    }

    fn ask_rxnfc(&self, command: u32) -> io::Result<[u32; RXNFC_WORDS]> {
        let mut request = [0u32; RXNFC_WORDS];
        request[0] = command;
        self.ask(&mut request)?;
        Ok(request)
    }

    /// `rule_cnt` and `data`.
    pub fn count(&self) -> io::Result<(u32, u32)> {
        let answer = self.ask_rxnfc(ETHTOOL_GRXCLSRLCNT)?;
        Ok((answer[RULE_COUNT], answer[DATA]))
    }

    /// Size of the table, and the places that have a rule.
    fn all(&self) -> io::Result<(u32, Vec<u32>)> {
        let (count, _) = self.count()?;
        let count = count.min(RULES_MAX);
        let mut request = vec![0u32; RXNFC_WORDS + count as usize];
        request[0] = ETHTOOL_GRXCLSRLALL;
        request[RULE_COUNT] = count;
        self.ask(&mut request)?;
        let found = request[RULE_COUNT].min(count) as usize;
        Ok((
            request[DATA],
            request[LOCATIONS..LOCATIONS + found].to_vec(),
        ))
    }

    fn rule_at(&self, place: u32) -> io::Result<[u8; FLOW_BYTES]> {
        let mut request = [0u32; RXNFC_WORDS];
        request[0] = ETHTOOL_GRXCLSRULE;
        request[RULE_LOCATION] = place;
        self.ask(&mut request)?;
        let mut rule = [0u8; FLOW_BYTES];
        for (bytes, word) in rule.chunks_exact_mut(4).zip(&request[RULE..]) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(rule)
    }

    /// The driver's features.
    pub fn features(&self) -> Result<Features, NetdevError> {
        Features::of(&self.interface)
    }
}

/// The steering features of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Rules that it has now.
    pub rules: u32,
}

impl Steering {
    /// Opens the NIC of an interface of the calling thread's namespace.
    ///
    /// # Errors
    /// [`NetdevError::NoSteering`] when its driver steers no flows, which says what does in its place; others when
    /// there is no such interface.
    pub fn of(interface: &str) -> Result<Self, NetdevError> {
        let nic = Nic::open(interface)?;
        if !nic.features()?.can(FEATURE)? {
            let why = "its driver has no 'rx-ntuple-filter'";
            return Err(no_steering(interface, why));
        }
        match nic.count() {
            Ok((rules, _)) => Ok(Steering { rules }),
            Err(why) => Err(no_steering(
                interface,
                &format!("its driver tells no rules: {why}"),
            )),
        }
    }
}

/// The NIC steers nothing.
pub fn no_steering(interface: &str, why: &str) -> NetdevError {
    NetdevError::NoSteering {
        interface: interface.to_owned(),
        why: why.to_owned(),
    }
}

impl FlowTable for Nic {
    fn queues(&self) -> io::Result<u32> {
        Ok(self.ask_rxnfc(ETHTOOL_GRXRINGS)?[DATA])
    }

    fn is_on(&self) -> io::Result<bool> {
        let features = self.features().map_err(io::Error::other)?;
        features.is_active(FEATURE)
    }

    fn switch(&self, on: bool) -> io::Result<()> {
        let features = self.features().map_err(io::Error::other)?;
        features.set(&[FEATURE], on).map_err(io::Error::other)
    }

    fn places(&self) -> io::Result<Option<u32>> {
        let (_, flags) = self.count()?;
        if flags & RX_CLS_LOC_SPECIAL != 0 {
            return Ok(None);
        }
        Ok(Some(self.all()?.0.min(RULES_MAX)))
    }

    fn rules(&self) -> io::Result<Vec<(u32, Option<u32>)>> {
        let (_, places) = self.all()?;
        let queue_at = |place| Ok((place, Flow::queue_of(&self.rule_at(place)?)));
        places.into_iter().map(queue_at).collect()
    }

    fn insert(&self, flow: &Flow, queue: u32, place: u32) -> io::Result<()> {
        let mut request = insertion(flow, queue, place);
        self.ask(&mut request)
    }

    fn remove(&self, place: u32) -> io::Result<()> {
        let mut request = [0u32; RXNFC_WORDS];
        request[0] = ETHTOOL_SRXCLSRLDEL;
        request[RULE_LOCATION] = place;
        self.ask(&mut request)
    }

    fn spread(&self) -> io::Result<Vec<u32>> {
        let mut size = [ETHTOOL_GRXFHINDIR, 0];
        self.ask(&mut size)?;
        let size = size[1].min(SPREAD_MAX);
        let mut table = vec![0u32; 2 + size as usize];
        table[..2].copy_from_slice(&[ETHTOOL_GRXFHINDIR, size]);
        self.ask(&mut table)?;
        Ok(table.split_off(2))
    }

    fn set_spread(&self, queues: &[u32]) -> io::Result<()> {
        let mut table = vec![ETHTOOL_SRXFHINDIR, queues.len() as u32];
        table.extend(queues);
        self.ask(&mut table)
    }
}

/// The request that adds a rule.
fn insertion(flow: &Flow, queue: u32, place: u32) -> [u32; RXNFC_WORDS] {
    let mut request = [0u32; RXNFC_WORDS];
    request[0] = ETHTOOL_SRXCLSRLINS;
    let rule = flow.bytes(queue, place);
    for (word, bytes) in request[RULE..].iter_mut().zip(rule.chunks_exact(4)) {
        *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct ethtool_rxnfc` is 192 bytes; `fs` is at 16, its `ring_cookie` at 168 and its `location` at 176 of them.
    #[test]
    fn a_rule_lies_in_its_request_where_the_kernel_looks() {
        let flow = Flow::ether(Some(0x0806), None);
        let request = insertion(&flow, 3, 17);
        assert_eq!(size_of_val(&request), 192);
        assert_eq!(request[0], 0x32);
        assert_eq!(request[4], 0x12);
        assert_eq!(request[168 / 4], 3u64 as u32);
        assert_eq!(request[176 / 4], 17);
        assert_eq!(request[RULE_LOCATION], 17);
    }

    #[test]
    fn an_interface_without_such_a_table_says_so() {
        let nic = Nic::open("lo").expect("a socket");
        assert!(nic.queues().is_err() && nic.rules().is_err() && nic.spread().is_err());
    }

    // promise: 13.8
    #[test]
    fn an_interface_without_queues_of_its_own_steers_nothing_and_the_alternative_is_named() {
        let refused = Steering::of("lo").expect_err("it has one queue");
        assert!(
            matches!(refused, NetdevError::NoSteering { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("XDP"), "{refused}");
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let refused = Steering::of("no-such-nic").expect_err("it is not there");
        assert!(refused.to_string().contains("no-such-nic"), "{refused}");
    }
}
