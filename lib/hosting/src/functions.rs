//! Where the network function of an instance comes from.

use nfluid_nf::{NetworkFunction, PortInfo};
use nfluid_ring::memory::Pool;
use serde_json::Value;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Makes the network functions of this process.
pub trait Functions {
    /// Prepares what can be prepared before the network function is known: `pool` has the slots of the frames, `ports` are
    /// those that the network function will have, except for their names.
    ///
    /// # Errors
    /// This process can make no network function.
    fn prepare(&mut self, pool: &Arc<Pool>, ports: &[PortInfo]) -> anyhow::Result<()>;

    /// Returns a descriptor that is readable when network functions have something to do by themselves, although no frame
    /// has come: they are then called as if time had passed. None: there is no such thing.
    fn watched(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Builds the network function `name`. Frames lie in the slots of `pool`, which stay mapped while it lives.
    ///
    /// # Errors
    /// An unknown name, a configuration that the network function refuses, or the environment's.
    fn build(
        &mut self,
        name: &str,
        config: &Value,
        ports: &[PortInfo],
        pool: &Arc<Pool>,
    ) -> anyhow::Result<Box<dyn NetworkFunction>>;
}
