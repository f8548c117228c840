//! The time of each phase of a change.

use nfluid_api::types::{Phase, Timeline};
use std::time::{Duration, Instant};

/// A phase of a change, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap {
    /// Name of the phase.
    pub what: &'static str,
    /// End of the phase.
    pub until: Instant,
}

impl Lap {
    /// Returns a phase that ends now.
    pub fn now(what: &'static str) -> Self {
        Lap {
            what,
            until: Instant::now(),
        }
    }
}

/// The consecutive phases of a change.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    /// Start of the change.
    pub begun: Instant,
    laps: Vec<Lap>,
}

impl Stopwatch {
    /// Starts a stopwatch.
    pub fn start() -> Self {
        Stopwatch {
            begun: Instant::now(),
            laps: Vec::new(),
        }
    }

    /// Ends the phase `what` now.
    pub fn lap(&mut self, what: &'static str) {
        self.laps.push(Lap::now(what));
    }

    /// Adds phases that other code has measured.
    pub fn extend(&mut self, laps: impl IntoIterator<Item = Lap>) {
        self.laps.extend(laps);
    }

    /// Adds the phases of another stopwatch, which ran at the same time.
    pub fn absorb(&mut self, other: Stopwatch) {
        self.laps.extend(other.laps);
    }

    /// Returns the end of a phase, if the phase has ended.
    pub fn until(&self, what: &str) -> Option<Instant> {
        let found = self.laps.iter().find(|lap| lap.what == what);
        found.map(|lap| lap.until)
    }

    /// Returns the duration of each phase.
    pub fn parts(&self) -> Vec<(&'static str, Duration)> {
        let mut from = self.begun;
        let mut parts = Vec::with_capacity(self.laps.len());
        for lap in &self.laps {
            parts.push((lap.what, lap.until.saturating_duration_since(from)));
            from = from.max(lap.until);
        }
        parts
    }

    /// Returns the duration of each phase, for a client on the same host whose clock shows `now_ns`.
    pub fn timeline(&self, now_ns: u64) -> Timeline {
        let phase = |(what, took): (&str, Duration)| Phase {
            what: what.to_owned(),
            took_ns: took.as_nanos() as u64,
        };
        Timeline {
            begun_ns: now_ns.saturating_sub(self.begun.elapsed().as_nanos() as u64),
            phases: self.parts().into_iter().map(phase).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lap, Stopwatch};
    use std::time::Duration;

    // promise: 5.17
    #[test]
    fn parts_add_up_to_the_whole_whoever_measured_them() {
        let mut watch = Stopwatch::start();
        let at = |ms| watch.begun + Duration::from_millis(ms);
        let laps = [("a", 2), ("b", 5), ("late", 4), ("c", 9)];
        let laps = laps.map(|(what, ms)| Lap {
            what,
            until: at(ms),
        });
        watch.extend(laps);
        let parts = watch.parts();
        let sum: Duration = parts.iter().map(|(_, took)| *took).sum();
        assert_eq!(sum, Duration::from_millis(9));
        assert_eq!(parts[2], ("late", Duration::ZERO));
    }

    #[test]
    fn the_laps_of_another_go_on_from_the_own() {
        let mut watch = Stopwatch::start();
        watch.lap("own");
        let mut other = Stopwatch::start();
        other.lap("other");
        watch.absorb(other);
        let names: Vec<_> = watch.parts().into_iter().map(|(what, _)| what).collect();
        assert_eq!(names, ["own", "other"]);
        assert!(watch.until("own") <= watch.until("other"));
        assert_eq!(watch.until("none"), None);
    }
}
