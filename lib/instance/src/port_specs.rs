//! The ports of an instance, for the switch.

use nfluid_control::host::{NETMAP_TX_RINGS, TX_SLOTS, TX_SLOTS_BUILT_IN};
use nfluid_control::model::PortApi;
use nfluid_control::spec::InstanceSpec;
use nfluid_ring::Level;
use nfluid_switch::{LongSlots, PortSpec, Wake};

/// Slots of each port for long frames that the instance makes itself: two frames of 64 KiB.
const TX_LONG_SLOTS: u32 = 64;

/// Returns the TX slots of each port of a new instance. An I/O thread returns slots late, so that an instance with
/// one needs more.
pub fn tx_slots(spec: &InstanceSpec) -> u32 {
    if spec.program.api() == PortApi::Netmap {
        NETMAP_TX_RINGS * spec.ring
    } else if spec.is_hosted() && spec.trust.is_none() && !spec.io.has_threads() {
        TX_SLOTS_BUILT_IN
    } else {
        TX_SLOTS
    }
}

/// Returns the ports of an instance with ids from `first_id` on and this many TX slots each. Each queue is a port of
/// its own.
pub fn port_specs(spec: &InstanceSpec, first_id: u32, tx_slots: u32) -> Vec<PortSpec> {
    let queues = spec
        .ports
        .iter()
        .flat_map(|port| (0..port.queues).map(move |queue| (port, queue)));
    (first_id..)
        .zip(queues)
        .map(|(id, (port, queue))| {
            let mut made = PortSpec::new(id, &port.name, port.mac.0, spec.ring);
            made.mtu = port.mtu;
            made.tx_slots = tx_slots;
            if port.long > 0 {
                made.long = LongSlots {
                    rx: port.long,
                    tx: TX_LONG_SLOTS,
                };
                made.level = Level::numbered(spec.frames.number());
            }
            made.queue = (queue, port.queues);
            // The threads of its queues share one pipe. The sender of a link rings this pipe once for all of them.
            made.kernel_doorbell = port.queues > 1;
            made.wake = wake_of(spec.wake);
            made
        })
        .collect()
}

/// Converts the wake setting of an instance for the switch.
pub(crate) fn wake_of(wake: Option<nfluid_control::wake::Wake>) -> Wake {
    wake.map_or(Wake::AT_ONCE, |wake| Wake {
        frames: wake.frames,
        after: wake.after.duration(),
    })
}
