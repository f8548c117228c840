//! A router's state as records: counters, neighbours, and the packets that wait for a neighbour's address. Routes are
//! configuration.

use super::Router;
use super::neighbour::{Memory, State, Wait};
use crate::function::Nanos;
use crate::stateful::{Imported, Reader, StateError, Stateful, Writer};
use alloc::vec::Vec;
use core::net::IpAddr;
use nfluid_ring::Offload;
use nfluid_ring::layout::{FRAME_MIN, LONG_MAX};
use nfluid_ring::offload::OFFLOAD_BYTES;
use nfluid_wire::MacAddr;

impl Stateful for Router {
    /// Version 2: listener reports are counted. Version 3: redirects are. Version 4: waiting frames have metadata.
    fn state_version(&self) -> u16 {
        4
    }

    fn oldest_version(&self) -> u16 {
        1
    }

    fn export(&mut self, now: Nanos, writer: &mut Writer) {
        self.counters.export(writer);
        let learned = self.neighbours.iter();
        let learned = learned.filter(|(.., neighbour)| neighbour.state != State::Permanent);
        let all: Vec<_> = learned.collect();
        writer.list(
            all.iter()
                .map(|(port, address, neighbour)| (*port, *address, neighbour.memory(now))),
        );
        let waiting = all.iter().flat_map(|(port, address, neighbour)| {
            let frames = neighbour.waiting();
            frames.map(move |frame| {
                let metadata = frame.offload.words(frame.bytes.len());
                (*port, *address, &frame.bytes[..], metadata)
            })
        });
        let waiting: Vec<(u8, IpAddr, &[u8], [u8; OFFLOAD_BYTES])> = waiting.collect();
        writer.list(waiting.iter());
    }

    /// Imports the neighbours that are on a link of this router.
    fn import(&mut self, now: Nanos, reader: &mut Reader<'_>) -> Result<Imported, StateError> {
        // The routes of the own configuration are the other's once more.
        self.counters.routes_changed = 0;
        self.counters.import(reader)?;
        let mut imported = Imported::default();
        reader.list(|(port, address, memory): (u8, IpAddr, Memory)| {
            imported.count(self.take_neighbour(now, port, address, &memory)?);
            Ok(())
        })?;
        let mut wait = |port, address, frame: &[u8], metadata| {
            let is_frame = (FRAME_MIN..=LONG_MAX).contains(&frame.len());
            let offload = Offload::check(metadata, frame.len());
            match offload {
                Ok(offload) if is_frame => {
                    imported.count(self.let_wait(port, address, (frame, offload)));
                    Ok(())
                }
                _ => Err("a waiting packet that is none"),
            }
        };
        if reader.version() < 4 {
            reader.list(|(port, address, frame): (u8, IpAddr, &[u8])| {
                wait(port, address, frame, [0; OFFLOAD_BYTES])
            })?;
        } else {
            reader.list(|(port, address, frame, metadata): (u8, IpAddr, &[u8], _)| {
                wait(port, address, frame, metadata)
            })?;
        }
        Ok(imported)
    }
}

impl Router {
    fn take_neighbour(
        &mut self,
        now: Nanos,
        port: u8,
        address: IpAddr,
        memory: &Memory,
    ) -> Result<bool, &'static str> {
        let mac = MacAddr(memory.mac);
        if memory.state == State::Permanent || address.is_multicast() || address.is_unspecified() {
            return Err("a neighbour that cannot have been learned");
        }
        let is_known = memory.state != State::Incomplete;
        if is_known && !mac.is_unicast() {
            return Err("a neighbour at no address of one station");
        }
        let is_here = usize::from(port) < self.ports.len() && self.stays(port, address);
        if !is_here || self.neighbours.get(port, address).is_some() {
            return Ok(false);
        }
        let mac = if is_known { mac } else { MacAddr::ZERO };
        if self
            .add_neighbour(now, port, address, mac, memory.state)
            .is_err()
        {
            return Ok(false);
        }
        let limits = self.limits;
        if let Some(neighbour) = self.neighbours.get_mut(port, address) {
            neighbour.remember(memory, &limits, now);
        }
        if is_known {
            self.open(port, address);
        }
        Ok(true)
    }

    fn let_wait(&mut self, port: u8, address: IpAddr, frame: (&[u8], Offload)) -> bool {
        let neighbour = self.neighbours.get(port, address);
        if neighbour.is_none_or(|neighbour| neighbour.state != State::Incomplete) {
            return false;
        }
        let wait = self.neighbours.wait(port, address, frame, &self.limits);
        wait != Wait::Refused
    }
}
