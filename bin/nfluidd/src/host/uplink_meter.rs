//! What the kernel does for NFs at uplinks and charges to somebody else: measured per uplink, and charged back to those who
//! got the frames.

use super::Host;
use nfluid_api::types::UplinkStats;
use nfluid_control::model::{PortRef, UplinkKind};
use nfluid_control::wiring::Destination;
use nfluid_netdev::{ProgramTime, TimeKeeping, program_time};
use nfluid_uplink::program_of;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the kernel measures, at least, and how long it then does not: a tenth of the time, as measuring costs some
/// 20 ns a run.
const WINDOW: Duration = Duration::from_millis(150);
const PAUSE: Duration = Duration::from_millis(1500);
/// Frames within a window from which on their mean says something.
const FRAMES_LEAST: u64 = 32;
/// What a new figure counts in the mean.
const NEW: f64 = 0.3;

/// The measuring of all uplinks.
#[derive(Default)]
pub struct UplinkMeter {
    window: Option<Window>,
    ended: Option<Instant>,
    /// Whether the kernel refused once, which is told once.
    refused: bool,
    uplinks: BTreeMap<String, Metered>,
    /// What was spent for each instance, in nanoseconds.
    instances: BTreeMap<String, f64>,
}

/// While the kernel measures.
struct Window {
    since: Instant,
    before: BTreeMap<String, (u32, ProgramTime)>,
    /// Measures until it is dropped.
    _time_keeping: TimeKeeping,
}

/// An uplink, or an instance as a receiver.
#[derive(Default)]
struct Metered {
    frame_ns: Option<f64>,
    /// Of the whole time, in nanoseconds.
    spent: f64,
    /// Frames that came in, when last looked at.
    frames: Option<u64>,
    /// Frames that were delivered to ports behind it, when last looked at.
    delivered: BTreeMap<PortRef, u64>,
}

impl UplinkMeter {
    /// What is known of an uplink.
    fn stats(&self, name: &str) -> Option<UplinkStats> {
        let metered = self.uplinks.get(name)?;
        Some(UplinkStats {
            name: name.to_owned(),
            receive_ns: metered.spent as u64,
            frame_ns: metered.frame_ns,
        })
    }

    /// What was spent at uplinks for an instance, in nanoseconds.
    pub fn spent_for(&self, instance: &str) -> Option<u64> {
        self.instances.get(instance).map(|ns| *ns as u64)
    }
}

/// How much a counter has grown since it was looked at; one that is smaller is another port's.
fn growth(seen: Option<u64>, now: u64) -> u64 {
    seen.map_or(0, |seen| now.saturating_sub(seen))
}

/// Divides what was spent in proportion to frames; nothing if there were none.
fn divide(spent: f64, frames: &[(String, u64)]) -> Vec<(String, f64)> {
    let all: u64 = frames.iter().map(|(_, frames)| frames).sum();
    let part = |frames: u64| spent * frames as f64 / all.max(1) as f64;
    let some = frames.iter().filter(|(_, frames)| *frames > 0);
    some.map(|(name, frames)| (name.clone(), part(*frames)))
        .collect()
}

impl Host {
    /// Opens and closes windows, and adds up. Called a few times a second.
    pub(super) fn meter_uplinks(&mut self) {
        let mut kinds = self.uplinks.values().map(|uplink| uplink.spec.kind);
        if !kinds.any(|kind| kind == UplinkKind::Xdp) {
            self.uplink_meter = UplinkMeter::default();
            return;
        }
        let meter = &mut self.uplink_meter;
        meter
            .uplinks
            .retain(|name, _| self.uplinks.contains_key(name));
        meter
            .instances
            .retain(|name, _| self.instances.contains(name));
        self.add_up();
        let is_over = |window: &Window| window.since.elapsed() >= WINDOW;
        if self.uplink_meter.window.as_ref().is_some_and(is_over) {
            self.close_window();
        } else if self.uplink_meter.window.is_none()
            && self
                .uplink_meter
                .ended
                .is_none_or(|ended| ended.elapsed() >= PAUSE)
        {
            self.open_window();
        }
    }

    /// Number and measured time of each uplink's program.
    fn program_times(&self) -> BTreeMap<String, (u32, ProgramTime)> {
        let directory = self.settings.paths.uplinks();
        let xdp = self
            .uplinks
            .iter()
            .filter(|(_, uplink)| uplink.spec.kind == UplinkKind::Xdp);
        xdp.filter_map(|(name, _)| {
            let id = program_of(&directory, name).ok()??;
            Some((name.clone(), (id, program_time(id)?)))
        })
        .collect()
    }

    fn open_window(&mut self) {
        let before = self.program_times();
        match TimeKeeping::begin() {
            Ok(time_keeping) => {
                self.uplink_meter.window = Some(Window {
                    since: Instant::now(),
                    before,
                    _time_keeping: time_keeping,
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut self.uplink_meter.refused, true) {
                    tracing::warn!(%error, "the cost of receiving at uplinks is not measured");
                }
                self.uplink_meter.ended = Some(Instant::now());
            }
        }
    }

    fn close_window(&mut self) {
        let after = self.program_times();
        let Some(window) = self.uplink_meter.window.take() else {
            return;
        };
        self.uplink_meter.ended = Some(Instant::now());
        for (name, (id, now)) in after {
            let Some((_, before)) = window.before.get(&name).filter(|(old, _)| *old == id) else {
                continue;
            };
            if let Some(ns) = now.since(*before).ns_per_run(FRAMES_LEAST) {
                let metered = self.uplink_meter.uplinks.entry(name).or_default();
                let mean = metered.frame_ns.get_or_insert(ns);
                *mean += NEW * (ns - *mean);
            }
        }
    }

    /// Charges what came in since the last look to those who got it.
    fn add_up(&mut self) {
        let mut meter = std::mem::take(&mut self.uplink_meter);
        for (name, uplink) in &self.uplinks {
            if uplink.spec.kind != UplinkKind::Xdp {
                continue;
            }
            let port = PortRef::Uplink(name.clone());
            let counters = self.counters_of(&port);
            let frames = counters.tx_packets + counters.dropped();
            let metered = meter.uplinks.entry(name.clone()).or_default();
            let came = growth(metered.frames.replace(frames), frames);
            let mut delivered = Vec::new();
            for receiver in self.receivers_behind(&port) {
                let now = self.counters_of(&receiver).rx_packets;
                let seen = metered.delivered.insert(receiver.clone(), now);
                if let Some(owner) = receiver.owner() {
                    delivered.push((owner.to_owned(), growth(seen, now)));
                }
            }
            let spent = came as f64 * metered.frame_ns.unwrap_or(0.0);
            metered.spent += spent;
            for (instance, part) in divide(spent, &delivered) {
                *meter.instances.entry(instance).or_default() += part;
            }
        }
        self.uplink_meter = meter;
    }

    /// The ports to which an uplink's frames go. On a switch it is known how many a port got, not from whom.
    fn receivers_behind(&self, port: &PortRef) -> Vec<PortRef> {
        let Some(to) = self.wires.get(port) else {
            return Vec::new();
        };
        match to.switch() {
            Some(switch) => {
                let members = self.wires.on_switch(switch);
                members.filter(|member| *member != port).cloned().collect()
            }
            None => Destination::targets(to).cloned().collect(),
        }
    }

    /// What the uplinks cost.
    pub(super) fn uplink_stats(&self) -> Vec<UplinkStats> {
        let names = self.uplinks.keys();
        names
            .filter_map(|name| self.uplink_meter.stats(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{divide, growth};

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
}
