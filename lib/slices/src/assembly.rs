//! Pieces of an interval's input, put together.
//!
//! Two intervals can be open at once: packets of two intervals may overtake each other. An interval whose input is not whole
//! when a third begins is given up.

/// Intervals that are open at once.
const OPEN: usize = 2;
/// Intervals that are remembered as over: those of which a piece may still be under way.
const OVER: usize = 4;
/// An interval that is further from the newest one than this is no late one: the sender has begun anew.
const LATE_MAX: u16 = 64;
/// Bytes that a bit of the map of pieces stands for.
const GRAIN: usize = 4;

/// The fate of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Added<'a> {
    /// The interval waits for more; so many bytes are missing.
    Waits(usize),
    /// The interval's input is whole.
    Whole(&'a [u8]),
    /// The interval is over.
    Late,
    /// The piece does not lie within the input, or not at a multiple of four bytes.
    OutOfRange,
    /// A part of the piece has come before.
    Twice,
}

/// Intervals that were given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Intervals of which a part was missing.
    pub incomplete: u64,
    /// Intervals of which nothing came.
    pub missing: u64,
}

/// The intervals of a slice whose input is not whole.
#[derive(Debug)]
pub struct Assembly {
    bytes: usize,
    open: [Open; OPEN],
    /// The newest interval that a piece has come of.
    newest: Option<u16>,
    /// The intervals that ended last.
    over: [Option<u16>; OVER],
    /// Intervals that were given up.
    pub losses: Losses,
}

#[derive(Debug, Default)]
struct Open {
    interval: Option<u16>,
    input: Vec<u8>,
    /// A bit per [`GRAIN`] bytes that have come.
    pieces: Vec<u64>,
    missing: usize,
}

impl Assembly {
    /// For inputs of so many bytes, a multiple of four.
    pub fn new(bytes: usize) -> Self {
        Assembly {
            bytes,
            open: Default::default(),
            newest: None,
            over: [None; OVER],
            losses: Losses::default(),
        }
    }

    /// Adds a piece.
    pub fn add(&mut self, interval: u16, at: u32, piece: &[u8]) -> Added<'_> {
        let begin = at as usize;
        let fits = begin
            .checked_add(piece.len())
            .is_some_and(|end| end <= self.bytes);
        if !fits
            || piece.is_empty()
            || !begin.is_multiple_of(GRAIN)
            || !piece.len().is_multiple_of(GRAIN)
        {
            return Added::OutOfRange;
        }
        let Some(place) = self.place(interval) else {
            return Added::Late;
        };
        let open = &mut self.open[place];
        let range = begin / GRAIN..(begin + piece.len()) / GRAIN;
        if !mark(&mut open.pieces, range) {
            return Added::Twice;
        }
        open.input[begin..begin + piece.len()].copy_from_slice(piece);
        open.missing -= piece.len();
        if open.missing > 0 {
            return Added::Waits(open.missing);
        }
        open.interval = None;
        self.is_over(interval);
        Added::Whole(&self.open[place].input)
    }

    /// The place of an interval, which is opened if it is new.
    fn place(&mut self, interval: u16) -> Option<usize> {
        let found = self
            .open
            .iter()
            .position(|it| it.interval == Some(interval));
        if found.is_some() {
            return found;
        }
        let ahead = match self.newest {
            Some(newest) => interval.wrapping_sub(newest),
            None => u16::MAX / 2,
        };
        let behind = ahead.wrapping_neg();
        if behind <= LATE_MAX {
            // The one before the newest may begin now, unless it is over: it was counted as missing.
            let free = self
                .free()
                .filter(|_| behind == 1 && !self.over.contains(&Some(interval)))?;
            self.losses.missing -= 1;
            self.begin(free, interval);
            return Some(free);
        }
        if ahead <= LATE_MAX {
            self.losses.missing += u64::from(ahead - 1);
        } else {
            // The sender begins, or has begun anew: what is open belongs to the past.
            (0..OPEN).for_each(|place| self.give_up(place));
            self.over = [Some(interval.wrapping_sub(1)); OVER];
        }
        self.newest = Some(interval);
        let place = self.free().unwrap_or_else(|| {
            let age = |it: &Open| it.interval.map(|it| interval.wrapping_sub(it));
            let oldest = (0..OPEN).max_by_key(|&place| age(&self.open[place]));
            let oldest = oldest.unwrap_or(0);
            self.give_up(oldest);
            oldest
        });
        self.begin(place, interval);
        Some(place)
    }

    fn free(&self) -> Option<usize> {
        self.open.iter().position(|it| it.interval.is_none())
    }

    fn begin(&mut self, place: usize, interval: u16) {
        let open = &mut self.open[place];
        open.interval = Some(interval);
        open.input.resize(self.bytes, 0);
        open.pieces.clear();
        open.pieces.resize((self.bytes / GRAIN).div_ceil(64), 0);
        open.missing = self.bytes;
    }

    fn give_up(&mut self, place: usize) {
        if let Some(interval) = self.open[place].interval.take() {
            self.losses.incomplete += 1;
            self.is_over(interval);
        }
    }

    fn is_over(&mut self, interval: u16) {
        self.over.rotate_right(1);
        self.over[0] = Some(interval);
    }
}

/// Sets the bits of a range. Returns false, and sets none, if one is set.
fn mark(bits: &mut [u64], range: std::ops::Range<usize>) -> bool {
    let words = range.start / 64..=(range.end - 1) / 64;
    let mask = |word: usize| {
        let from = range.start.saturating_sub(word * 64).min(64);
        let to = (range.end - word * 64).min(64);
        let below = |bit: usize| 1_u64.checked_shl(bit as u32).map_or(u64::MAX, |it| it - 1);
        below(to) & !below(from)
    };
    if words.clone().any(|word| bits[word] & mask(word) != 0) {
        return false;
    }
    for word in words {
        bits[word] |= mask(word);
    }
    true
}
