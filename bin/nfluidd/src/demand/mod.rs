//! Instances on demand (docs/adr/0014): a client that comes to an uplink and matches a template gets an instance. A
//! client that is silent for a while loses its instance.
//!
//! The switch holds frames of clients without an instance. [`admission`] takes the frames from there, has instances
//! created, and delivers the frames. From then on a client's frames do not pass through the daemon. [`idle`] ends the
//! instances of silent clients.

mod admission;
mod client_table;
mod idle;

pub use client_table::ClientTable;

use crate::host::{HostPlatform, Shared};
use nfluid_control::controller::Controller;
use nfluid_control::desired::Desired;
use nfluid_control::state::FileStore;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The controller, which creates and ends instances, one change at a time.
pub type SharedController = Arc<Mutex<Controller<HostPlatform, FileStore>>>;

/// The state that the threads share.
#[derive(Clone)]
pub struct Demand {
    pub host: Shared,
    pub controller: SharedController,
    /// The desired state, for readers that do not wait until a change is done.
    pub desired: Desired,
    pub client_table: Arc<Mutex<ClientTable>>,
}

impl Demand {
    /// Starts the threads.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(
        host: &Shared,
        controller: &SharedController,
        desired: &Desired,
    ) -> std::io::Result<Self> {
        let demand = Demand {
            desired: desired.clone(),
            host: Arc::clone(host),
            controller: Arc::clone(controller),
            client_table: Arc::default(),
        };
        let (admission, idle) = (demand.clone(), demand.clone());
        std::thread::Builder::new()
            .name("admission".to_owned())
            .spawn(move || admission::run(&admission))?;
        std::thread::Builder::new()
            .name("idle".to_owned())
            .spawn(move || idle::run(&idle))?;
        Ok(demand)
    }

    /// Locks the table of clients. The holder of this lock may take the host's lock, but not the controller's.
    pub fn client_table(&self) -> MutexGuard<'_, ClientTable> {
        self.client_table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn controller(&self) -> MutexGuard<'_, Controller<HostPlatform, FileStore>> {
        let locked = self.controller.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}
