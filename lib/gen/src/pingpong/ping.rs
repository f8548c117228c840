//! The probing side.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PingError;
use crate::clock::{Clock, NS_PER_S};
use crate::io::{BATCH_MAX, IoError, Receiver, Sender};
use crate::latency::{Latency, LatencySummary};
use crate::payload::{Kind, PayloadError};
use crate::receive::stream_header;
use crate::spec::{Content, FlowSpec, Sizes, Timespan, TrafficSpec};
use crate::template::Templates;

/// Probes that may be unanswered at a time; with more, the oldest is given up.
const OUTSTANDING_MAX: usize = 65_536;
/// Longest wait before a stop is looked for, in nanoseconds.
const WAIT_MAX_NS: u64 = 20_000_000;

/// The requests, and their rate.
#[derive(Clone, Debug)]
pub struct PingJob {
    /// Frame size in bytes; of a mix, in turn.
    pub sizes: Sizes,
    /// Headers of the probes; only the first flow is used.
    pub flow: FlowSpec,
    /// Time from probe to probe; none for ping-pong.
    pub interval: Option<Timespan>,
    /// A probe unanswered for this long is lost.
    pub timeout: Timespan,
    /// End after this many probes.
    pub count: Option<u64>,
    /// End after this long.
    pub duration: Option<Timespan>,
    /// Never block: look for answers without a pause, for the lowest times at the cost of a core.
    pub busy: bool,
}

impl Default for PingJob {
    fn default() -> Self {
        PingJob {
            sizes: Sizes::fixed(64).expect("64 is a frame size"),
            flow: FlowSpec::default(),
            interval: None,
            timeout: Timespan(Duration::from_secs(1)),
            count: None,
            duration: None,
            busy: false,
        }
    }
}

/// A second of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingLine {
    /// Seconds since the start.
    pub second: u64,
    /// Probes sent.
    pub sent: u64,
    /// Probes answered.
    pub answered: u64,
    /// Probes given up.
    pub lost: u64,
    /// Round-trip times.
    pub rtt: Option<LatencySummary>,
}

impl fmt::Display for PingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PingLine {
            second,
            sent,
            answered,
            lost,
            ..
        } = self;
        write!(
            f,
            "{second:>4} s  sent {sent}, answered {answered}, lost {lost}"
        )?;
        match &self.rtt {
            Some(rtt) => write!(f, "; {rtt}"),
            None => Ok(()),
        }
    }
}

/// The replies in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingReport {
    /// Probes sent.
    pub sent: u64,
    /// Probes answered in time.
    pub answered: u64,
    /// Probes given up.
    pub lost: u64,
    /// Probes still on their way when the ping was stopped.
    pub unanswered: u64,
    /// Answers to probes that were given up already.
    pub late: u64,
    /// Second and further answers.
    pub duplicates: u64,
    /// Answers changed on the way.
    pub corrupt: u64,
    /// Round-trip times.
    pub rtt: Option<LatencySummary>,
}

impl PingReport {
    /// Share of probes lost, 0 to 1.
    pub fn loss_ratio(&self) -> f64 {
        let settled = self.answered + self.lost;
        if settled == 0 {
            0.0
        } else {
            self.lost as f64 / settled as f64
        }
    }
}

impl fmt::Display for PingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sent {}, answered {}, lost {} ({:.3} %), late {}, duplicates {}, corrupt {}",
            self.sent,
            self.answered,
            self.lost,
            100.0 * self.loss_ratio(),
            self.late,
            self.duplicates,
            self.corrupt,
        )?;
        match &self.rtt {
            Some(rtt) => write!(f, "\nround trip: {rtt}"),
            None => Ok(()),
        }
    }
}

/// A probe on its way.
#[derive(Clone, Copy, Debug)]
struct Probe {
    sent_ns: u64,
    answered: bool,
}

/// The probes that are neither given up nor behind an answered run, in the order of sending.
#[derive(Debug, Default)]
struct Outstanding {
    probes: VecDeque<Probe>,
    /// Sequence number of the first in `probes`.
    first: u32,
    waiting: usize,
}

impl Outstanding {
    fn add(&mut self, sent_ns: u64) {
        self.probes.push_back(Probe {
            sent_ns,
            answered: false,
        });
        self.waiting += 1;
    }

    /// Takes an answer in. The round-trip time, or `None` for a duplicate or a late one, which
    /// `report` then counts.
    fn answer(&mut self, sequence: u32, now_ns: u64, report: &mut PingReport) -> Option<u64> {
        let place = sequence.wrapping_sub(self.first) as usize;
        let Some(probe) = self.probes.get_mut(place) else {
            report.late += 1;
            return None;
        };
        if probe.answered {
            report.duplicates += 1;
            return None;
        }
        probe.answered = true;
        self.waiting -= 1;
        report.answered += 1;
        Some(now_ns.saturating_sub(probe.sent_ns))
    }

    /// Gives up the probes that were sent before `before_ns`, and the probes that exceed the bound. Returns their
    /// number.
    fn give_up(&mut self, before_ns: u64) -> u64 {
        let mut lost = 0;
        while let Some(&probe) = self.probes.front()
            && (probe.sent_ns <= before_ns || self.probes.len() > OUTSTANDING_MAX)
        {
            self.probes.pop_front();
            self.first = self.first.wrapping_add(1);
            if !probe.answered {
                self.waiting -= 1;
                lost += 1;
            }
        }
        lost
    }

    fn oldest_ns(&self) -> Option<u64> {
        self.probes.front().map(|probe| probe.sent_ns)
    }
}

