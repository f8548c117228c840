//! CPU time that the kernel spends on receiving at uplinks.
//!
//! The kernel charges the time of an XDP program to whichever process is interrupted. The meter measures that time per uplink,
//! and charges the time to the instances that received the frames.

use crate::Uplinks;
use nfluid_api::types::UplinkStats;
use nfluid_control::model::{PortRef, UplinkKind};
use nfluid_netdev::{ProgramTime, TimeKeeping, program_time};
use nfluid_uplink::program_of;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Shortest window in which the kernel measures. Measuring costs some 20 ns per run of the program, so the kernel
/// measures for a tenth of the time only.
const WINDOW: Duration = Duration::from_millis(150);
/// Pause between two windows.
const PAUSE: Duration = Duration::from_millis(1500);
/// A window with fewer frames than this is too short for a mean.
const FRAMES_MIN: u64 = 32;
/// Weight of a new window in the mean.
const NEW: f64 = 0.3;

/// The meter of all uplinks.
#[derive(Default)]
pub struct UplinkMeter {
    window: Option<Window>,
    ended: Option<Instant>,
    /// The kernel has refused to measure, which is logged once.
    refused: bool,
    uplinks: BTreeMap<String, Metered>,
    /// CPU time spent on receiving for each instance, in nanoseconds.
    instances: BTreeMap<String, f64>,
}

/// A time during which the kernel measures.
struct Window {
    since: Instant,
    before: BTreeMap<String, (u32, ProgramTime)>,
    /// Measures until it is dropped.
    _time_keeping: TimeKeeping,
}

/// An uplink whose receiving is measured.
#[derive(Default)]
struct Metered {
    /// Mean CPU time of a frame, in nanoseconds.
    frame_ns: Option<f64>,
    /// CPU time since the meter began, in nanoseconds.
    spent: f64,
    /// Frames that had come in at the last measurement.
    frames: Option<u64>,
    /// Frames that had been delivered to the ports behind the uplink at the last measurement.
    delivered: BTreeMap<PortRef, u64>,
}

impl UplinkMeter {
    /// Returns the cost of receiving at an uplink.
    fn stats(&self, name: &str) -> Option<UplinkStats> {
        let metered = self.uplinks.get(name)?;
        Some(UplinkStats {
            name: name.to_owned(),
            receive_ns: metered.spent as u64,
            frame_ns: metered.frame_ns,
        })
    }

    /// Charges the frames that came in at an uplink since the last measurement to the instances that received them.
    /// `frames` is the total of frames that came in; `delivered` is the total delivered to each port behind the
    /// uplink.
    fn charge(&mut self, name: &str, frames: u64, delivered: &[(PortRef, u64)]) {
        let metered = self.uplinks.entry(name.to_owned()).or_default();
        let came = growth(metered.frames.replace(frames), frames);
        let mut received = Vec::new();
        for (port, now) in delivered {
            let seen = metered.delivered.insert(port.clone(), *now);
            if let Some(owner) = port.owner() {
                received.push((owner.to_owned(), growth(seen, *now)));
            }
        }
        let spent = came as f64 * metered.frame_ns.unwrap_or(0.0);
        metered.spent += spent;
        for (instance, part) in divide(spent, &received) {
            *self.instances.entry(instance).or_default() += part;
        }
    }
}

/// Returns how much a counter has grown since the last measurement. A counter that is smaller than before belongs to
/// another port.
fn growth(seen: Option<u64>, now: u64) -> u64 {
    seen.map_or(0, |seen| now.saturating_sub(seen))
}

/// Divides CPU time in proportion to frames. Empty if there were no frames.
fn divide(spent: f64, frames: &[(String, u64)]) -> Vec<(String, f64)> {
    let all: u64 = frames.iter().map(|(_, frames)| frames).sum();
    let part = |frames: u64| spent * frames as f64 / all.max(1) as f64;
    let some = frames.iter().filter(|(_, frames)| *frames > 0);
    some.map(|(name, frames)| (name.clone(), part(*frames)))
        .collect()
}

impl Uplinks {
    /// Returns the uplinks whose receiving is measured: the kernel charges an XDP program to no instance.
    pub fn metered(&self) -> impl Iterator<Item = &str> {
        let all = self.running.iter();
        let xdp = all.filter(|(_, uplink)| uplink.spec.kind == UplinkKind::Xdp);
        xdp.map(|(name, _)| name.as_str())
    }

