//! The receiver: counts, checks and times what arrives at a port.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nfluid_wire::PacketMeta;

use crate::check::{CheckReport, Checker};
use crate::clock::Clock;
use crate::io::{BATCH_MAX, IoError, Receiver};
use crate::latency::{Latency, LatencySummary};
use crate::payload::{Kind, PayloadError, StreamHeader};
use crate::report::{ReceiveLine, ReceiveReport, Tally};
use crate::spec::Timespan;

/// Longest wait for a frame before stop and time are looked at again.
const WAIT_MAX_NS: u64 = 20_000_000;

/// Depth of the checks of received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Frames and bytes are counted; nothing is read.
    Count,
    /// Every byte behind the transport header is checked, and order and latency with it.
    #[default]
    Check,
}

/// The frames to receive, and the end of receiving. Without any limit, until stopped.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveJob {
    /// Depth of the checks of received frames.
    pub depth: Depth,
    /// End after this long.
    pub duration: Option<Timespan>,
    /// End after this many frames: valid and unique ones when checking, else any.
    pub expect: Option<u64>,
    /// End when nothing has arrived for this long, once something has.
    pub idle: Option<Timespan>,
    /// Streams that are checked; further ones are only counted.
    pub streams_max: u32,
}

impl Default for ReceiveJob {
    fn default() -> Self {
        ReceiveJob {
            depth: Depth::default(),
            duration: None,
            expect: None,
            idle: None,
            streams_max: 65_536,
        }
    }
}

/// Finds and checks the stream header of a frame.
///
/// # Errors
/// [`PayloadError::Foreign`] also when the frame is not UDP or TCP over IP.
#[inline]
pub fn stream_header(frame: &[u8]) -> Result<StreamHeader, PayloadError> {
    let meta = PacketMeta::parse(frame).map_err(|_| PayloadError::Foreign)?;
    // Behind the IP packet there may be padding that is none of ours.
    let payload = frame
        .get(usize::from(meta.payload_offset)..meta.l3_end())
        .ok_or(PayloadError::Foreign)?;
    StreamHeader::parse(payload)
}

/// Checks and times frames one by one. For benchmarks that keep their own loop; all other callers use [`receive`].
#[derive(Debug)]
pub struct Inspector {
    checker: Checker,
    /// Latencies since the last line; recording each only once is a matter of its cost.
    line: Latency,
    /// Latencies before that.
    earlier: Latency,
    clock_skewed: u64,
}

impl Inspector {
    /// An inspector that checks up to `streams_max` streams.
    pub fn new(streams_max: u32) -> Self {
        Inspector {
            checker: Checker::new(streams_max),
            line: Latency::default(),
            earlier: Latency::default(),
            clock_skewed: 0,
        }
    }

    /// Looks at a frame that arrived at `now_ns`.
    #[inline]
    pub fn inspect(&mut self, frame: &[u8], now_ns: u64) {
        let header = match stream_header(frame) {
            Ok(header) if header.kind != Kind::Data => Err(PayloadError::Foreign),
            other => other,
        };
        self.checker.observe(&header);
        match header.map(|header| header.latency_ns(now_ns)) {
            Ok(Some(latency_ns)) => self.line.record(latency_ns),
            Ok(None) => self.clock_skewed += 1,
            Err(_) => {}
        }
    }

    /// The latencies since the last call.
    pub fn end_line(&mut self) -> Option<LatencySummary> {
        let summary = self.line.summary();
        self.earlier.add(&self.line);
        self.line.clear();
        summary
    }

    /// All latencies so far.
    pub fn latency(&self) -> Option<LatencySummary> {
        let mut all = self.earlier.clone();
        all.add(&self.line);
        all.summary()
    }

    /// Loss, duplication, order and corruption so far.
    pub fn check(&self) -> CheckReport {
        self.checker.report()
    }

    /// The account of every stream.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }
}

/// Receives `job` from `port` until it is done or `stop` is set, and calls `observe` once a second.
///
/// # Errors
/// The errors of the port.
pub fn receive(
    job: &ReceiveJob,
    port: &mut impl Receiver,
    clock: &impl Clock,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&ReceiveLine),
) -> Result<ReceiveReport, IoError> {
    let start_ns = clock.now_ns();
    let end_ns = job.duration.map_or(u64::MAX, |duration| {
        start_ns.saturating_add(duration.as_ns())
    });
    let mut inspector = Inspector::new(job.streams_max);
    let mut line_check = CheckReport::default();
    let mut tally = Tally::new(start_ns);
    let (mut first_ns, mut last_ns) = (None, start_ns);
    loop {
        let mut batch_ns = None;
        let count = port.receive(BATCH_MAX, |frame| {
            tally.add(1, frame.len() as u64);
            // All frames of a batch had arrived when its first frame was passed on.
            let now_ns = *batch_ns.get_or_insert_with(|| clock.now_ns());
            if job.depth == Depth::Check {
                inspector.inspect(frame, now_ns);
            }
        })?;
        let now_ns = clock.now_ns();
        if count > 0 {
            first_ns.get_or_insert(now_ns);
            last_ns = now_ns;
        }
        while now_ns >= tally.line_end_ns() {
            let check = inspector.check();
            let latency = inspector.end_line();
            observe(&ReceiveLine::new(
                tally.end_line(),
                &check,
                &line_check,
                latency,
            ));
            line_check = check;
        }
        let seen = match job.depth {
            Depth::Count => tally.packets(),
            Depth::Check => inspector.check().unique,
        };
        let idle = job
            .idle
            .is_some_and(|idle| first_ns.is_some() && now_ns - last_ns >= idle.as_ns());
        let done = job.expect.is_some_and(|expect| seen >= expect);
        if done || idle || now_ns >= end_ns || stop.load(Ordering::Relaxed) {
            break;
        }
        if count == 0 {
            let wait_ns = (end_ns.min(tally.line_end_ns()) - now_ns).min(WAIT_MAX_NS);
            port.wait(Duration::from_nanos(wait_ns))?;
        }
    }
    Ok(ReceiveReport {
        received: tally.between(first_ns.unwrap_or(last_ns), last_ns),
        check: (job.depth == Depth::Check).then(|| inspector.check()),
        expected: job.expect,
        latency: inspector.latency(),
        clock_skewed: inspector.clock_skewed,
    })
}

#[cfg(test)]
mod tests;
