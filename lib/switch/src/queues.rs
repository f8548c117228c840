//! The owners of the receive queues of an uplink's interface: the XDP program looks at them before the rules.

use crate::SwitchError;
use crate::abi::PORTS_MAX;
use crate::maps::create_map;
use crate::program::Switch;
use crate::tables::insert;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

/// Receive queues that can belong to a single port; `NFL_QUEUES_MAX`.
pub const QUEUES_MAX: u32 = 256;

/// The table of all uplinks, from the side of one.
#[derive(Debug)]
pub struct Queues {
    map: MapHandle,
    uplink: u32,
}

impl Queues {
    /// Opens the table of the uplink whose port is `uplink`.
    ///
    /// # Errors
    /// When there is no such table.
    pub fn of(switch: &Switch, uplink: u32) -> Result<Self, SwitchError> {
        let map = MapHandle::try_from(switch.map("nfl_queues")?)
            .map_err(SwitchError::bpf("opening the table of queues"))?;
        Ok(Queues { map, uplink })
    }

    /// Frames that come in on a queue named here go to its port without classification, from now on.
    ///
    /// # Errors
    /// A queue or port that cannot be, or the kernel refuses.
    pub fn set(&self, owners: &[(u32, u32)]) -> Result<(), SwitchError> {
        if let Some((queue, port)) = owners
            .iter()
            .find(|(queue, port)| *queue >= QUEUES_MAX || *port >= PORTS_MAX)
        {
            return Err(SwitchError::Limit(format!(
                "receive queue {queue} for port {port}: there are {QUEUES_MAX} queues and {PORTS_MAX} ports"
            )));
        }
        let inner = create_map(MapType::Array, "nfl_queue_map", (4, 4, QUEUES_MAX), 0)?;
        for (queue, port) in owners {
            inner
                .update(
                    &queue.to_ne_bytes(),
                    &(port + 1).to_ne_bytes(),
                    MapFlags::ANY,
                )
                .map_err(SwitchError::bpf("writing the table of queues"))?;
        }
        let owned = [(self.uplink, inner.as_fd())];
        insert(&self.map, &owned, "entering the queues")
    }

    /// Classifies every frame again from now on. When this function returns, no frame with an older classification is
    /// in transit.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear(&self) -> Result<(), SwitchError> {
        match self.map.delete(&self.uplink.to_ne_bytes()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(SwitchError::bpf("taking back the queues")(error))
            }
            _ => Ok(()),
        }
    }
}

impl Switch {
    /// Sends frames that the interface of the uplink `uplink` receives on each of these queues to the port beside the
    /// queue, as far as the uplink is connected to [`crate::Destination::Classifier`]; with an empty list, all frames
    /// are classified.
    ///
    /// # Errors
    /// A queue or port that cannot be, or the kernel refuses.
    pub fn set_queues(&self, uplink: u32, owners: &[(u32, u32)]) -> Result<(), SwitchError> {
        let queues = Queues::of(self, uplink)?;
        if owners.is_empty() {
            return queues.clear();
        }
        queues.set(owners)
    }

    /// Frames that came in on a queue of their receiver's own at the uplink `uplink`, not classified.
    pub fn steered_frames(&self, uplink: u32) -> u64 {
        // Uplinks make no calls: the word of bad ones is this one's (`struct nfl_port`).
        self.state(uplink).tx_bad_heads.load(Relaxed)
    }
}
