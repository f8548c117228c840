//! Congestion avoidance: by how much an acknowledgement opens the window, and to what a signal
//! closes it.

mod coupled;
mod cubic;

use coupled::{Lia, Olia};
use cubic::Cubic;

/// The values that congestion avoidance may use when an acknowledgement arrives.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The time, seconds.
    pub now_s: f64,
    /// All subflows of the connection.
    pub subflows: &'a [Subflow],
    /// Which of them the acknowledgement is for.
    pub own: usize,
}

/// A subflow as its siblings see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subflow {
    /// The window of the subflow, packets.
    pub window: f64,
    /// The smoothed round trip of the subflow, seconds.
    pub round_trip_s: f64,
    /// Packets acknowledged between two signals: the larger of the last such interval and the
    /// current one (OLIA's l).
    pub between_signals: f64,
}

impl View<'_> {
    /// The subflow that the acknowledgement is for.
    pub fn own(&self) -> Subflow {
        self.subflows[self.own]
    }
}

/// Congestion avoidance of one subflow.
pub trait Avoidance: std::fmt::Debug + Send {
    /// Packets that the window grows by for one acknowledged packet.
    fn increase(&mut self, view: &View<'_>) -> f64;

    /// The window after a signal (loss or mark) that came with `window` packets on their way.
    fn decrease(&mut self, window: f64) -> f64 {
        window / 2.0
    }

    /// A timeout, and slow start after it.
    fn restart(&mut self) {}
}

/// The congestion avoidance of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Control {
    /// RFC 5681 with SACK-based recovery, as "NewReno" stacks do it today.
    Reno,
    /// RFC 9438.
    Cubic,
    /// Multipath, "linked increases": RFC 6356.
    Lia,
    /// Multipath, "opportunistic linked increases" (Khalili et al., CoNEXT '12).
    Olia,
}

impl Control {
    /// A new subflow's.
    pub fn avoidance(self) -> Box<dyn Avoidance> {
        match self {
            Control::Reno => Box::new(Reno),
            Control::Cubic => Box::new(Cubic::default()),
            Control::Lia => Box::new(Lia),
            Control::Olia => Box::new(Olia),
        }
    }
}

/// RFC 5681, section 3.1: about a packet per round trip.
#[derive(Debug)]
struct Reno;

impl Avoidance for Reno {
    fn increase(&mut self, view: &View<'_>) -> f64 {
        1.0 / view.own().window
    }
}
