//! Metrics of the platform's own threads.

use super::family::{Family, seconds};
use crate::types::{CongestionStats, IoStats};

pub(super) fn io(out: &mut String, stats: &IoStats) {
    let name = "nfluid_io_cpu_seconds_total";
    Family::new(out, name, "counter", "CPU time of all I/O threads.")
        .sample(&[], seconds(stats.cpu_ns));
    if let Some(ns) = stats.throttled_ns {
        let name = "nfluid_io_throttled_seconds_total";
        let help = "Time for which the I/O threads were throttled by their cap.";
        Family::new(out, name, "counter", help).sample(&[], seconds(ns));
    }
    let mut threads = Family::new(
        out,
        "nfluid_io_thread_cpu_seconds_total",
        "counter",
        "CPU time of an I/O thread; without an instance: a thread that all split instances share.",
    );
    for thread in &stats.threads {
        let labels = [
            ("thread", thread.name.as_str()),
            ("model", &thread.model),
            ("instance", thread.only_instance().unwrap_or_default()),
        ];
        threads.sample(&labels, seconds(thread.cpu_ns));
    }
}

pub(super) fn congestion(out: &mut String, stats: &CongestionStats) {
    let name = "nfluid_congestion_cpu_seconds_total";
    let help = "CPU time of the thread that measures costs and decides on marks.";
    Family::new(out, name, "counter", help).sample(&[], seconds(stats.cpu_ns));
    let mut cores = Family::new(
        out,
        "nfluid_core_mark_probability",
        "gauge",
        "Probability that a frame for the core's cheapest instance is marked, 0 to 1.",
    );
    for core in &stats.cores {
        cores.sample(&[("core", &core.core.to_string())], core.probability);
    }
}
