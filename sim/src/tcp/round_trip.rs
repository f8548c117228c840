//! How long a sender waits for an acknowledgement: RFC 6298.

/// RFC 6298 asks for at least a second; Linux, and with it what this is compared to, takes this.
const TIMEOUT_NS_MIN: u64 = 200_000_000;
/// Section 2.4 and 2.5: the longest wait.
const TIMEOUT_NS_MAX: u64 = 60_000_000_000;
/// Section 2.1: before anything is known.
const TIMEOUT_NS_FIRST: u64 = 1_000_000_000;
/// Doublings after which the longest wait is reached, whatever it began with.
const BACKOFF_MAX: u32 = 16;

/// The estimate of a path's round trip.
#[derive(Clone, Debug, Default)]
pub struct RoundTrip {
    /// Smoothed round trip and its mean deviation, nanoseconds.
    estimate: Option<(f64, f64)>,
    backoff: u32,
}

impl RoundTrip {
    /// A round trip of `ns` was seen. Each transmission has a number of its own, so that every one
    /// may be used, repetitions too (Karn's algorithm has nothing to leave out).
    pub fn sample(&mut self, ns: u64) {
        let ns = ns as f64;
        self.backoff = 0;
        self.estimate = Some(match self.estimate {
            None => (ns, ns / 2.0),
            Some((smoothed, deviation)) => (
                0.875 * smoothed + 0.125 * ns,
                0.75 * deviation + 0.25 * (smoothed - ns).abs(),
            ),
        });
    }

    /// Doubles the timeout, since no acknowledgement came in time.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// The smoothed round trip in seconds, if one was seen.
    pub fn smoothed_s(&self) -> Option<f64> {
        self.estimate.map(|(smoothed, _)| smoothed / 1e9)
    }

    /// How long to wait, nanoseconds.
    pub fn timeout_ns(&self) -> u64 {
        let base = self
            .estimate
            .map_or(TIMEOUT_NS_FIRST, |(smoothed, deviation)| {
                ((smoothed + 4.0 * deviation) as u64).max(TIMEOUT_NS_MIN)
            });
        base.saturating_mul(1 << self.backoff).min(TIMEOUT_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::RoundTrip;

    #[test]
    fn waits_as_rfc_6298_says() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.timeout_ns(), 1_000_000_000);
        round_trip.sample(400_000_000);
        assert_eq!(round_trip.timeout_ns(), 400_000_000 + 4 * 200_000_000);
        round_trip.sample(800_000_000);
        // 0.875 x 400 + 0.125 x 800 = 450; 0.75 x 200 + 0.25 x 400 = 250.
        assert_eq!(round_trip.timeout_ns(), 1_450_000_000);
        round_trip.back_off();
        assert_eq!(round_trip.timeout_ns(), 2_900_000_000);
        for _ in 0..100 {
            round_trip.back_off();
        }
        assert_eq!(round_trip.timeout_ns(), 60_000_000_000);
        for _ in 0..100 {
            round_trip.sample(1000);
        }
        assert_eq!(round_trip.timeout_ns(), 200_000_000);
    }
}
