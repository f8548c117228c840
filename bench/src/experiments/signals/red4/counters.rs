//! The daemon's counters of NFs, at one moment and as differences.

use anyhow::Context;
use nfluid_testbed::platform::Platform;
use serde_json::Value;

/// An NF's counters, and those of its entry port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub cpu_ns: u64,
    pub frames: u64,
    pub bytes: u64,
    /// Frames that got an ECN mark at the NF's ring.
    pub marked: u64,
    /// Frames for the NF that were dropped because its ring was full or by a signal, or refused because of a later
    /// ring.
    pub ring_full: u64,
    pub signalled: u64,
    pub refused: u64,
}

/// Counters of several NFs at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    pub time_ns: u64,
    /// The counters in the order of the requested names.
    pub of: Vec<Counters>,
}

impl Moment {
    /// Reads the daemon's counters; `names` are instances whose entry port is called `in`.
    ///
    /// # Errors
    /// `nfluid` fails, or an instance does not exist.
    pub fn now(platform: &Platform, names: &[&str]) -> anyhow::Result<Self> {
        let stats = platform.api()?.get("/v1/stats")?;
        let of = names.iter().map(|name| Counters::of(&stats, name));
        Ok(Moment {
            time_ns: stats["time_ns"].as_u64().context("when that was")?,
            of: of.collect::<anyhow::Result<_>>()?,
        })
    }

    /// Returns the increase since `before`, and the nanoseconds in between.
    pub fn since(&self, before: &Moment) -> Moment {
        let pairs = self.of.iter().zip(&before.of);
        Moment {
            time_ns: self.time_ns.saturating_sub(before.time_ns),
            of: pairs.map(|(now, before)| now.since(before)).collect(),
        }
    }

    /// Returns the CPU time of an NF in percent of a core; `self` is a difference of two moments.
    pub fn cpu_percent(&self, at: usize) -> f64 {
        self.per_ns(self.of[at].cpu_ns) * 100.0
    }

    /// Returns the rate that an NF received, in Mbit/s; `self` is a difference of two moments.
    pub fn mbps(&self, at: usize) -> f64 {
        self.per_ns(self.of[at].bytes) * 8e3
    }

    /// Returns the rate that an NF received, in frames per millisecond; `self` is a difference of two moments.
    pub fn kpps(&self, at: usize) -> f64 {
        self.per_ns(self.of[at].frames) * 1e6
    }

    fn per_ns(&self, count: u64) -> f64 {
        count as f64 / self.time_ns.max(1) as f64
    }
}

impl Counters {
    fn of(stats: &Value, name: &str) -> anyhow::Result<Self> {
        let instance = named(stats, "instances", name)?;
        let port = &named(stats, "ports", &format!("{name}.in"))?["counters"];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let drops = |reason: &str| number(&port["drops"][reason]);
        Ok(Counters {
            cpu_ns: number(&instance["cpu_ns"]),
            frames: number(&port["rx_packets"]),
            bytes: number(&port["rx_bytes"]),
            marked: number(&port["marked_packets"]),
            ring_full: drops("ring_full"),
            signalled: drops("congestion"),
            refused: drops("refused"),
        })
    }

    fn since(&self, before: &Counters) -> Self {
        Counters {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            frames: self.frames.saturating_sub(before.frames),
            bytes: self.bytes.saturating_sub(before.bytes),
            marked: self.marked.saturating_sub(before.marked),
            ring_full: self.ring_full.saturating_sub(before.ring_full),
            signalled: self.signalled.saturating_sub(before.signalled),
            refused: self.refused.saturating_sub(before.refused),
        }
    }

    /// Returns the number of frames sent to the NF.
    pub fn offered(&self) -> u64 {
        self.frames + self.lost()
    }

    /// Returns the number of frames to the NF that it did not receive.
    pub fn lost(&self) -> u64 {
        self.ring_full + self.signalled + self.refused
    }
}

/// Returns an object of a kind by its name.
///
/// # Errors
/// When no object has the name.
pub fn named<'a>(stats: &'a Value, kind: &str, name: &str) -> anyhow::Result<&'a Value> {
    let all = stats[kind].as_array().into_iter().flatten();
    let mut found = all.filter(|one| one["name"] == name);
    let one = found.next();
    one.with_context(|| format!("nfluid tells nothing of {name} among its {kind}"))
}
