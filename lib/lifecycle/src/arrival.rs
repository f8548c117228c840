//! Frames and addresses that another host forwards to an instance that has arrived from there.

use crate::services::{Services, lock};
use crate::workload::InstanceRings;
use anyhow::{Context, ensure};
use nfluid_formats::frames::frames_in;
use nfluid_formats::message::Address;
use nfluid_protocol::{Request, daemon};
use nfluid_sandbox::ProcessIdentity;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// After this time without room in a ring, the instance counts as not emptying the ring. Meanwhile the other host
/// keeps its frames, and waits longer for each of its messages.
const STALLED: Duration = Duration::from_secs(2);
/// Interval at which a full ring is checked for room.
const ROOM_POLL: Duration = Duration::from_micros(500);

/// The rings of an instance that has arrived.
pub struct ArrivalRings {
    name: String,
    process: ProcessIdentity,
    instance_rings: Box<dyn InstanceRings>,
}

/// Frames in their order, by port.
type Waiting<'a> = BTreeMap<u8, Vec<&'a [u8]>>;

impl ArrivalRings {
    /// Returns the rings of an instance, as long as the instance has this process and owns its ports.
    ///
    /// # Errors
    /// The process has ended.
    pub fn of<C: Services>(
        host: &Mutex<C>,
        name: &str,
        process: &ProcessIdentity,
    ) -> anyhow::Result<Self> {
        let host = lock(host);
        let running = host.instances().find(name)?;
        Ok(ArrivalRings {
            name: name.to_owned(),
            process: process.clone(),
            instance_rings: running.workload.instance_rings()?,
        })
    }

    /// Puts frames into the rings, in their order, as soon as there is room. Half of each ring is left to the senders
    /// on this host. Returns the number of frames that had room, and the number of frames that had none because the
    /// instance does not empty its rings.
    ///
    /// # Errors
    /// The bytes are not frames.
    pub fn put<C: Services>(&self, host: &Mutex<C>, bytes: &[u8]) -> anyhow::Result<(u64, u64)> {
        let mut waiting = Waiting::new();
        for (port, frame) in frames_in(bytes)? {
            waiting.entry(port).or_default().push(frame);
        }
        let mut nowhere = 0;
        waiting.retain(|port, frames| {
            let is_there = self.instance_rings.has(*port);
            nowhere += if is_there { 0 } else { frames.len() };
            is_there
        });
        let mut put_at = Instant::now();
        let mut all = 0;
        loop {
            let put = self.put_some(host, &mut waiting);
            waiting.retain(|_, frames| !frames.is_empty());
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
                let left = waiting.values().map(Vec::len).sum::<usize>() + nowhere;
                self.count_left(host, &waiting);
                return Ok((all, left as u64));
            }
            std::thread::sleep(ROOM_POLL);
        }
    }

    /// Counts frames without room, as long as the instance that they were for exists.
    fn count_left<C: Services>(&self, host: &Mutex<C>, waiting: &Waiting<'_>) {
        if self.is_there(&*lock(host)) {
            for (port, frames) in waiting {
                self.instance_rings
                    .count_left_out(*port, frames.len() as u64);
            }
        }
    }

    /// Returns true if the instance still has the same process. Otherwise the numbers of its ports may belong to
    /// another instance.
    fn is_there(&self, services: &dyn Services) -> bool {
        let running = services.instances().get(&self.name);
        let process = running.and_then(|running| running.workload.identity());
        process.as_ref() == Some(&self.process)
    }

    /// Puts as many frames as have room, and removes them from the lists.
    fn put_some<C: Services>(
        &self,
        host: &Mutex<C>,
        waiting: &mut Waiting<'_>,
    ) -> anyhow::Result<u64> {
        let host = lock(host);
        ensure!(
            self.is_there(&*host),
            "it has ended, or was upgraded, meanwhile"
        );
        let mut all = 0;
        for (port, frames) in waiting {
            let put = self.instance_rings.put(*port, frames);
            frames.drain(..put);
            all += put as u64;
        }
        Ok(all)
    }
}

/// Returns the addresses of an instance's own ports.
pub fn addresses_of<C: Services>(host: &Mutex<C>, name: &str) -> Vec<Address> {
    let host = lock(host);
    let running = host.instances().get(name);
    let ports = running.iter().flat_map(|running| &running.spec.ports);
    let own = (0..=u8::MAX).zip(ports);
    own.map(|(number, port)| (number, port.mac.0)).collect()
}

/// Makes an instance announce on its ports that addresses are behind it.
///
/// # Errors
/// The instance does not answer.
pub fn announce<C: Services>(
    host: &Mutex<C>,
    name: &str,
    addresses: &[Address],
) -> anyhow::Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let control = lock(host).instances().control(name);
    let control = control.context("there is no such instance")?;
    let request = Request::Announce {
        addresses: addresses.to_vec(),
    };
    daemon::ask(&control, &request).map(drop)
}
