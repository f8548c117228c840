//! A sender with its own AF_XDP socket, whose memory is that of its port's TX slots.

use super::work::Work;
use crate::traffic::udp_frame;
use anyhow::Context;
use nfluid_ring::attach::Attached;
use nfluid_uplink::DirectOutlet;

/// Sends the frames of its TX slots out of an interface.
pub struct Transmit {
    outlet: DirectOutlet,
    len: usize,
    batch: usize,
}

impl Transmit {
    pub fn new(
        attached: &mut Attached,
        interface: &str,
        len: usize,
        batch: usize,
    ) -> anyhow::Result<Self> {
        let port = attached.ports.pop().context("a sender needs a port")?;
        let mut outlet = DirectOutlet::open(interface, port)?;
        // Frames are written into every slot once: from then on only lengths are written, as pkt-gen does.
        let mut flow = 0;
        while outlet.send(|slot| {
            slot[..len].copy_from_slice(&udp_frame(len, flow));
            flow += 1;
            len
        }) {}
        anyhow::ensure!(
            outlet.room() == 0,
            "{interface} takes no frames of {len} bytes"
        );
        Ok(Transmit { outlet, len, batch })
    }
}

impl Work for Transmit {
    fn burst(&mut self, _attached: &mut Attached) -> u64 {
        let len = self.len;
        let mut queued = 0;
        while queued < self.batch && self.outlet.send(|_| len) {
            queued += 1;
        }
        // If the interface accepts nothing now, the next call tries again.
        let _ = self.outlet.flush();
        self.outlet.collect() as u64
    }
}
