//! A set-up that carries frames from one end to the other, and its results.

use nfluid_figures::statistics::Samples;

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

/// A set-up of a peer, with its results.
pub struct Contender {
    pub peer: &'static str,
    pub way: Box<dyn Way>,
    pub measured: Vec<Measured>,
    /// CPU time without traffic in percent of a core.
    pub idle_percent: Samples,
    /// Times of a single frame, in microseconds.
    pub alone_us: Samples,
}

/// Results for frames of one length.
pub struct Measured {
    pub len: usize,
    pub mpps: Samples,
    /// Frames per second of CPU time of the forwarders.
    pub per_cpu_second: Samples,
    /// The same with the CPU time of the sender and the receiver added.
    pub per_cpu_second_all: Samples,
    pub forwarding_cores: Samples,
    pub traffic_cores: Samples,
}

impl Contender {
    pub fn new(peer: &'static str, way: Box<dyn Way>, sizes: &[usize]) -> Self {
        let measured = |len: &usize| Measured {
            len: *len,
            mpps: Samples::default(),
            per_cpu_second: Samples::default(),
            per_cpu_second_all: Samples::default(),
            forwarding_cores: Samples::default(),
            traffic_cores: Samples::default(),
        };
        Contender {
            peer,
            way,
            measured: sizes.iter().map(measured).collect(),
            idle_percent: Samples::default(),
            alone_us: Samples::default(),
        }
    }

    pub fn of(&self, len: usize) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.len == len)
    }

    pub fn add(&mut self, len: usize, round: &Round) {
        let of_len = |measured: &&mut Measured| measured.len == len;
        let Some(measured) = self.measured.iter_mut().find(of_len) else {
            return;
        };
        let frames = round.frames as f64;
        measured.mpps.push(frames / round.seconds / 1e6);
        let cores = |seconds: f64| seconds / round.seconds;
        measured
            .forwarding_cores
            .push(cores(round.forwarding_seconds));
        measured.traffic_cores.push(cores(round.traffic_seconds));
        // CPU time below the clock's tick is unknown.
        if round.forwarding_seconds > 0.0 {
            let per_cpu_second = frames / round.forwarding_seconds;
            measured.per_cpu_second.push(per_cpu_second);
        }
        let all_seconds = round.forwarding_seconds + round.traffic_seconds;
        if all_seconds > 0.0 {
            measured.per_cpu_second_all.push(frames / all_seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contender, Round, Way};

    struct Nothing;

    impl Way for Nothing {
        fn conditions(&self) -> String {
            String::new()
        }

        fn round(&mut self, _: usize, _: f64) -> anyhow::Result<Round> {
            anyhow::bail!("it has no ends")
        }

        fn idle_begin(&mut self, _: f64) -> anyhow::Result<()> {
            Ok(())
        }

        fn idle_end(&mut self) -> anyhow::Result<f64> {
            Ok(0.0)
        }
    }

    #[test]
    fn rates_are_by_the_clock_and_by_cpu_time() {
        let mut contender = Contender::new("nothing", Box::new(Nothing), &[64, 1514]);
        let round = Round {
            frames: 3_000_000,
            seconds: 2.0,
            forwarding_seconds: 0.5,
            traffic_seconds: 1.0,
        };
        contender.add(1514, &round);
        let measured = contender.of(1514).expect("it was asked for");
        assert_eq!(measured.mpps.median(), 1.5);
        assert_eq!(measured.per_cpu_second.median(), 6e6);
        assert_eq!(measured.per_cpu_second_all.median(), 2e6);
        assert_eq!(measured.forwarding_cores.median(), 0.25);
        assert!(
            contender
                .of(64)
                .is_some_and(|other| other.mpps.values().is_empty())
        );
    }
}
