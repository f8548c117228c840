//! The repetitions of a measurement.

use super::core_traffic::Measured;
use crate::report::gbps;
use nfluid_figures::statistics::Samples;

/// Repetitions of one measurement.
#[derive(Default)]
pub struct Repetitions {
    pub mpps: Samples,
    pub gbps: Samples,
    pub mean_ms: Samples,
    pub p99_ms: Samples,
    pub nf_percent: Samples,
    pub traffic_percent: Samples,
    pub lost: u64,
}

/// Results for a number of NFs and a length.
pub struct Row {
    pub nfs: u32,
    pub len: usize,
    /// At full rate.
    pub full: Repetitions,
    /// At [`super::MODERATE`] load.
    pub half: Repetitions,
    pub megabytes: f64,
}

impl Repetitions {
    pub fn of(measured: &[Measured], len: usize) -> Self {
        let mut repetitions = Repetitions::default();
        for one in measured {
            repetitions.mpps.push(one.mpps);
            repetitions.gbps.push(gbps(one.mpps, len));
            repetitions.mean_ms.push(one.mean_ms);
            repetitions.p99_ms.push(one.p99_ms);
            repetitions.nf_percent.push(one.nf_percent);
            repetitions.traffic_percent.push(one.traffic_percent);
            repetitions.lost += one.lost;
        }
        repetitions
    }
}
