//! A NAT's state as records: counters, mappings, sessions, and the record of inside hosts.
//!
//! Fragments under way are not among the records: they live for seconds, and a datagram is sent again. Waiting
//! fragments are dropped for the successor, and counted there.

use super::Nat;
use super::clock::Tenths;
use super::endpoint::{Endpoint, Protocol, Vlan};
use super::metrics::DropReason;
use super::state::{Mapping, Session, State, new_mapping};
use crate::function::Nanos;
use crate::stateful::{Imported, Reader, StateError, Stateful, Writer};
use crate::table::NONE;
use crate::tcp::{Connection, Summary};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nfluid_wire::MacAddr;
use serde::{Deserialize, Serialize};

/// Largest remaining lifetime in an image, in tenths of a second: a day, ten times the longest usual timeout.
const LEFT_MAX: u32 = 864_000;

/// A mapping on its way to another instance.
#[derive(Debug, Serialize, Deserialize)]
struct CarriedMapping {
    protocol: Protocol,
    vlan: Vlan,
    inside: Endpoint,
    outside: Endpoint,
    mac: [u8; 6],
    host_mac: [u8; 6],
    packets: u64,
    /// Tenths of a second.
    left: u32,
}

/// A session on its way; `mapping` counts those that were written before.
#[derive(Debug, Serialize, Deserialize)]
struct CarriedSession {
    mapping: u32,
    peer: Endpoint,
    tcp: Summary,
    left: u32,
}

/// A session as version 1 of the records has it.
#[derive(Debug, Serialize, Deserialize)]
struct CarriedSessionV1 {
    mapping: u32,
    peer: Endpoint,
    /// From the lowest bit: a SYN from inside, from outside, a FIN from inside, from outside, a RST.
    seen: u8,
    left: u32,
}

impl From<CarriedSessionV1> for CarriedSession {
    fn from(old: CarriedSessionV1) -> CarriedSession {
        let has = |bit: u8| old.seen & bit != 0;
        CarriedSession {
            mapping: old.mapping,
            peer: old.peer,
            tcp: Summary::of_old([has(1), has(2)], [has(4), has(8)], has(16)),
            left: old.left,
        }
    }
}

/// The record of an inside host.
#[derive(Debug, Serialize, Deserialize)]
struct CarriedHost {
    address: u32,
    vlan: Vlan,
    refusals: u64,
    packets_before: u64,
}

impl Stateful for Nat {
    /// Version 2: the stage of TCP connections, and what gave way. Version 3: the fragments that waited in vain.
    /// Version 4: the ICMP errors that were made.
    fn state_version(&self) -> u16 {
        4
    }

    fn oldest_version(&self) -> u16 {
        1
    }

    fn export(&mut self, now: Nanos, writer: &mut Writer) {
        let mut counters = self.counters.clone();
        let waiting = self.waiting.iter().map(|side| side.len() as u64).sum();
        counters.dropped_many(DropReason::FragmentExpired, waiting);
        counters.export(writer);
        self.state.export(Tenths::of(now), writer);
    }

    /// Mappings go on whose external end points are in the pool and free.
    fn import(&mut self, now: Nanos, reader: &mut Reader<'_>) -> Result<Imported, StateError> {
        self.counters.import(reader)?;
        self.state.hands.begin_again();
        self.state.import(Tenths::of(now), reader)
    }

    fn rehearse(&mut self, now: Nanos, reader: &mut Reader<'_>) {
        let counters = self.counters.clone();
        // The import reports what is wrong with the image.
        let _ = self.import(now, reader);
        self.counters = counters;
        self.state.forget();
    }
}

impl State {
    fn export(&self, now: Tenths, writer: &mut Writer) {
        writer.counters(&self.counts());
        let own = self.mappings.iter().filter(|(_, mapping)| !mapping.fixed);
        let numbers: BTreeMap<u32, u32> = own.clone().map(|(index, _)| index).zip(0..).collect();
        writer.list(own.map(|(_, mapping)| self.carried(now, mapping)));
        let sessions = self.sessions.iter().filter_map(|(_, session)| {
            Some(CarriedSession {
                mapping: *numbers.get(&session.mapping)?,
                peer: session.peer,
                tcp: session.tcp.summary(),
                left: now.until(session.expires),
            })
        });
        writer.list(sessions);
        let hosts = self.hosts.iter().map(|(_, host)| CarriedHost {
            address: host.address,
            vlan: host.vlan,
            refusals: host.refusals,
            packets_before: host.packets_before,
        });
        writer.list(hosts);
    }

