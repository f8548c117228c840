//! The desired state, which other threads read while it is being changed.
//!
//! A change waits for instances, processes and the disk. Until the change is done, readers get the former desired
//! state, without waiting.

use crate::model::Deployment;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The desired state. Only the controller changes it; others read it.
#[derive(Clone, Debug)]
pub struct Desired(Arc<RwLock<Deployment>>);

impl Desired {
    pub(crate) fn new(deployment: Deployment) -> Self {
        Desired(Arc::new(RwLock::new(deployment)))
    }

    /// Locks the desired state for reading. A change is not adopted before the guard is dropped, so the guard must
    /// not be kept.
    pub fn read(&self) -> RwLockReadGuard<'_, Deployment> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the desired state for writing. The caller must hold no read guard.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Deployment> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
