//! Replay of a capture into a port: with the timing of its recording, faster or slower, at a rate,
//! or as fast as the port takes it; once or many times over.
//!
//! The capture is read as it is sent, so its size does not matter; a small capture (up to 64 MiB) that is looped is
//! kept in memory. Frames that a slot cannot hold are left out and counted, never cut in silence. No frame is given
//! up to keep the time: a late frame goes out as soon as it can, and the report says how late it was.

mod schedule;
mod source;

use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use nfluid_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::capture::{Capture, CaptureError};
use crate::clock::Clock;
use crate::io::{BATCH_MAX, IoError, Sender};
use crate::report::{SendLine, Tally, Volume};
use crate::spec::{Rate, Timespan};
use schedule::Schedule;
use source::Source;

/// Interval of checks for a stop while waiting, in nanoseconds.
const STOP_CHECK_NS: u64 = 20_000_000;
/// Pause after a port that was full, in nanoseconds.
const FULL_PAUSE_NS: u64 = 1_000;

/// Sending times of frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// As recorded, this many times as fast: 1 is the original, 2 twice as fast.
    Recorded(f64),
    /// At a rate. A rate in bits is met frame by frame.
    Rate(Rate),
}

/// Treatment of frames that were cut by the capture's snapshot length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Snapped {
    /// Left out.
    Skip,
    /// Sent as far as they were kept.
    #[default]
    Send,
    /// Filled up with zeros to their original length.
    Pad,
}

/// Treatment of a record that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum OnDamage {
    /// The replay fails.
    #[default]
    Fail,
    /// The capture ends before that record, and the report mentions it.
    Stop,
}

/// Parameters of a replay.
#[derive(Clone, Debug)]
pub struct ReplayJob {
    /// Sending times of frames.
    pub timing: Timing,
    /// Number of repetitions; 0: until stopped.
    pub loops: u64,
    /// Treatment of cut frames.
    pub snapped: Snapped,
    /// Treatment of a record that cannot be read.
    pub on_damage: OnDamage,
    /// Source and destination address put before bare IP packets.
    pub macs: (MacAddr, MacAddr),
    /// End after this many frames.
    pub count: Option<u64>,
    /// End after this long.
    pub duration: Option<Timespan>,
}

impl Default for ReplayJob {
    fn default() -> Self {
        ReplayJob {
            timing: Timing::Recorded(1.0),
            loops: 1,
            snapped: Snapped::default(),
            on_damage: OnDamage::default(),
            macs: (
                MacAddr([0x02, 0, 0, 0, 0, 1]),
                MacAddr([0x02, 0, 0, 0, 0, 2]),
            ),
            count: None,
            duration: None,
        }
    }
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The sent frames.
    #[serde(flatten)]
    pub sent: Volume,
    /// Times that the capture was gone through to its end.
    pub loops: u64,
    /// Frames left out: longer than a slot or shorter than a header.
    pub bad_length: u64,
    /// Frames that the capture had cut; sent, padded or left out by [`Snapped`].
    pub snapped: u64,
    /// Frames that the interface refused, for instance as longer than its MTU.
    pub refused: u64,
    /// Sent packets that the port itself could not pass on.
    pub dropped: u64,
    /// Frames recorded with a time before that of the frame before; sent right after it.
    pub time_reversed: u64,
    /// Latest departure after the time that was due, in nanoseconds.
    pub lag_max_ns: u64,
    /// Position and reason of an early end of reading.
    pub damage: Option<String>,
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sent {} in {:.3} s, {} loops",
            self.sent, self.sent.seconds, self.loops
        )?;
        for (count, what) in [
            (self.bad_length, "left out for their length"),
            (self.snapped, "cut by the capture"),
            (self.refused, "refused by the interface"),
            (
                self.dropped,
                "dropped by the port itself: its queue was full",
            ),
            (self.time_reversed, "recorded with a time going backwards"),
        ] {
            if count > 0 {
                write!(f, "\n{count} frames {what}")?;
            }
        }
        write!(f, "\nat most {:.1} us late", self.lag_max_ns as f64 / 1e3)?;
        match &self.damage {
            Some(damage) => write!(f, "\nended early: {damage}"),
            None => Ok(()),
        }
    }
}

