//! The frames of a capture in the form in which they are sent, loop after loop.

use std::io::Read;
use std::ops::Range;

use nfluid_wire::EtherType;

use super::{OnDamage, ReplayError, ReplayJob, Snapped};
use crate::capture::{Capture, CaptureError, Captured, Link};
use crate::io::{FRAME_MAX, FRAME_MIN};

/// Captures whose frames take up to this many bytes are kept in memory for further loops.
const CACHE_MAX: usize = 64 << 20;

/// Bytes of the header of a cooked packet.
const COOKED_LEN: usize = 16;

/// The known values of the frame in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// Time of its capture in nanoseconds since 1970.
    pub(super) time_ns: u64,
    /// The length in bytes of the frame as it is sent.
    pub(super) length: usize,
    /// Loops completed before it.
    pub(super) loops: u64,
}

/// Counts on the way.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) loops: u64,
    pub(super) bad_length: u64,
    pub(super) snapped: u64,
    pub(super) damage: Option<String>,
}

/// The frames of one loop in memory.
#[derive(Debug, Default)]
struct Cache {
    bytes: Vec<u8>,
    frames: Vec<(u64, Range<usize>)>,
    /// The capture does not fit, or need not be kept.
    unused: bool,
}

#[derive(Debug)]
enum Stage<R> {
    Reading(Capture<R>),
    /// The next frame to be taken from the cache.
    Cached(usize),
    Ended,
}

/// Frames of a capture, one in hand.
pub(super) struct Source<'a, R, F> {
    job: &'a ReplayJob,
    open: F,
    stage: Stage<R>,
    cache: Cache,
    frame: Vec<u8>,
    frames_in_loop: u64,
    counts: Counts,
}

impl<'a, R, F> Source<'a, R, F>
where
    R: Read,
    F: FnMut() -> Result<Capture<R>, CaptureError>,
{
    pub(super) fn new(job: &'a ReplayJob, mut open: F) -> Result<Self, ReplayError> {
        let stage = Stage::Reading(open()?);
        let cache = Cache {
            unused: job.loops == 1,
            ..Cache::default()
        };
        let counts = Counts::default();
        Ok(Source {
            job,
            open,
            stage,
            cache,
            frame: Vec::new(),
            frames_in_loop: 0,
            counts,
        })
    }

    /// The frame in hand.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes the next frame in hand; `None` when the last loop has ended.
    pub(super) fn advance(&mut self) -> Result<Option<Next>, ReplayError> {
        loop {
            match &mut self.stage {
                Stage::Ended => return Ok(None),
                Stage::Cached(index) => {
                    let Some((time_ns, place)) = self.cache.frames.get(*index).cloned() else {
                        self.end_loop()?;
                        continue;
                    };
                    *index += 1;
                    self.frame.clear();
                    self.frame.extend_from_slice(&self.cache.bytes[place]);
                    return Ok(Some(self.in_hand(time_ns)));
                }
                Stage::Reading(capture) => match capture.next_frame() {
                    Ok(Some(captured)) => {
                        let time_ns = captured.time_ns;
                        let first_loop = self.counts.loops == 0;
                        let counts = first_loop.then_some(&mut self.counts);
                        if prepare(self.job, &captured, &mut self.frame, counts) {
                            self.cache.add(time_ns, &self.frame);
                            return Ok(Some(self.in_hand(time_ns)));
                        }
                    }
                    Ok(None) => self.end_loop()?,
                    Err(error) if self.job.on_damage == OnDamage::Stop => {
                        self.counts.damage = Some(error.to_string());
                        self.end_loop()?;
                    }
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }

    fn in_hand(&mut self, time_ns: u64) -> Next {
        self.frames_in_loop += 1;
        Next {
            time_ns,
            length: self.frame.len(),
            loops: self.counts.loops,
        }
    }

    fn end_loop(&mut self) -> Result<(), ReplayError> {
        if self.frames_in_loop == 0 {
            let left_out = self.counts.bad_length + self.counts.snapped;
            return Err(ReplayError::Empty { left_out });
        }
        self.frames_in_loop = 0;
        self.counts.loops += 1;
        self.stage = if self.counts.loops == self.job.loops {
            Stage::Ended
        } else if self.cache.unused {
            Stage::Reading((self.open)()?)
        } else {
            Stage::Cached(0)
        };
        Ok(())
    }
}

impl Cache {
    fn add(&mut self, time_ns: u64, frame: &[u8]) {
        if self.unused {
            return;
        }
        if self.bytes.len() + frame.len() > CACHE_MAX {
            *self = Cache {
                unused: true,
                ..Cache::default()
            };
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        self.frames.push((time_ns, start..self.bytes.len()));
    }
}

/// Writes the frame as it is to be sent into `frame`. `false`: it is left out.
fn prepare(
    job: &ReplayJob,
    captured: &Captured<'_>,
    frame: &mut Vec<u8>,
    counts: Option<&mut Counts>,
) -> bool {
    frame.clear();
    let (src, dst) = job.macs;
    let (bytes, ethertype) = match captured.link {
        Link::Ethernet => (Some(captured.bytes), None),
        Link::Ip => {
            let version = captured.bytes.first().map_or(4, |byte| byte >> 4);
            let ethertype = if version == 6 {
                EtherType::IPV6
            } else {
                EtherType::IPV4
            };
            (Some(captured.bytes), Some(ethertype.0.to_be_bytes()))
        }
        Link::Cooked => {
            let header = captured.bytes.first_chunk::<COOKED_LEN>();
            let ethertype = header.map(|header| [header[14], header[15]]);
            (captured.bytes.get(COOKED_LEN..), ethertype)
        }
    };
    if let Some(ethertype) = ethertype {
        frame.extend_from_slice(&dst.0);
        frame.extend_from_slice(&src.0);
        frame.extend_from_slice(&ethertype);
    }
    let cut_off = captured.original_len.saturating_sub(captured.bytes.len());
    let is_snapped = cut_off > 0;
    let padding = if job.snapped == Snapped::Pad {
        cut_off
    } else {
        0
    };
    let length = bytes.map_or(0, |bytes| frame.len() + bytes.len() + padding);
    let bad_length = !(FRAME_MIN..=FRAME_MAX).contains(&length);
    if let Some(counts) = counts {
        counts.bad_length += u64::from(bad_length);
        counts.snapped += u64::from(is_snapped && !bad_length);
    }
    if bad_length || (is_snapped && job.snapped == Snapped::Skip) {
        return false;
    }
    frame.extend_from_slice(bytes.unwrap_or_default());
    frame.resize(length, 0);
    true
}