    /// Measures, and charges the time that was spent. To be called a few times a second. `delivered` has, for each
    /// metered uplink, the ports behind the uplink and the total of frames delivered to each. `is_there` tells which
    /// instances exist.
    pub fn measure(
        &mut self,
        delivered: &BTreeMap<String, Vec<(PortRef, u64)>>,
        is_there: impl Fn(&str) -> bool,
    ) {
        if self.metered().next().is_none() {
            self.meter = UplinkMeter::default();
            return;
        }
        let meter = &mut self.meter;
        let running = &self.running;
        meter.uplinks.retain(|name, _| running.contains_key(name));
        meter.instances.retain(|name, _| is_there(name));
        for (name, delivered) in delivered {
            if let Some(uplink) = running.get(name) {
                let counters = self.handles.switch.counters(uplink.port_id());
                let frames = counters.tx_frames + counters.dropped_total();
                meter.charge(name, frames, delivered);
            }
        }
        let is_over = |window: &Window| window.since.elapsed() >= WINDOW;
        if meter.window.as_ref().is_some_and(is_over) {
            self.close_window();
        } else if meter.window.is_none() && meter.ended.is_none_or(|ended| ended.elapsed() >= PAUSE)
        {
            self.open_window();
        }
    }

    /// Returns number and measured time of each uplink's program.
    fn program_times(&self) -> BTreeMap<String, (u32, ProgramTime)> {
        let directory = self.handles.paths.changes();
        self.metered()
            .filter_map(|name| {
                let id = program_of(&directory, name).ok()??;
                Some((name.to_owned(), (id, program_time(id)?)))
            })
            .collect()
    }

    fn open_window(&mut self) {
        let before = self.program_times();
        match TimeKeeping::begin() {
            Ok(time_keeping) => {
                self.meter.window = Some(Window {
                    since: Instant::now(),
                    before,
                    _time_keeping: time_keeping,
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut self.meter.refused, true) {
                    tracing::warn!(%error, "the cost of receiving at uplinks is not measured");
                }
                self.meter.ended = Some(Instant::now());
            }
        }
    }

    fn close_window(&mut self) {
        let after = self.program_times();
        let Some(window) = self.meter.window.take() else {
            return;
        };
        self.meter.ended = Some(Instant::now());
        for (name, (id, now)) in after {
            let Some((_, before)) = window.before.get(&name).filter(|(old, _)| *old == id) else {
                continue;
            };
            if let Some(ns) = now.since(*before).ns_per_run(FRAMES_MIN) {
                let metered = self.meter.uplinks.entry(name).or_default();
                let mean = metered.frame_ns.get_or_insert(ns);
                *mean += NEW * (ns - *mean);
            }
        }
    }

    /// Returns the cost of receiving at each uplink.
    pub fn costs(&self) -> Vec<UplinkStats> {
        let names = self.running.keys();
        names.filter_map(|name| self.meter.stats(name)).collect()
    }

    /// Returns the CPU time spent on receiving for an instance, in nanoseconds.
    pub fn spent_for(&self, instance: &str) -> Option<u64> {
        let spent = self.meter.instances.get(instance);
        spent.map(|ns| *ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Metered, UplinkMeter, divide, growth};
    use nfluid_control::model::PortRef;

    // promise: 4.12
    #[test]
    fn who_got_more_pays_more_and_all_is_paid() {
        let frames = [
            ("a".to_owned(), 30),
            ("b".to_owned(), 10),
            ("c".to_owned(), 0),
        ];
        let parts = divide(400.0, &frames);
        assert_eq!(parts, [("a".to_owned(), 300.0), ("b".to_owned(), 100.0)]);
        assert!(divide(400.0, &[]).is_empty());
    }

    #[test]
    fn the_first_look_and_another_port_count_nothing() {
        assert_eq!(growth(None, 1000), 0);
        assert_eq!(growth(Some(1000), 10), 0);
        assert_eq!(growth(Some(10), 1000), 990);
    }

    #[test]
    fn frames_since_the_last_look_are_charged_to_the_instances_that_received_them() {
        let mut meter = UplinkMeter::default();
        let measured = Metered {
            frame_ns: Some(100.0),
            ..Metered::default()
        };
        meter.uplinks.insert("wan".to_owned(), measured);
        let out = PortRef::Uplink("lan".to_owned());
        let delivered = |web: u64, db: u64| {
            let port = |name: &str| PortRef::instance(name, "in");
            [(port("web"), web), (port("db"), db), (out.clone(), 70)]
        };
        meter.charge("wan", 5000, &delivered(4000, 900));
        assert!(meter.instances.is_empty(), "before the first look");
        meter.charge("wan", 5040, &delivered(4030, 910));
        let spent = |name: &str| meter.instances.get(name).copied();
        assert_eq!((spent("web"), spent("db")), (Some(3000.0), Some(1000.0)));
        let stats = meter.stats("wan").expect("is measured");
        assert_eq!(stats.receive_ns, 4000);
    }
}
