//! Uplinks: ports backed by a real interface.
//!
//! An uplink is a port of the platform like any other. Frames *to* the uplink arrive in its ring, and the uplink's
//! thread sends them out of the interface. Frames that the interface receives are sent *by* the uplink: a program at XDP
//! or tc writes each frame straight into the slots of the receiving port - the other end of a link, the port that the
//! switch knows or floods to, or the port that the uplink's rules name - and wakes its owner. No thread is in that path.
//!
//! | way | when | why |
//! |---|---|---|
//! | XDP native | the driver can (veth, virtio, most NICs) | before any socket buffer is made: 15-42 ns of program per frame |
//! | XDP generic | else, or if asked for | any interface; a socket buffer per frame, and a copy where it is shared |
//! | AF_XDP zero-copy | native, real hardware, driver can | the NIC reads the uplink's own slots |
//! | AF_XDP copy | else | one copy in the kernel, no queueing discipline (measure: example `uplink_speed`) |
//! | AF_PACKET | the interface takes no AF_XDP socket | works everywhere, one system call per 64 frames |
//! | tc | [`Levels`] above plain | at XDP a frame has no metadata; behind a socket buffer, so slower for small packets |
//! | AF_PACKET with `virtio_net_hdr` | with tc | the way out for frames with work left to be done; through the queueing discipline |
//! | tap | `Kind::Tap` | a read and a write per frame, at each level: for programs with a kernel stack |
//!
//! A port takes frames that are longer than a slot if it has slots for them ([`UplinkSpec::long_slots`]): super-frames, and
//! jumbo frames, for which AF_PACKET is the way out in place of AF_XDP. [`Uplink::set_levels`] changes what comes in and
//! what is taken, while frames pass: the program of the new form is on the interface before that of the old one is taken
//! off.
//!
//! Which one it has become, and the kernel's reason, is in [`Uplink::status`] and in the log.
//!
//! Changes on the host - the programs, offloads, an address, the interface's up state - are recorded in a file
//! first, so that [`Uplink::close`] undoes them, and a daemon that comes after a crash undoes them
//! ([`clean_leftovers`]) or takes over ([`Uplink::open`] with the same name: the program is replaced atomically, no
//! frame is missed).

mod connection;
mod direct;
mod error;
mod memory;
mod outlet;
mod packet;
mod receive;
mod shared;
mod spec;
mod state;
mod steering;
mod tap_worker;
mod uplink;
mod worker;
mod xsk;

pub use direct::DirectOutlet;
pub use error::{ErrorKind, ReportedError, UplinkError};
pub use nfluid_ring::Level;
pub use nfluid_ring::layout::SLOT_SIZE;
pub use spec::{Kind, Levels, Transmit, TransmitPath, UplinkPath, UplinkSpec, UplinkStatus};
pub use state::program_of;
pub use steering::{Choice, STEERED_MAX, Steered};
pub use uplink::Uplink;
pub use worker::NICE;

use nfluid_switch::Switch;
use std::path::Path;

/// Removes an uplink whose process has ended: what its record in `state_dir` says is undone, its
/// port leaves the switch.
///
/// # Errors
/// When the port cannot be removed. Failures on the interface are logged.
pub fn close_dead(switch: &Switch, spec: &UplinkSpec) -> Result<(), UplinkError> {
    if let Some(dir) = &spec.state_dir {
        clean_leftovers(dir, |name| name != spec.name);
    }
    memory::unpin(spec);
    switch.set_queues(spec.port, &[])?;
    switch.set_rules(spec.port, &[])?;
    Ok(switch.remove_ids(&[spec.pool], &[spec.port])?)
}

/// Undoes the changes that a crashed daemon has left on interfaces, by the records in `dir`, except for uplinks that
/// `keep` names: those will be opened again, and taken over. Returns the names of the uplinks that were cleaned;
/// failures are logged and tried again next time.
pub fn clean_leftovers(dir: &Path, keep: impl Fn(&str) -> bool) -> Vec<String> {
    let mut cleaned = Vec::new();
    for record in state::all(dir) {
        let result = record.and_then(|record| {
            if keep(&record.name) {
                return Ok(());
            }
            record.undo()?;
            record.forget(dir)?;
            cleaned.push(record.name);
            Ok(())
        });
        if let Err(error) = result {
            tracing::warn!(%error, "leftovers of an uplink stay");
        }
    }
    cleaned
}
