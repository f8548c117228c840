//! This host, as the migration of an instance sees it.

use crate::events::HostEvents;
use crate::host::{self, Moved, Shared, lock};
use crate::server::{Daemon, problem, wait_for};
use nfluid_api::server::Server;
use nfluid_api::types::{ApplyRequest, DeleteRequest, ObjectName, PausedTraffic, Problem};
use nfluid_control::events::Events;
use nfluid_control::model::Deployment;
use nfluid_formats::message::{Address, Taken};
use nfluid_instance::pool;
use nfluid_lifecycle::arrival::{self, ArrivalRings};
use nfluid_lifecycle::departure::{self, DepartureStream, Output};
use nfluid_lifecycle::pausing;
use nfluid_migration::site::{Forwarded, Instances, Leaving, Rings, Site, Stopped};
use nfluid_sandbox::ProcessIdentity;
use serde_json::Value;
use std::sync::Arc;

/// The instances of this host.
pub struct HostInstances {
    host: Shared,
    events: Arc<HostEvents>,
}

impl HostInstances {
    /// Creates the view of the instances of `host`.
    pub fn new(host: &Shared) -> Self {
        HostInstances {
            events: lock(host).events(),
            host: Arc::clone(host),
        }
    }
}

impl Instances for HostInstances {
    type Stopped = HostStopped;
    type Rings = HostRings;
    type PoolPause = pool::Held;

    fn events(&self) -> &dyn Events {
        &*self.events
    }

    fn pause_pool(&self) -> pool::Held {
        lock(&self.host).pool().hold()
    }

    fn process_of(&self, name: &str) -> Option<ProcessIdentity> {
        departure::process_of(&self.host, name)
    }

    fn settle(&self, name: &str) {
        departure::settle(&self.host, name);
    }

    fn unsettle(&self, name: &str) {
        departure::unsettle(&self.host, name);
    }

    fn let_go(&self, name: &str) {
        departure::let_go(&self.host, name);
    }

    fn begin_departure(&self, name: &str) -> Result<ProcessIdentity, Problem> {
        let begun = departure::begin_departure(&self.host, name);
        begun.map_err(|error| problem(name, error))
    }

    fn state_now(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        host::state_now(&self.host, name)
    }

    fn stop(&self, name: &str) -> anyhow::Result<Leaving<HostStopped>> {
        let (way, state, addresses) = departure::stop(&self.host, name)?;
        Ok(Leaving {
            stopped: HostStopped(way),
            state,
            addresses,
        })
    }

    fn resume(&self, name: &str) {
        // An instance that has ended, or that runs already, does not listen.
        let _ = departure::resume(&self.host, name);
    }

    fn unpause(&self, name: &str) {
        // An instance that is not paused is left as it is.
        let _ = pausing::resume(&mut *lock(&self.host), name);
    }

    fn pause(&self, name: &str) -> anyhow::Result<()> {
        let host = &mut *lock(&self.host);
        Ok(pausing::pause(host, name, PausedTraffic::Drop)?)
    }

    fn frames_dropped(&self, name: &str) -> u64 {
        departure::frames_dropped(&self.host, name)
    }

    fn frames_left(&self, name: &str) -> u64 {
        departure::frames_left(&self.host, name)
    }

    fn close_ports(&self, name: &str) -> anyhow::Result<ProcessIdentity> {
        departure::close_ports(&self.host, name)
    }

    fn open_ports(
        &self,
        name: &str,
        process: &ProcessIdentity,
        record: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        departure::open_ports(&self.host, name, process, record)
    }

    fn reopen_ports(&self, name: &str) {
        departure::reopen_ports(&self.host, name);
    }

    fn rehearse(&self, name: &str, state: &[u8]) -> anyhow::Result<()> {
        host::rehearse(&self.host, name, state)
    }

    fn take_in(&self, name: &str, state: Vec<u8>) -> anyhow::Result<Taken> {
        let moved = Moved {
            state,
            frames: Vec::new(),
            addresses: Vec::new(),
        };
        let given = host::give(&self.host, name, &moved, false)?;
        Ok(Taken {
            taken: given.taken,
            left_out: given.left_out,
        })
    }

    fn rings(&self, name: &str, process: &ProcessIdentity) -> anyhow::Result<HostRings> {
        Ok(HostRings {
            rings: ArrivalRings::of(&self.host, name, process)?,
            host: Arc::clone(&self.host),
        })
    }

    fn addresses_of(&self, name: &str) -> Vec<Address> {
        arrival::addresses_of(&self.host, name)
    }

    fn announce(&self, name: &str, addresses: &[Address]) -> anyhow::Result<()> {
        arrival::announce(&self.host, name, addresses)
    }
}

/// An instance of this host that is frozen for a move.
pub struct HostStopped(DepartureStream);

impl Stopped for HostStopped {
    fn hold(&mut self) -> anyhow::Result<()> {
        self.0.hold()
    }

    fn forward(&mut self) -> anyhow::Result<()> {
        self.0.forward()
    }

    fn next(&mut self) -> anyhow::Result<Forwarded> {
        Ok(match self.0.next_output()? {
            Output::Frames(frames) => Forwarded::Frames(frames),
            Output::AllThatWaited => Forwarded::AllThatWaited,
            Output::Nothing => Forwarded::Nothing,
            Output::End => Forwarded::End,
        })
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.0.end()
    }
}

/// The rings of an instance that arrives from another host.
pub struct HostRings {
    host: Shared,
    rings: ArrivalRings,
}

impl Rings for HostRings {
    fn put(&self, frames: &[u8]) -> anyhow::Result<Taken> {
        let (taken, left_out) = self.rings.put(&self.host, frames)?;
        Ok(Taken { taken, left_out })
    }
}

impl Site for Daemon {
    type Instances = HostInstances;

    fn instances(&self) -> &HostInstances {
        &self.instances
    }

    fn deployment(&self) -> Deployment {
        self.model()
    }

    fn settled_deployment(&self) -> Deployment {
        self.controller().deployment().clone()
    }

    fn document_of(&self, all: &Value, name: &str) -> Result<Value, Problem> {
        Daemon::document_of(all, name)
    }

    fn make(
        &self,
        name: &str,
        document: &mut Value,
    ) -> Result<impl FnOnce() -> Result<(), Problem>, Problem> {
        let made = self.make_from(name, document)?;
        Ok(move || made.map_or(Ok(()), |made| wait_for(made.durable)))
    }

    fn apply(&self, document: &Value) -> Result<(), Problem> {
        let request = ApplyRequest {
            text: document.to_string(),
            file: Some("what leads to the instance".to_owned()),
            merge: true,
            ..ApplyRequest::default()
        };
        Server::apply(self, request).map(drop)
    }

    fn delete(&self, objects: Vec<ObjectName>) -> Result<(), Problem> {
        let request = DeleteRequest {
            objects,
            with_links: true,
            ..DeleteRequest::default()
        };
        Server::delete(self, request).map(drop)
    }
}
