//! The first pool of a platform.

use super::patience::eventually;
use super::platform::Platform;
use serde_json::Value;

/// Returns the state of the pool.
pub fn pool(platform: &Platform) -> Value {
    platform.ask(&["get", "pools"])[0].clone()
}

/// Waits until so many shells are ready.
pub fn await_shells(platform: &Platform, count: u64) {
    eventually("the shells are ready", || pool(platform)["ready"] == count);
}