/// Everything that a ping keeps while it runs.
struct Session<'a, C> {
    job: &'a PingJob,
    clock: &'a C,
    templates: Templates,
    outstanding: Outstanding,
    report: PingReport,
    rtt: Latency,
    line_rtt: Latency,
    line_before: PingReport,
    next_send_ns: u64,
}

/// Sends the probes of `job` through `sender` and `receiver`, until done or `stop` is set, and calls
/// `observe` once a second. A [`reflect`](super::reflect()) must run on the other side.
///
/// # Errors
/// See [`PingError`].
pub fn ping(
    job: &PingJob,
    (sender, receiver): (&mut impl Sender, &mut impl Receiver),
    clock: &impl Clock,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&PingLine),
) -> Result<PingReport, PingError> {
    let traffic = TrafficSpec {
        sizes: job.sizes.clone(),
        flows: FlowSpec {
            count: 1,
            ..job.flow.clone()
        },
        content: Content::Stamped,
        ..TrafficSpec::default()
    };
    let start_ns = clock.now_ns();
    let end_ns = job
        .duration
        .map_or(u64::MAX, |time| start_ns.saturating_add(time.as_ns()));
    let mut line_end_ns = start_ns + NS_PER_S;
    let mut session = Session {
        job,
        clock,
        templates: Templates::new(&traffic, Kind::Probe)?,
        outstanding: Outstanding::default(),
        report: PingReport::default(),
        rtt: Latency::default(),
        line_rtt: Latency::default(),
        line_before: PingReport::default(),
        next_send_ns: start_ns,
    };
    loop {
        let now_ns = clock.now_ns();
        session.report.lost += session
            .outstanding
            .give_up(now_ns.saturating_sub(job.timeout.as_ns()));
        while now_ns >= line_end_ns {
            observe(&session.end_line((line_end_ns - start_ns) / NS_PER_S - 1));
            line_end_ns += NS_PER_S;
        }
        let sending = now_ns < end_ns && job.count.is_none_or(|count| session.report.sent < count);
        if stop.load(Ordering::Relaxed) || (!sending && session.outstanding.waiting == 0) {
            break;
        }
        if sending && session.is_due(now_ns) {
            session.probe(sender)?;
        }
        if session.collect(receiver)? == 0 && !job.busy {
            let wait_ns = session.wait_ns(sending, line_end_ns);
            receiver.wait(Duration::from_nanos(wait_ns))?;
        }
    }
    session.report.unanswered = session.outstanding.waiting as u64;
    session.report.rtt = session.rtt.summary();
    Ok(session.report)
}

impl<C: Clock> Session<'_, C> {
    fn is_due(&self, now_ns: u64) -> bool {
        match self.job.interval {
            Some(_) => now_ns >= self.next_send_ns,
            None => self.outstanding.waiting == 0,
        }
    }

    fn probe(&mut self, sender: &mut impl Sender) -> Result<(), IoError> {
        let now_ns = self.clock.now_ns();
        let templates = &mut self.templates;
        let mut written = false;
        sender.send(1, |_, slot| {
            written = true;
            templates.write(slot, now_ns)
        })?;
        sender.flush()?;
        // A frame that was written has used up its number, even if the port then dropped it.
        if written {
            self.outstanding.add(now_ns);
            self.report.sent += 1;
        }
        if let Some(interval) = self.job.interval {
            // After a stall probes do not leave in a bunch.
            self.next_send_ns = (self.next_send_ns + interval.as_ns()).max(now_ns);
        }
        Ok(())
    }

    /// Takes in the answers that wait. Returns how many frames there were.
    fn collect(&mut self, receiver: &mut impl Receiver) -> Result<usize, IoError> {
        let mut batch_ns = None;
        receiver.receive(BATCH_MAX, |frame| {
            let now_ns = *batch_ns.get_or_insert_with(|| self.clock.now_ns());
            match stream_header(frame) {
                Ok(header)
                    if header.kind == Kind::Reply
                        && header.stream == self.job.flow.first_stream =>
                {
                    let rtt_ns = self
                        .outstanding
                        .answer(header.sequence, now_ns, &mut self.report);
                    if let Some(rtt_ns) = rtt_ns {
                        self.rtt.record(rtt_ns);
                        self.line_rtt.record(rtt_ns);
                    }
                }
                Err(PayloadError::Corrupt) => self.report.corrupt += 1,
                Ok(_) | Err(PayloadError::Foreign) => {}
            }
        })
    }

    /// Returns the nanoseconds until the next action if nothing arrives.
    fn wait_ns(&self, sending: bool, line_end_ns: u64) -> u64 {
        let mut wake_ns = line_end_ns;
        if let Some(oldest_ns) = self.outstanding.oldest_ns() {
            wake_ns = wake_ns.min(oldest_ns + self.job.timeout.as_ns());
        }
        if sending && self.job.interval.is_some() {
            wake_ns = wake_ns.min(self.next_send_ns);
        } else if sending && self.outstanding.waiting == 0 {
            return 0;
        }
        wake_ns.saturating_sub(self.clock.now_ns()).min(WAIT_MAX_NS)
    }

    fn end_line(&mut self, second: u64) -> PingLine {
        let line = PingLine {
            second,
            sent: self.report.sent - self.line_before.sent,
            answered: self.report.answered - self.line_before.answered,
            lost: self.report.lost - self.line_before.lost,
            rtt: self.line_rtt.summary(),
        };
        self.line_before = self.report.clone();
        self.line_rtt.clear();
        line
    }
}
