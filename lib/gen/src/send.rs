//! The generator: prepared frames, at the rate of a schedule, into a port.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{Clock, NS_PER_S};
use crate::io::{BATCH_MAX, IoError, Sender};
use crate::pace::{Pacer, Turn};
use crate::payload::Kind;
use crate::report::{SendLine, SendReport, Tally};
use crate::script::Script;
use crate::spec::{Rate, SpecError, TrafficSpec};
use crate::template::Templates;

/// Interval of checks for a stop while waiting, in nanoseconds.
const STOP_CHECK_NS: u64 = 20_000_000;
/// Pause after a port that was full, in nanoseconds.
const FULL_PAUSE_NS: u64 = 1_000;

/// The frames to send.
#[derive(Clone, Debug, Default)]
pub struct SendJob {
    /// The frames, and the rate if there is no script.
    pub traffic: TrafficSpec,
    /// The rate in each second; sending ends with it.
    pub script: Option<Script>,
}

/// The reason why sending failed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The traffic cannot be made as described.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The port failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Writes a generator's frames into a port, burst by burst, without a schedule. For benchmarks that keep their own
/// time; all other callers use [`send`].
#[derive(Debug)]
pub struct Generator {
    templates: Templates,
    prefilled: bool,
}

impl Generator {
    /// Prepares the frames of `traffic` and, where the content is constant and the port keeps its
    /// slots' contents, the slots of `port`.
    ///
    /// # Errors
    /// As for [`Templates::new`].
    pub fn new(traffic: &TrafficSpec, port: &mut impl Sender) -> Result<Self, SpecError> {
        let mut templates = Templates::new(traffic, Kind::Data)?;
        let prefilled = templates.can_prefill() && port.prefill(|slot| templates.prefill(slot));
        Ok(Generator {
            templates,
            prefilled,
        })
    }

    /// Hands up to `count` frames, stamped with `now_ns`, to `port` and flushes it. Returns how
    /// many frames and bytes it took.
    ///
    /// # Errors
    /// The errors of the port.
    #[inline]
    pub fn burst(
        &mut self,
        port: &mut impl Sender,
        count: usize,
        now_ns: u64,
    ) -> Result<(usize, u64), IoError> {
        let mut bytes = 0;
        let templates = &mut self.templates;
        let taken = if self.prefilled {
            port.send(count, |_, _| {
                let length = templates.next_len();
                bytes += length as u64;
                length
            })?
        } else {
            port.send(count, |_, slot| {
                let length = templates.write(slot, now_ns);
                bytes += length as u64;
                length
            })?
        };
        port.flush()?;
        Ok((taken, bytes))
    }

    /// The frames.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }
}

/// Sends `job` into `port` until it is done or `stop` is set, and calls `observe` once a second.
///
/// # Errors
/// See [`SendError`]. A full port is no error: frames that cannot be sent in time are missed, and the report counts
/// them.
pub fn send(
    job: &SendJob,
    port: &mut impl Sender,
    clock: &impl Clock,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&SendLine),
) -> Result<SendReport, SendError> {
    let dropped_before = port.dropped();
    let mut generator = Generator::new(&job.traffic, port)?;
    let mean_size = job.traffic.sizes.mean();
    let mut rates = job.script.as_ref().map(Script::rates);
    let mut rate = match rates.as_mut() {
        Some(rates) => rates.next().unwrap_or(Rate::Max),
        None => job.traffic.rate,
    };
    let start_ns = clock.now_ns();
    let end_ns = end_ns(job, start_ns);
    let burst = job.traffic.burst.clamp(1, BATCH_MAX);
    let mut pacer = Pacer::new(rate.packets_per_second(mean_size), burst, start_ns);
    let mut tally = Tally::new(start_ns);
    let (mut missed_before, mut port_full, mut limited) = (0, 0, true);
    loop {
        let now_ns = clock.now_ns();
        limited &= rate != Rate::Max;
        while now_ns >= tally.line_end_ns() && tally.line_end_ns() <= end_ns {
            let line_end_ns = tally.line_end_ns();
            let (second, sent) = tally.end_line();
            let missed = pacer.missed() - missed_before;
            missed_before = pacer.missed();
            let asked_pps = rate.packets_per_second(mean_size);
            observe(&SendLine {
                second,
                sent,
                asked_pps,
                missed,
            });
            if let Some(next) = rates.as_mut().and_then(Iterator::next) {
                rate = next;
                pacer.set_rate(rate.packets_per_second(mean_size), line_end_ns);
            }
        }
        let left = job
            .traffic
            .count
            .map_or(u64::MAX, |count| count - tally.packets());
        if now_ns >= end_ns || left == 0 || stop.load(Ordering::Relaxed) {
            break;
        }
        match pacer.turn(now_ns) {
            Turn::Wait(ns) => {
                let until_ns = tally.line_end_ns().min(end_ns) - now_ns;
                clock.pause(ns.min(until_ns).min(STOP_CHECK_NS));
            }
            Turn::Send(due) => {
                let count = due.min(left) as usize;
                let (taken, bytes) = generator.burst(port, count, now_ns)?;
                pacer.sent(taken as u64);
                tally.add(taken as u64, bytes);
                if taken == 0 {
                    port_full += 1;
                    clock.pause(FULL_PAUSE_NS);
                }
            }
        }
    }
    let now_ns = clock.now_ns();
    if now_ns >= end_ns {
        // The last frames were still being gathered into a burst.
        let owed = pacer.owed(end_ns).min(burst as u64) as usize;
        let (taken, bytes) = generator.burst(port, owed, now_ns)?;
        pacer.sent(taken as u64);
        tally.add(taken as u64, bytes);
        pacer.give_up(end_ns);
    }
    Ok(SendReport {
        sent: tally.total(clock.now_ns().min(end_ns)),
        asked_packets: limited.then(|| pacer.sent_total() + pacer.missed()),
        missed: pacer.missed(),
        port_full,
        dropped: port.dropped() - dropped_before,
    })
}