    fn carried(&self, now: Tenths, mapping: &Mapping) -> CarriedMapping {
        let host = self.hosts.get(mapping.host);
        CarriedMapping {
            protocol: mapping.protocol,
            vlan: mapping.vlan,
            inside: mapping.inside,
            outside: mapping.outside,
            mac: mapping.mac.0,
            host_mac: host.map_or(MacAddr::ZERO, |host| host.mac).0,
            packets: mapping.packets,
            left: now.until(mapping.expires),
        }
    }

    fn import(&mut self, now: Tenths, reader: &mut Reader<'_>) -> Result<Imported, StateError> {
        let mut imported = Imported::default();
        let mut counts = [0; 3];
        let known = match reader.version() {
            1 => 2,
            _ => counts.len(),
        };
        reader.counters(&mut counts[..known])?;
        // The places of the records: the list is as long as the image at most.
        let mut taken: Vec<Option<u32>> = Vec::new();
        reader.list(|carried: CarriedMapping| {
            let mapping = self.take_mapping(now, &carried)?;
            imported.count(mapping.is_some());
            taken.push(mapping);
            Ok(())
        })?;
        let mut take = |carried: CarriedSession| {
            let mapping = taken.get(carried.mapping as usize);
            let mapping = mapping.ok_or("a session of a mapping that is not there")?;
            imported
                .count(mapping.is_some_and(|mapping| self.take_session(now, mapping, &carried)));
            Ok(())
        };
        match reader.version() {
            1 => reader.list(|carried: CarriedSessionV1| take(carried.into()))?,
            _ => reader.list(take)?,
        }
        reader.list(|carried: CarriedHost| {
            let host = self.find_host(carried.vlan, carried.address);
            if let Some(host) = host.and_then(|host| self.hosts.get_mut(host)) {
                host.refusals = carried.refusals;
                host.packets_before = carried.packets_before;
            }
            Ok(())
        })?;
        self.set_counts(counts);
        Ok(imported)
    }

    fn take_mapping(
        &mut self,
        now: Tenths,
        carried: &CarriedMapping,
    ) -> Result<Option<u32>, &'static str> {
        if !carried.vlan.is_possible() {
            return Err("a VLAN that no frame can have");
        }
        let quota = self.config.host_sessions_max;
        let host = self.find_host(carried.vlan, carried.inside.address);
        let host = host.and_then(|host| self.hosts.get(host));
        if host.is_some_and(|host| host.mappings >= quota) {
            return Ok(None);
        }
        let mut mapping = new_mapping(
            carried.protocol,
            carried.vlan,
            carried.inside,
            carried.outside,
            NONE,
        );
        mapping.mac = MacAddr(carried.mac);
        mapping.packets = carried.packets;
        mapping.expires = now.plus(carried.left.min(LEFT_MAX));
        Ok(self.adopt_mapping(&mapping, MacAddr(carried.host_mac)))
    }

    fn take_session(&mut self, now: Tenths, mapping: u32, carried: &CarriedSession) -> bool {
        let quota = self.config.host_sessions_max;
        let found = self.mappings.get(mapping);
        let is_tcp = found.is_some_and(|mapping| mapping.protocol == Protocol::Tcp);
        let host = found.and_then(|mapping| self.hosts.get(mapping.host));
        let has_room = host.is_some_and(|host| host.sessions < quota) && !self.sessions.is_full();
        if !has_room || !self.can_adopt_session(mapping, carried.peer) {
            return false;
        }
        self.adopt_session(
            mapping,
            &Session {
                mapping,
                peer: carried.peer,
                tcp: if is_tcp {
                    Connection::restored(carried.tcp)
                } else {
                    Connection::default()
                },
                expires: now.plus(carried.left.min(LEFT_MAX)),
                newer: NONE,
                older: NONE,
            },
        );
        true
    }
}
