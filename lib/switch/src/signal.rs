//! Treatment of frames on their way into a port's ring: congestion signals with a probability, or refusal.
//!
//! The controller renews its word for a port; the switch follows the word packet by packet until the word's time is
//! over. So a controller that has died marks nothing.

use crate::SwitchError;
use crate::abi::{SIGNAL_REFUSE, SIGNAL_UNIT_SHIFT, SIGNAL_UNITS_MAX, SIGNAL_UNTIL_MASK};
use crate::program::Switch;
use nfluid_ring::clock::monotonic_ns;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// Longest that a word may count without being renewed.
pub const SIGNAL_FOR_MAX: Duration = Duration::from_secs(1);

/// Treatment of frames to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSignal {
    /// The probability that a frame carries a congestion signal: 0 never, `u32::MAX` always, and in between p means
    /// (p + 1) / 2^32. A packet whose sender can read ECN is marked (RFC 3168), others are dropped as
    /// [`crate::DropReason::Congestion`].
    pub probability: u32,
    /// Every frame is dropped as [`crate::DropReason::Refused`], before anything is done for it.
    pub is_refused: bool,
}

impl Switch {
    /// Sets the treatment of frames to the port from now on, for `valid_for`. A port of several queues has a word for
    /// each.
    ///
    /// # Errors
    /// [`SwitchError::Limit`] when it would count for longer than [`SIGNAL_FOR_MAX`].
    pub fn set_signal(
        &self,
        port: u32,
        signal: PortSignal,
        valid_for: Duration,
    ) -> Result<(), SwitchError> {
        if valid_for > SIGNAL_FOR_MAX {
            return Err(SwitchError::Limit(format!(
                "port {port}: a congestion signal counts for at most {} ms without being renewed, not for {valid_for:?}",
                SIGNAL_FOR_MAX.as_millis()
            )));
        }
        let word = to_word(signal, monotonic() + valid_for);
        self.state(port).signal.store(word, Release);
        Ok(())
    }

    /// Returns the treatment of frames to the port now; no treatment, if the word's time is over.
    pub fn signal(&self, port: u32) -> PortSignal {
        of_word(self.state(port).signal.load(Acquire), monotonic())
    }
}

/// The clock by which the switch goes.
fn monotonic() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

fn units(time: Duration) -> u64 {
    (time.as_nanos() >> SIGNAL_UNIT_SHIFT) as u64
}

/// The unit in which `until` lies still counts.
fn to_word(signal: PortSignal, until: Duration) -> u64 {
    if signal == PortSignal::default() {
        return 0;
    }
    let refuse = if signal.is_refused { SIGNAL_REFUSE } else { 0 };
    let until = (units(until) + 1) & SIGNAL_UNTIL_MASK;
    refuse | until << 32 | u64::from(signal.probability)
}

fn of_word(word: u64, now: Duration) -> PortSignal {
    let left = (word >> 32).wrapping_sub(units(now)) & SIGNAL_UNTIL_MASK;
    if word == 0 || left == 0 || left > SIGNAL_UNITS_MAX {
        return PortSignal::default();
    }
    PortSignal {
        probability: word as u32,
        is_refused: word & SIGNAL_REFUSE != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_word_says_what_was_put_in_until_its_time_is_over() {
        // The comparison also holds where the 31 bits of the word's time wrap.
        for now in [
            Duration::ZERO,
            5000 * MS,
            Duration::from_nanos((1 << 51) - 1),
        ] {
            for probability in [0, 1, 77, u32::MAX] {
                for is_refused in [false, true] {
                    let signal = PortSignal {
                        probability,
                        is_refused,
                    };
                    let word = to_word(signal, now + 250 * MS);
                    assert_eq!(of_word(word, now), signal);
                    assert_eq!(of_word(word, now + 249 * MS), signal);
                    assert_eq!(of_word(word, now + 253 * MS), PortSignal::default());
                    assert_eq!(
                        of_word(word, now + 24 * 3600 * 1000 * MS),
                        PortSignal::default()
                    );
                }
            }
        }
    }

    #[test]
    fn the_longest_time_is_within_what_the_switch_believes() {
        let signal = PortSignal {
            probability: 1,
            is_refused: false,
        };
        let now = Duration::from_nanos((1 << SIGNAL_UNIT_SHIFT) - 1);
        assert_eq!(of_word(to_word(signal, now + SIGNAL_FOR_MAX), now), signal);
    }
}
