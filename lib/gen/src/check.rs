//! Loss, duplication, order and corruption, per stream.
//!
//! Terms: a frame is *reordered* when a later one of its stream came before it (RFC 4737: its
//! sequence number is below the next expected one); its *extent* is by how many places. A second
//! arrival is a *duplicate* (RFC 5560) and not reordered. A frame is *lost* when it has not arrived
//! although a later one has; a late arrival takes the loss back.
//!
//! Memory is bounded. Each stream remembers its last 1024 numbers: a later frame cannot be distinguished from a
//! duplicate, counts as *stale*, and stays lost. Streams beyond the limit are only counted, as *untracked*.

use serde::{Deserialize, Serialize};

use crate::payload::{PayloadError, STREAMS_MAX, StreamHeader};

/// Number of a stream's last sequence numbers that are remembered.
pub const WINDOW: u64 = 1024;

/// Streams kept together, allocated at once.
const PAGE: usize = 256;
/// This many frames in a row that are all stale, one after the other, come from a sender that began anew.
const RESTART_RUN: u32 = 32;
/// Added to 32-bit sequence numbers, so that nothing below the first one is negative.
const SEQUENCE_OFFSET: u64 = 1 << 32;

/// Counts over all streams, in frames unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Frames with a valid stream header.
    pub received: u64,
    /// Different frames of tracked streams.
    pub unique: u64,
    /// Frames that have not arrived although a later one of their stream has.
    pub lost: u64,
    /// Second and further arrivals.
    pub duplicates: u64,
    /// First arrivals behind a later frame.
    pub reordered: u64,
    /// The largest extent of a reordered frame, in places.
    pub reorder_extent_max: u64,
    /// Frames that came too late to be distinguished from duplicates.
    pub stale: u64,
    /// Frames whose stream header or body changed on the way.
    pub corrupt: u64,
    /// Frames without a stream header: from another sender, or changed beyond recognition.
    pub foreign: u64,
    /// Valid frames of streams beyond the limit.
    pub untracked: u64,
    /// Streams seen.
    pub streams: u64,
    /// Streams that were running already when their first frame arrived.
    pub joined: u64,
    /// Times that a stream began anew.
    pub restarts: u64,
}

impl CheckReport {
    /// Share of frames lost, 0 to 1, out of those known to have been sent.
    pub fn loss_ratio(&self) -> f64 {
        let known = self.unique + self.lost;
        if known == 0 {
            0.0
        } else {
            self.lost as f64 / known as f64
        }
    }

    /// Returns true if every frame arrived once, in order and whole.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicates + self.reordered + self.stale + self.corrupt == 0
    }
}

/// Counts of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Number of the stream.
    pub stream: u32,
    /// Different frames that arrived.
    pub unique: u64,
    /// Frames lost.
    pub lost: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Reordered frames.
    pub reordered: u64,
}

/// The result of a frame within its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// The first frame of its stream; `skipped` frames went before it, and `joined` means that the stream was running.
    First {
        skipped: u64,
        joined: bool,
    },
    /// Beyond all others, by this many places.
    Next(u64),
    /// Behind a later one, by `extent`; the stream turns out to begin `earlier` places earlier.
    Late {
        extent: u64,
        earlier: u64,
    },
    Duplicate,
    Stale,
    /// The last of a run of stale frames that shows that the sender began anew.
    Restart,
}

/// The record of a stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// First number, offset by [`SEQUENCE_OFFSET`]; 0 as long as the stream is unused.
    first: u64,
    highest: u64,
    /// Different frames since `first`.
    unique: u64,
    /// Unique frames of the times before the sender began anew; the next field has the losses.
    unique_before: u64,
    lost_before: u64,
    duplicates: u64,
    reordered: u64,
    stale_last: u32,
    stale_run: u32,
    window: [u64; (WINDOW / 64) as usize],
}

impl Stream {
    fn arrive(&mut self, sequence: u32) -> Arrival {
        if self.first == 0 {
            return self.begin(sequence);
        }
        let ahead = sequence.wrapping_sub(self.highest as u32) as i32;
        if ahead > 0 {
            self.advance(self.highest + ahead as u64);
            self.mark(self.highest);
            return Arrival::Next(ahead as u64);
        }
        let extent = u64::from(ahead.unsigned_abs());
        if extent >= WINDOW {
            return self.stale(sequence);
        }
        let number = self.highest - extent;
        if self.is_marked(number) {
            self.duplicates += 1;
            return Arrival::Duplicate;
        }
        let earlier = self.first.saturating_sub(number);
        self.first -= earlier;
        self.reordered += 1;
        self.mark(number);
        Arrival::Late { extent, earlier }
    }

    fn begin(&mut self, sequence: u32) -> Arrival {
        let number = SEQUENCE_OFFSET + u64::from(sequence);
        // A stream first seen close to its beginning has been seen from its beginning on.
        let joined = u64::from(sequence) >= WINDOW;
        self.first = if joined { number } else { SEQUENCE_OFFSET };
        self.highest = number;
        self.mark(number);
        Arrival::First {
            skipped: number - self.first,
            joined,
        }
    }

