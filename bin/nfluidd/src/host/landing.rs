//! What another host hands on to an instance that has come from there: frames, and the addresses that they are for.

use super::{Shared, lock};
use anyhow::{Context, ensure};
use nfluid_control::apply::no_instance;
use nfluid_formats::frames::frames_in;
use nfluid_formats::message::Address;
use nfluid_instance::doorbell;
use nfluid_protocol::{Request, daemon};
use nfluid_sandbox::ProcessIdentity;
use nfluid_switch::{DropReason, Inlet};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// After so long without room in a ring its owner is not emptying it. The other host keeps its frames meanwhile, and waits
/// longer for each of its words.
const STALLED: Duration = Duration::from_secs(2);
/// Between two looks for room.
const ROOM_POLL: Duration = Duration::from_micros(500);

/// The rings of an instance that has come.
pub struct Landing {
    name: String,
    process: ProcessIdentity,
    inlets: Vec<Option<Inlet>>,
    bell: OwnedFd,
}

/// Frames for a port, in their order.
type Waiting<'a> = (&'a Inlet, Vec<&'a [u8]>);

impl Landing {
    /// Of an instance with this process, while it is the one that has the ports.
    ///
    /// # Errors
    /// It has ended.
    pub fn of(host: &Shared, name: &str, process: &ProcessIdentity) -> anyhow::Result<Self> {
        let host = lock(host);
        let running = host.instances.get(name).ok_or_else(|| no_instance(name))?;
        let paths = &host.settings.paths;
        let maps = running.maps(paths, name)?;
        let ports = 0..running.memory.ports.len();
        let inlets = ports.map(|port| Inlet::of((&running.memory, &maps), port));
        Ok(Landing {
            name: name.to_owned(),
            process: process.clone(),
            inlets: inlets.collect::<Result<_, _>>()?,
            bell: doorbell::open_ringing(&paths.bell(name)).context("opening its doorbell")?,
        })
    }

    /// Puts frames into the rings, in their order, when there is room. Half of a ring is left to who sends there by now.
    /// Returns how many found room, and how many did not, as nobody empties the rings.
    ///
    /// # Errors
    /// They are none.
    pub fn put(&self, host: &Shared, bytes: &[u8]) -> anyhow::Result<(u64, u64)> {
        let mut waiting: BTreeMap<u8, Waiting<'_>> = BTreeMap::new();
        let mut nowhere = 0;
        for (port, frame) in frames_in(bytes)? {
            let Some(inlet) = self.inlet(port) else {
                nowhere += 1;
                continue;
            };
            let frames = waiting.entry(port).or_insert((inlet, Vec::new()));
            frames.1.push(frame);
        }
        let mut put_at = Instant::now();
        let mut all = 0;
        loop {
            let put = self.put_some(host, &mut waiting);
            waiting.retain(|_, (_, frames)| !frames.is_empty());
            let is_over = match put {
                Ok(0) => put_at.elapsed() > STALLED,
                Ok(put) => {
                    all += put;
                    put_at = Instant::now();
                    false
                }
                Err(why) => {
                    tracing::warn!(instance = self.name, "frames for it: {why:#}");
                    true
                }
            };
            if waiting.is_empty() || is_over {
                let left = waiting.values().map(|(_, frames)| frames.len());
                let left = left.sum::<usize>() + nowhere;
                self.count_left(host, &waiting);
                return Ok((all, left as u64));
            }
            std::thread::sleep(ROOM_POLL);
        }
    }

    /// Counts frames for which there was no room, where they were for, as long as that is there.
    fn count_left(&self, host: &Shared, waiting: &BTreeMap<u8, Waiting<'_>>) {
        let host = lock(host);
        if host.process_of(&self.name).as_ref() != Some(&self.process) {
            return;
        }
        for (inlet, frames) in waiting.values() {
            let left = frames.len() as u64;
            host.switch
                .count_drop(inlet.port(), DropReason::RingFull, left);
        }
    }

    fn inlet(&self, port: u8) -> Option<&Inlet> {
        self.inlets.get(usize::from(port))?.as_ref()
    }

    /// Puts as many as there is room for, and takes them out of the lists.
    fn put_some(
        &self,
        host: &Shared,
        waiting: &mut BTreeMap<u8, Waiting<'_>>,
    ) -> anyhow::Result<u64> {
        let host = lock(host);
        // Its ports' numbers may be another's afterwards.
        let is_there = host.process_of(&self.name).as_ref() == Some(&self.process);
        ensure!(is_there, "it has ended, or was upgraded, meanwhile");
        let mut all = 0;
        for (inlet, frames) in waiting.values_mut() {
            let put = host.switch.deposit_at(inlet, frames, inlet.slots() / 2);
            frames.drain(..put);
            all += put as u64;
        }
        if all > 0 {
            // A full pipe is a ring that has not been answered yet.
            let _ = rustix::io::write(&self.bell, &[1]);
        }
        Ok(all)
    }
}

/// The addresses of an instance's own ports.
pub fn addresses_of(host: &Shared, name: &str) -> Vec<Address> {
    let host = lock(host);
    let running = host.instances.get(name);
    let ports = running.iter().flat_map(|running| &running.spec.ports);
    let own = (0..=u8::MAX).zip(ports);
    own.map(|(number, port)| (number, port.mac.0)).collect()
}

/// Has an instance tell the hosts at its ports that addresses are behind it.
///
/// # Errors
/// It does not answer.
pub fn announce(host: &Shared, name: &str, addresses: &[Address]) -> anyhow::Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let control = lock(host).control_socket(name);
    let control = control.context("there is no such instance")?;
    let request = Request::Announce {
        addresses: addresses.to_vec(),
    };
    daemon::ask(&control, &request).map(drop)
}