/// The reason why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No frame of the capture can be sent.
    #[error("no frame in the capture can be sent ({left_out} were left out)")]
    Empty {
        /// Frames that do not fit a slot, are no frame, or were cut and not wanted.
        left_out: u64,
    },
    /// The speed is not a positive number.
    #[error("speed {0} is not a positive number")]
    Speed(f64),
    /// The port failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Replays the capture of `open` by `job` into `port`, opening it anew for each loop, until done or `stop` is set, and
/// calls `observe` once a second.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay<R: Read>(
    job: &ReplayJob,
    open: impl FnMut() -> Result<Capture<R>, CaptureError>,
    port: &mut impl Sender,
    clock: &impl Clock,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&SendLine),
) -> Result<ReplayReport, ReplayError> {
    let dropped_before = port.dropped();
    let mut source = Source::new(job, open)?;
    let start_ns = clock.now_ns();
    let mut schedule = Schedule::new(job.timing, start_ns)?;
    let end_ns = job
        .duration
        .map_or(u64::MAX, |time| start_ns.saturating_add(time.as_ns()));
    let mut tally = Tally::new(start_ns);
    let (mut refused, mut lag_max_ns) = (Refusals::default(), 0);
    let mut due_ns = schedule.after(source.advance()?);
    loop {
        let now_ns = clock.now_ns();
        while now_ns >= tally.line_end_ns() {
            let (second, sent) = tally.end_line();
            observe(&SendLine {
                second,
                sent,
                asked_pps: None,
                missed: 0,
            });
        }
        let left = job.count.map_or(u64::MAX, |count| count - tally.packets());
        let Some(first_due_ns) = due_ns else { break };
        if left == 0 || now_ns >= end_ns || stop.load(Ordering::Relaxed) {
            break;
        }
        if first_due_ns > now_ns {
            let until_ns = tally.line_end_ns().min(end_ns) - now_ns;
            clock.pause((first_due_ns - now_ns).min(until_ns).min(STOP_CHECK_NS));
            continue;
        }
        let mut outcome = Ok(());
        let mut bytes = 0;
        let count = left.min(BATCH_MAX as u64) as usize;
        let taken = port.send(count, |_, slot| {
            if outcome.is_err() || due_ns.is_none_or(|due_ns| due_ns > now_ns) {
                return 0;
            }
            if let (Timing::Recorded(_), Some(due_ns)) = (job.timing, due_ns) {
                lag_max_ns = lag_max_ns.max(now_ns - due_ns);
            }
            let frame = source.frame();
            slot[..frame.len()].copy_from_slice(frame);
            let length = frame.len();
            bytes += length as u64;
            match source.advance() {
                Ok(next) => due_ns = schedule.after(next),
                Err(error) => outcome = Err(error),
            }
            length
        });
        // Slots that were filled before an error in the capture still go out.
        let before = refused;
        let taken = refused.note(taken)?.unwrap_or_default();
        while refused.note(port.flush())?.is_none() {}
        let gone = (refused.frames - before.frames, refused.bytes - before.bytes);
        tally.add(
            (taken as u64).saturating_sub(gone.0),
            bytes.saturating_sub(gone.1),
        );
        outcome?;
        if taken == 0 {
            clock.pause(FULL_PAUSE_NS);
        }
    }
    let counts = source.counts();
    Ok(ReplayReport {
        sent: tally.total(clock.now_ns()),
        loops: counts.loops,
        bad_length: counts.bad_length,
        snapped: counts.snapped,
        refused: refused.frames,
        dropped: port.dropped() - dropped_before,
        time_reversed: schedule.time_reversed(),
        lag_max_ns,
        damage: counts.damage.clone(),
    })
}

/// Frames that the port refused.
#[derive(Clone, Copy, Debug, Default)]
struct Refusals {
    frames: u64,
    bytes: u64,
}

impl Refusals {
    /// Counts a refused frame, which gives `None`, and lets everything else pass.
    fn note<T>(&mut self, outcome: Result<T, IoError>) -> Result<Option<T>, IoError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(IoError::Refused { length, .. }) => {
                self.frames += 1;
                self.bytes += length as u64;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