    /// Counts a stale frame; after a long enough run of them the stream begins with that run.
    fn stale(&mut self, sequence: u32) -> Arrival {
        let follows = self.stale_run > 0 && sequence == self.stale_last.wrapping_add(1);
        self.stale_run = if follows { self.stale_run + 1 } else { 1 };
        self.stale_last = sequence;
        if self.stale_run < RESTART_RUN {
            return Arrival::Stale;
        }
        self.lost_before += self.lost();
        self.unique_before += self.unique;
        let run = u64::from(RESTART_RUN);
        self.unique = 0;
        self.highest = SEQUENCE_OFFSET + u64::from(sequence);
        self.first = self.highest + 1 - run;
        self.window = Default::default();
        (self.first..=self.highest).for_each(|number| self.mark(number));
        // `mark` counted the run.
        Arrival::Restart
    }

    fn mark(&mut self, number: u64) {
        let place = number % WINDOW;
        self.window[(place / 64) as usize] |= 1 << (place % 64);
        self.unique += 1;
        self.stale_run = 0;
    }

    fn is_marked(&self, number: u64) -> bool {
        let place = number % WINDOW;
        self.window[(place / 64) as usize] & 1 << (place % 64) != 0
    }

    /// Moves the window up to `number`, everything new in it unmarked.
    fn advance(&mut self, number: u64) {
        if number - self.highest >= WINDOW {
            self.window = Default::default();
        } else {
            for skipped in self.highest + 1..=number {
                let place = skipped % WINDOW;
                self.window[(place / 64) as usize] &= !(1 << (place % 64));
            }
        }
        self.highest = number;
    }

    /// Frames lost since `first`.
    fn lost(&self) -> u64 {
        self.highest + 1 - self.first - self.unique
    }

    fn report(&self, number: u32) -> StreamReport {
        StreamReport {
            stream: number,
            unique: self.unique_before + self.unique,
            lost: self.lost_before + self.lost(),
            duplicates: self.duplicates,
            reordered: self.reordered,
        }
    }
}

/// Keeps account of the streams that arrive.
#[derive(Debug)]
pub struct Checker {
    pages: Vec<Option<Box<[Stream]>>>,
    pages_left: usize,
    totals: CheckReport,
    /// Frames known to have been sent, over all tracked streams.
    expected: u64,
}

impl Default for Checker {
    /// For 65,536 streams with consecutive numbers, at most 14 MB.
    fn default() -> Self {
        Checker::new(65_536)
    }
}

impl Checker {
    /// A checker for about `streams_max` streams (208 bytes each, allocated as they come; numbers
    /// that lie scattered use the budget up sooner).
    pub fn new(streams_max: u32) -> Self {
        let pages = STREAMS_MAX as usize / PAGE;
        Checker {
            pages: vec![None; pages],
            pages_left: (streams_max as usize).div_ceil(PAGE).min(pages),
            totals: CheckReport::default(),
            expected: 0,
        }
    }

    /// Takes account of one frame's stream header, or of the lack of one.
    #[inline]
    pub fn observe(&mut self, header: &Result<StreamHeader, PayloadError>) {
        match header {
            Ok(header) => self.observe_valid(header.stream, header.sequence),
            Err(PayloadError::Foreign) => self.totals.foreign += 1,
            Err(PayloadError::Corrupt) => self.totals.corrupt += 1,
        }
    }

    fn observe_valid(&mut self, number: u32, sequence: u32) {
        self.totals.received += 1;
        let Some(stream) = self.stream_mut(number) else {
            self.totals.untracked += 1;
            return;
        };
        let arrival = stream.arrive(sequence);
        let totals = &mut self.totals;
        let (sent, unique) = match arrival {
            Arrival::First { skipped, joined } => {
                totals.streams += 1;
                totals.joined += u64::from(joined);
                (skipped + 1, 1)
            }
            Arrival::Next(places) => (places, 1),
            Arrival::Late { extent, earlier } => {
                totals.reordered += 1;
                totals.reorder_extent_max = totals.reorder_extent_max.max(extent);
                (earlier, 1)
            }
            Arrival::Duplicate => {
                totals.duplicates += 1;
                (0, 0)
            }
            Arrival::Stale => {
                totals.stale += 1;
                (0, 0)
            }
            Arrival::Restart => {
                totals.restarts += 1;
                totals.stale -= u64::from(RESTART_RUN - 1);
                (u64::from(RESTART_RUN), u64::from(RESTART_RUN))
            }
        };
        self.expected += sent;
        totals.unique += unique;
        totals.lost = self.expected - totals.unique;
    }

    fn stream_mut(&mut self, number: u32) -> Option<&mut Stream> {
        let page = self.pages.get_mut(number as usize / PAGE)?;
        if page.is_none() && self.pages_left > 0 {
            self.pages_left -= 1;
            *page = Some(vec![Stream::default(); PAGE].into_boxed_slice());
        }
        page.as_mut().map(|page| &mut page[number as usize % PAGE])
    }

    /// The counts over all streams so far.
    pub fn report(&self) -> CheckReport {
        self.totals
    }

    /// The counts of each tracked stream that has been seen, by ascending number.
    pub fn streams(&self) -> impl Iterator<Item = StreamReport> + '_ {
        self.pages
            .iter()
            .enumerate()
            .filter_map(|(index, page)| Some((index * PAGE, page.as_ref()?)))
            .flat_map(|(first, page)| page.iter().enumerate().map(move |(i, s)| (first + i, s)))
            .filter(|(_, stream)| stream.first != 0)
            .map(|(number, stream)| stream.report(number as u32))
    }
}

#[cfg(test)]
mod tests;
