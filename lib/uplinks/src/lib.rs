//! The uplinks of a platform: ports that are backed by interfaces.
//!
//! | module | what it is |
//! |---|---|
//! | `life` | an uplink is made and removed; its process is started |
//! | `adopt` | processes of an earlier daemon are taken over or ended |
//! | `supervise` | a process that has ended is started again; interfaces vanish and return |
//! | `levels` | which frames with work left to be done uplinks let in: domain by domain, in two steps; an uplink that cannot holds back its domain |
//! | `steering` | the frames that the NIC of an uplink classifies |
//! | `meter` | CPU time that the kernel spends on receiving, per uplink and per instance |
//! | [`rules`] | entries of the wiring as rules of the switch's classifier |
//! | `running`, `record`, [`paths`] | an uplink in memory and on disk |
//!
//! [`Uplinks`] owns the table of uplinks. Of the daemon it has the switch, free numbers, paths and events ([`Handles`]). The
//! port itself and the work of its process are `lib/uplink`; starting and finding a process is `lib/process`. Where frames of
//! an uplink go is `lib/wiring`'s: the daemon hands the entries in.

#![forbid(unsafe_code)]

mod adopt;
mod levels;
mod life;
mod meter;
pub mod paths;
mod record;
pub mod rules;
mod running;
mod status;
mod steering;
mod supervise;

pub use paths::Paths;

use levels::Wanted;
use meter::UplinkMeter;
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::events::Events;
use nfluid_control::quantity::Millis;
use nfluid_switch::Switch;
use nfluid_switch::numbers::Ids;
use running::RunningUplink;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The daemon, as uplinks see it.
pub struct Handles {
    /// The switch that the ports are in.
    pub switch: Arc<Switch>,
    /// Free numbers of ports, shared with instances.
    pub ports: Ids,
    /// Free numbers of pools, shared with instances.
    pub pools: Ids,
    /// Where records, sockets and pins lie.
    pub paths: Paths,
    /// The log filter of the processes.
    pub log: String,
    /// Where events are reported.
    pub events: Arc<dyn Events>,
    /// The origin of the daemon's clock: restarts are due at times since then.
    pub started: Instant,
}

/// The uplinks of a platform.
pub struct Uplinks {
    handles: Handles,
    running: BTreeMap<String, RunningUplink>,
    meter: UplinkMeter,
    levels: Wanted,
    /// Port and pool of uplinks that an earlier daemon has left and that have to be created again.
    left: BTreeMap<String, (u32, u32)>,
}

impl Uplinks {
    /// Creates an empty table of uplinks.
    pub fn new(handles: Handles) -> Self {
        Uplinks {
            handles,
            running: BTreeMap::new(),
            meter: UplinkMeter::default(),
            levels: Wanted::default(),
            left: BTreeMap::new(),
        }
    }

    /// Returns the platform-wide number of an uplink's port.
    pub fn port_id(&self, name: &str) -> Option<u32> {
        self.running.get(name).map(RunningUplink::port_id)
    }

    /// Returns the numbers of all ports.
    pub fn port_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.running.values().map(RunningUplink::port_id)
    }

    /// Returns the uplinks and how many slots their rings have.
    pub fn rings(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.running.iter();
        all.map(|(name, uplink)| (name.as_str(), uplink.spec.ring))
    }

    /// Returns true if the uplink's NIC is to classify frames.
    pub fn steers(&self, name: &str) -> bool {
        self.running.get(name).is_some_and(RunningUplink::steers)
    }

    /// Returns true if the uplink's process runs.
    pub fn runs(&self, name: &str) -> bool {
        let uplink = self.running.get(name);
        uplink.is_some_and(|uplink| uplink.process.is_some())
    }

    /// Returns the time on the daemon's clock.
    fn now(&self) -> Millis {
        Millis(self.handles.started.elapsed().as_millis() as u64)
    }

    /// Records an event of an uplink.
    fn event(&self, kind: EventKind, name: &str, message: impl Into<String>) {
        let subject = Some((Kind::Uplink, name));
        self.handles.events.record(kind, subject, message.into());
    }
}
