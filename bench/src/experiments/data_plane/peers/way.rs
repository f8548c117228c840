//! A set-up that carries frames from one end to the other, and its results.

use anyhow::Context;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Frames that arrived.
    pub frames: u64,
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU time of the forwarders.
    pub forwarding_seconds: f64,
    /// CPU time of the sender and the receiver.
    pub traffic_seconds: f64,
}

/// A set-up that is ready for use; it uses no CPU time while it is not measured.
pub trait Way {
    /// Returns the conditions: cores, batch, and how CPU time is measured.
    fn conditions(&self) -> String;

    /// Sends frames of `len` bytes for `seconds`.
    fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<Round>;

    /// Returns the mean time in microseconds of a single frame of `len` bytes, if the sender can wait for it; from runs
    /// of `seconds`.
    fn alone_us(&mut self, _len: usize, _seconds: f64) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }

    /// Returns true if the forwarder uses a whole core also without traffic.
    fn polls(&self) -> bool {
        false
    }

    /// Prepares for traffic that does not come for `seconds`.
    fn idle_begin(&mut self, seconds: f64) -> anyhow::Result<()>;

    /// Returns the CPU time of the forwarders since `idle_begin`, in seconds.
    fn idle_end(&mut self) -> anyhow::Result<f64>;
}

/// A way of a peer.
pub struct Contender {
    pub peer: &'static str,
    pub way: Box<dyn Way>,
}

impl Contender {
    /// Sends frames of `len` bytes for so many seconds; see [`Round::values`].
    pub fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<[f64; 5]> {
        let round = self.way.round(len, seconds);
        let round = round.with_context(|| format!("{}, {}", self.peer, self.way.conditions()))?;
        Ok(round.values())
    }
}

impl Round {
    /// Returns Mpps; frames per second of CPU time of what forwards, and the same with the CPU time of what sends and
    /// receives, too; the cores that what forwards has used, and the others.
    pub fn values(&self) -> [f64; 5] {
        let frames = self.frames as f64;
        // Less than the clock's tick is not known.
        let per = |seconds: f64| match seconds > 0.0 {
            true => frames / seconds,
            false => f64::NAN,
        };
        [
            frames / self.seconds / 1e6,
            per(self.forwarding_seconds),
            per(self.forwarding_seconds + self.traffic_seconds),
            self.forwarding_seconds / self.seconds,
            self.traffic_seconds / self.seconds,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::Round;

    #[test]
    fn rates_are_by_the_clock_and_by_cpu_time() {
        let mut round = Round {
            frames: 3_000_000,
            seconds: 2.0,
            forwarding_seconds: 0.5,
            traffic_seconds: 1.0,
        };
        assert_eq!(round.values(), [1.5, 6e6, 2e6, 0.25, 0.5]);
        round.forwarding_seconds = 0.0;
        assert!(round.values()[1].is_nan());
    }
}
