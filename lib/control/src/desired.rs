//! The desired state, which others read while it is being changed.
//!
//! A change waits for instances, processes and the disk. Until it is made, what is desired is what was desired before: nobody
//! who only wants to know that waits for it.

use crate::model::Deployment;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The desired state, shared by the controller, which alone changes it, with all who read it.
#[derive(Clone, Debug)]
pub struct Desired(Arc<RwLock<Deployment>>);

impl Desired {
    pub(crate) fn new(deployment: Deployment) -> Self {
        Desired(Arc::new(RwLock::new(deployment)))
    }

    /// What is desired. A change is not taken over before this is dropped, so it is not for keeping.
    pub fn read(&self) -> RwLockReadGuard<'_, Deployment> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Not while something is held that was read.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Deployment> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
