//! Due time of each frame of a replay.

use super::source::Next;
use super::{ReplayError, Timing};
use crate::clock::NS_PER_S;
use crate::spec::{LAYER1_OVERHEAD, Rate};

/// Gives every frame the time at which it is due.
#[derive(Debug)]
pub(super) struct Schedule {
    timing: Timing,
    start_ns: u64,
    /// Due time of the next frame at a rate, or of the last one as recorded, in nanoseconds from
    /// the start.
    offset_ns: f64,
    /// As recorded: start of the present loop, in nanoseconds from the start of the replay.
    loop_offset_ns: f64,
    loops: u64,
    first_time_ns: u64,
    last_time_ns: u64,
    frames: u64,
    time_reversed: u64,
}

impl Schedule {
    /// A schedule that begins at `start_ns`.
    ///
    /// # Errors
    /// When the speed is not a positive number.
    pub(super) fn new(timing: Timing, start_ns: u64) -> Result<Self, ReplayError> {
        if let Timing::Recorded(speed) = timing
            && !(speed > 0.0 && speed.is_finite())
        {
            return Err(ReplayError::Speed(speed));
        }
        Ok(Schedule {
            timing,
            start_ns,
            offset_ns: 0.0,
            loop_offset_ns: 0.0,
            loops: 0,
            first_time_ns: 0,
            last_time_ns: 0,
            frames: 0,
            time_reversed: 0,
        })
    }

    /// Frames recorded with a time before that of the frame before.
    pub(super) fn time_reversed(&self) -> u64 {
        self.time_reversed
    }

    /// Returns the due time of the frame `next`; `None` after the last frame.
    pub(super) fn after(&mut self, next: Option<Next>) -> Option<u64> {
        let next = next?;
        let offset_ns = match self.timing {
            Timing::Recorded(speed) => self.as_recorded(next, speed),
            Timing::Rate(rate) => self.at_rate(next, rate),
        };
        Some(self.start_ns.saturating_add(offset_ns as u64))
    }

    fn at_rate(&mut self, next: Next, rate: Rate) -> f64 {
        let due_ns = self.offset_ns;
        let per_second = NS_PER_S as f64;
        self.offset_ns += match rate {
            Rate::Max => 0.0,
            Rate::Packets(pps) => per_second / pps,
            Rate::Bits(bps) => next.length as f64 * 8.0 * per_second / bps,
            Rate::Layer1Bits(bps) => {
                (next.length + LAYER1_OVERHEAD) as f64 * 8.0 * per_second / bps
            }
        };
        due_ns
    }

    fn as_recorded(&mut self, next: Next, speed: f64) -> f64 {
        if self.frames == 0 || next.loops != self.loops {
            if self.frames > 1 {
                // Between two loops passes what passes between two frames on the average.
                let span_ns = self.offset_ns - self.loop_offset_ns;
                self.offset_ns += span_ns / (self.frames - 1) as f64;
            }
            self.loop_offset_ns = self.offset_ns;
            self.loops = next.loops;
            self.first_time_ns = next.time_ns;
            self.last_time_ns = next.time_ns;
            self.frames = 0;
        }
        self.frames += 1;
        if next.time_ns < self.last_time_ns {
            self.time_reversed += 1;
        } else {
            self.last_time_ns = next.time_ns;
        }
        let since_first_ns = self.last_time_ns - self.first_time_ns;
        self.offset_ns = self.loop_offset_ns + since_first_ns as f64 / speed;
        self.offset_ns
    }
}
