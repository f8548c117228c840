//! Instances that lose their ports pass on what was sent to them before.

use super::{Host, Shared, errors, lock};
use nfluid_control::apply::PlatformError;
use nfluid_lifecycle::running::Running;
use nfluid_switch::{Switch, WatchedRing};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time without progress after which an instance is not waited for: it is stuck, or its share is too small.
const STALL: Duration = Duration::from_millis(100);
/// Time after which nobody is waited for.
const LIMIT: Duration = Duration::from_secs(1);
/// Time between two looks at rings that are not empty.
const LOOK: Duration = Duration::from_micros(200);

/// A ring, and the position behind the frames that were in it.
struct Waiting {
    ring: WatchedRing,
    target: u32,
    read_to: u32,
    moved: Instant,
}

impl Waiting {
    /// `None`: no frame waits, for the instance or for the switch.
    fn of(switch: &Switch, ring: WatchedRing) -> Option<Self> {
        let sample = switch.look_at(&ring);
        (sample.waiting > 0 || sample.sends).then(|| Waiting {
            ring,
            target: sample.read_to.wrapping_add(sample.waiting),
            read_to: sample.read_to,
            moved: Instant::now(),
        })
    }

    /// Returns true if there is something to wait for.
    fn goes_on(&mut self, switch: &Switch) -> bool {
        let sample = switch.look_at(&self.ring);
        if sample.read_to != self.read_to {
            self.read_to = sample.read_to;
            self.moved = Instant::now();
        }
        let left = self.target.wrapping_sub(sample.read_to) as i32;
        (left > 0 || sample.sends) && self.moved.elapsed() < STALL
    }
}

impl Host {
    /// The rings of instances that run.
    fn rings_of(&self, instances: &[String]) -> Vec<WatchedRing> {
        let found = instances.iter().filter_map(|name| self.instances.get(name));
        let running = found.filter(|it| it.workload.pid().is_some() && !it.is_paused());
        running
            .flat_map(Running::port_numbers)
            .filter_map(|queue| self.switch.watch_ring(queue))
            .collect()
    }
}

/// Waits until instances have passed on the frames that wait in their rings. What one of them passes on may go to the next one:
/// as many rounds as there are instances do for each order.
///
/// # Errors
/// The kernel does not say whether frames are on their way there.
pub(super) fn drain(host: &Shared, instances: &[String]) -> Result<(), PlatformError> {
    let switch = Arc::clone(&lock(host).switch);
    // A call that has seen the former destinations may still put frames there.
    switch.await_quiet().map_err(errors::switch_failed)?;
    let end = Instant::now() + LIMIT;
    for _ in instances {
        let rings = lock(host).rings_of(instances).into_iter();
        let mut waiting: Vec<_> = rings
            .filter_map(|ring| Waiting::of(&switch, ring))
            .collect();
        if waiting.is_empty() {
            break;
        }
        loop {
            waiting.retain_mut(|it| it.goes_on(&switch));
            if waiting.is_empty() {
                break;
            }
            if Instant::now() >= end {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
    }
    Ok(())
}
