//! The ports of an instance, for the switch.

use nfluid_control::host::{TX_SLOTS, TX_SLOTS_BUILT_IN};
use nfluid_control::model::Program;
use nfluid_control::spec::InstanceSpec;
use nfluid_switch::{PortSpec, Wake};

/// TX slots of each port of an instance that is made now. An I/O thread gives them back late: then there are more.
pub fn tx_slots(spec: &InstanceSpec) -> u32 {
    let is_built_in = matches!(spec.program, Program::BuiltIn { .. });
    if is_built_in && spec.trust.is_none() && !spec.io.has_threads() {
        TX_SLOTS_BUILT_IN
    } else {
        TX_SLOTS
    }
}

/// The ports of an instance, every queue one of its own, with ids from `first_id` and so many TX slots each.
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
            made.queue = (queue, port.queues);
            // Its queues' threads share one pipe, which a link's sender rings once for all of them.
            made.kernel_doorbell = port.queues > 1;
            made.wake = wake_of(spec.wake);
            made
        })
        .collect()
}

/// When an instance is woken, for the switch.
pub(crate) fn wake_of(wake: Option<nfluid_control::wake::Wake>) -> Wake {
    wake.map_or(Wake::AT_ONCE, |wake| Wake {
        frames: wake.frames,
        after: wake.after.duration(),
    })
}
