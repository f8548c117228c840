//! Locks of objects: one task at a time works on each.

use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// Number of locks. Two objects can have the same one: then they wait for each other, too.
const LOCKS: usize = 256;

/// A lock for each object of a kind.
#[derive(Debug)]
pub struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Turns((0..LOCKS).map(|_| Mutex::default()).collect())
    }
}

impl Turns {
    /// Waits until nobody else does something with the object.
    pub async fn wait(&self, id: Uuid) -> MutexGuard<'_, ()> {
        let place = id.as_u128() % LOCKS as u128;
        self.0[place as usize].lock().await
    }
}
