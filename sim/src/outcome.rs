//! Outcome of a simulation.

use crate::network::station::Counts;

/// Counts from the end of the warm-up on.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// For how long, nanoseconds.
    pub measured_ns: u64,
    /// Packets that arrived for the first time, of each subflow of each connection.
    pub delivered: Vec<Vec<u64>>,
    /// Of each class of each station.
    pub classes: Vec<Vec<Counts>>,
    /// Queue delay of each station.
    pub delays: Vec<Delay>,
    /// From the very beginning.
    pub books: Books,
    /// Moments, also from the very beginning; empty unless the plan asks for them.
    pub trace: Vec<Moment>,
}

/// Where every packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// Left a sender, repetitions too.
    pub sent: u64,
    /// Arrived for the first time.
    pub delivered: u64,
    /// Arrived again.
    pub duplicates: u64,
    /// Dropped at a station.
    pub dropped: u64,
    /// Waiting at a station, or being served.
    pub held: u64,
    /// Between stations.
    pub travelling: u64,
}

impl Books {
    /// Packets whose fate is known.
    pub fn accounted(&self) -> u64 {
        self.delivered + self.duplicates + self.dropped + self.held + self.travelling
    }
}

/// The time that what waits at a station is going to take, at regular moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// In buckets of [`BUCKET_NS`]; the last also has what is beyond.
    buckets: Vec<u64>,
    sum_ns: u64,
    moments: u64,
}

const BUCKET_NS: u64 = 50_000;
const BUCKETS_MAX: usize = 20_000;

impl Delay {
    /// Sets the time to `ns`.
    pub(crate) fn note(&mut self, ns: u64) {
        let bucket = usize::try_from(ns / BUCKET_NS).map_or(BUCKETS_MAX, |b| b.min(BUCKETS_MAX));
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.sum_ns += ns;
        self.moments += 1;
    }

    /// The mean, milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.sum_ns as f64 / self.moments.max(1) as f64 / 1e6
    }

    /// The 99th percentile, milliseconds, within 0.05 ms.
    pub fn p99_ms(&self) -> f64 {
        let wanted = self.moments - self.moments / 100;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        bucket.unwrap_or(0) as f64 * BUCKET_NS as f64 / 1e6
    }
}

/// A moment of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// When, nanoseconds.
    pub at_ns: u64,
    /// Window and packets delivered so far, of each subflow.
    pub flows: Vec<(f64, u64)>,
}

impl Outcome {
    /// Returns the counts since `before`; books stay as they are.
    pub(crate) fn since(mut self, before: &Outcome) -> Outcome {
        self.measured_ns -= before.measured_ns;
        for (own, old) in self
            .delivered
            .iter_mut()
            .flatten()
            .zip(before.delivered.iter().flatten())
        {
            *own -= old;
        }
        for (own, old) in self
            .classes
            .iter_mut()
            .flatten()
            .zip(before.classes.iter().flatten())
        {
            *own = own.since(old);
        }
        self
    }

    /// Packets per second that a connection delivered, over all its subflows.
    pub fn rate(&self, connection: usize) -> f64 {
        let delivered: u64 = self.delivered[connection].iter().sum();
        self.per_second(delivered)
    }

    /// Packets per second that one subflow of a connection delivered.
    pub fn subflow_rate(&self, connection: usize, subflow: usize) -> f64 {
        self.per_second(self.delivered[connection][subflow])
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / (self.measured_ns as f64 / 1e9)
    }

    /// The part of the time that a station spent on packets of a class.
    pub fn used(&self, station: usize, class: usize) -> f64 {
        self.classes[station][class].used_ns as f64 / self.measured_ns as f64
    }

    /// The part of the time that a station spent on packets.
    pub fn utilisation(&self, station: usize) -> f64 {
        (0..self.classes[station].len())
            .map(|class| self.used(station, class))
            .sum()
    }

    /// The part of a station's busy time that a class got, in percent.
    pub fn share_percent(&self, station: usize, class: usize) -> f64 {
        100.0 * self.used(station, class) / self.utilisation(station).max(f64::MIN_POSITIVE)
    }
}