/// Returns the end of the job by the clock; `u64::MAX` without an end.
fn end_ns(job: &SendJob, start_ns: u64) -> u64 {
    let script_ns = job
        .script
        .as_ref()
        .map(|script| script.seconds().saturating_mul(NS_PER_S));
    let duration_ns = job.traffic.duration.map(|duration| duration.as_ns());
    [script_ns, duration_ns]
        .into_iter()
        .flatten()
        .min()
        .map_or(u64::MAX, |ns| start_ns.saturating_add(ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::io::Receiver;
    use crate::memory::{Faults, queue};
    use crate::spec::Content;

    fn job(rate: &str, duration: &str) -> SendJob {
        let traffic = TrafficSpec {
            rate: rate.parse().unwrap(),
            duration: Some(duration.parse().unwrap()),
            ..TrafficSpec::default()
        };
        SendJob {
            traffic,
            script: None,
        }
    }

    /// Sends into a queue of `capacity` frames on a manual clock.
    fn run(job: &SendJob, capacity: usize) -> (SendReport, Vec<SendLine>, u64) {
        let (mut sender, mut receiver) = queue(capacity, Faults::default(), 1);
        let mut lines = Vec::new();
        let (clock, stop) = (ManualClock::default(), AtomicBool::new(false));
        let report = send(job, &mut sender, &clock, &stop, &mut |line| {
            lines.push(*line)
        })
        .unwrap();
        let arrived = receiver.receive(usize::MAX, |_| {}).unwrap() as u64;
        (report, lines, arrived)
    }

    #[test]
    fn the_rate_is_met_and_reported_each_second() {
        let (report, lines, arrived) = run(&job("10kpps", "3s"), usize::MAX);
        assert_eq!(report.sent.packets, arrived);
        assert!(arrived.abs_diff(30_000) <= 1, "{arrived}");
        assert_eq!(lines.len(), 3);
        assert!(
            lines
                .iter()
                .all(|line| line.sent.packets.abs_diff(10_000) <= 1)
        );
        assert_eq!((report.missed, report.asked_packets), (0, Some(arrived)));
    }

    #[test]
    fn a_rate_in_bits_holds_for_a_mix() {
        let mut job = job("80Mbps", "2s");
        job.traffic.sizes = "imix".parse().unwrap();
        let (report, ..) = run(&job, usize::MAX);
        assert!(
            (report.sent.bps_l2 / 80e6 - 1.0).abs() < 1e-3,
            "{}",
            report.sent.bps_l2
        );
    }

    #[test]
    fn a_count_is_met_exactly() {
        let mut job = job("1Mpps", "10s");
        job.traffic.count = Some(1001);
        assert_eq!(run(&job, usize::MAX).2, 1001);
    }

    #[test]
    fn what_the_port_does_not_take_is_missed_not_hidden() {
        let (report, _, arrived) = run(&job("10kpps", "1s"), 4000);
        assert_eq!((arrived, report.sent.packets), (4000, 4000));
        assert!(report.port_full > 0);
        assert_eq!(report.missed, 6000);
    }

    // promise: 12.4
    #[test]
    fn a_script_is_followed_second_by_second_and_ends() {
        let script = Script::read(&b"1kpps\n0\n2 3kpps\n"[..], "test").unwrap();
        let job = SendJob {
            script: Some(script),
            ..job("max", "100s")
        };
        let (report, lines, _) = run(&job, usize::MAX);
        let sent: Vec<_> = lines.iter().map(|line| line.sent.packets).collect();
        for (sent, wanted) in sent.iter().zip([1000, 0, 3000, 3000]) {
            assert!(sent.abs_diff(wanted) <= 1, "{sent} for {wanted}");
        }
        assert_eq!(sent.len(), 4);
        assert!((report.sent.seconds - 4.0).abs() < 1e-3);
    }

    #[test]
    fn a_set_stop_ends_it_at_once() {
        let (mut sender, _receiver) = queue(10, Faults::default(), 1);
        let (clock, stop) = (ManualClock::default(), AtomicBool::new(true));
        let job = SendJob::default();
        let report = send(&job, &mut sender, &clock, &stop, &mut |_| {}).unwrap();
        assert_eq!(report.sent.packets, 0);
    }

    #[test]
    fn constant_content_needs_no_slots_that_keep_it() {
        let mut job = job("1kpps", "1s");
        job.traffic.content = Content::Constant;
        let (report, _, arrived) = run(&job, usize::MAX);
        assert_eq!(report.sent.packets, arrived);
    }
}
