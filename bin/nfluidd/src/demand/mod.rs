//! Instances on demand (docs/adr/0014): who comes to an uplink and matches a template gets an instance, and who is silent for a
//! while loses it.
//!
//! Frames of clients that have none wait in the switch; [`reception`] takes them from there, has instances made, and hands the
//! frames over. From then on a client's frames pass by here. [`idle`] ends who is silent.

mod book;
mod idle;
mod reception;

pub use book::Book;

use crate::host::{HostPlatform, Shared};
use nfluid_control::controller::Controller;
use nfluid_control::desired::Desired;
use nfluid_control::state::FileStore;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Everything that makes and ends instances, one at a time.
pub type SharedController = Arc<Mutex<Controller<HostPlatform, FileStore>>>;

/// What the threads share.
#[derive(Clone)]
pub struct Demand {
    pub host: Shared,
    pub controller: SharedController,
    /// The desired state: for who does not wait until a change is made.
    pub desired: Desired,
    pub book: Arc<Mutex<Book>>,
}

impl Demand {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the kernel has none left.
    pub fn start(
        host: &Shared,
        controller: &SharedController,
        desired: &Desired,
    ) -> std::io::Result<Self> {
        let demand = Demand {
            desired: desired.clone(),
            host: Arc::clone(host),
            controller: Arc::clone(controller),
            book: Arc::default(),
        };
        let (reception, idle) = (demand.clone(), demand.clone());
        std::thread::Builder::new()
            .name("reception".to_owned())
            .spawn(move || reception::run(&reception))?;
        std::thread::Builder::new()
            .name("idle".to_owned())
            .spawn(move || idle::run(&idle))?;
        Ok(demand)
    }

    /// Who is there. Whoever holds this may take the host's lock, but not the controller's.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn controller(&self) -> MutexGuard<'_, Controller<HostPlatform, FileStore>> {
        let locked = self.controller.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}
