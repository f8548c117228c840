//! What has been measured.

use super::home::Measured;
use crate::report::gbps;
use nfluid_figures::statistics::Samples;

/// Repetitions of one measurement.
#[derive(Default)]
pub struct Cell {
    pub mpps: Samples,
    pub gbps: Samples,
    pub mean_ms: Samples,
    pub p99_ms: Samples,
    pub nf_percent: Samples,
    pub traffic_percent: Samples,
    pub lost: u64,
}

/// A number of NFs and a length.
pub struct Row {
    pub nfs: u32,
    pub len: usize,
    /// As much as goes.
    pub full: Cell,
    /// At [`super::MODERATE`] load.
    pub half: Cell,
    pub megabytes: f64,
}

impl Cell {
    pub fn of(measured: &[Measured], len: usize) -> Self {
        let mut cell = Cell::default();
        for one in measured {
            cell.mpps.push(one.mpps);
            cell.gbps.push(gbps(one.mpps, len));
            cell.mean_ms.push(one.mean_ms);
            cell.p99_ms.push(one.p99_ms);
            cell.nf_percent.push(one.nf_percent);
            cell.traffic_percent.push(one.traffic_percent);
            cell.lost += one.lost;
        }
        cell
    }
}
