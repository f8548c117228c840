//! Sleep of a thread that has ports and no doorbell.

use super::*;

impl Port {
    /// Announces that the thread of this port is about to sleep, and returns true: the next frame rings the instance's
    /// doorbell, on which another thread waits ([`Doorbell::wait_for_ring`](crate::doorbell::Doorbell::wait_for_ring)).
    /// Returns false, and announces nothing, if a frame waits already. `epoch` is never 0, and another one at each sleep.
    pub fn fall_asleep(&mut self, epoch: u32) -> bool {
        self.announce_sleep(epoch);
        // The last look at the ring comes after the announcement; a sender publishes before it looks for one.
        fence(Ordering::SeqCst);
        if self.is_ready() {
            self.awake();
            return false;
        }
        true
    }

    /// Takes the announcement back: frames ring no more.
    pub fn awake(&mut self) {
        self.words().receiver.rx_sleep.store(0, Ordering::Relaxed);
    }

    pub(crate) fn announce_sleep(&self, epoch: u32) {
        let receiver = &self.words().receiver;
        receiver.rx_seen.store(self.taken(), Ordering::Relaxed);
        // A sender that sees the epoch sees the words that belong to the epoch.
        receiver.rx_sleep.store(epoch, Ordering::Release);
    }
}
