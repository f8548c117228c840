//! How many packets may be on their way.

use super::congestion::{Avoidance, Control, Subflow, View};

/// RFC 6928: at the beginning.
const INITIAL: f64 = 10.0;
/// RFC 5681, equation 4: the least after a signal.
const REDUCED_MIN: f64 = 2.0;
/// RFC 5681, section 3.1: after a timeout.
const LOSS: f64 = 1.0;
/// The most that a sender remembers: bounds memory, far beyond what an experiment needs.
const MAX: f64 = 1_048_576.0;

/// The window of one subflow, in packets.
#[derive(Debug)]
pub struct Window {
    size: f64,
    /// Up to here it is slow start (`ssthresh`).
    slow_start_until: f64,
    avoidance: Box<dyn Avoidance>,
    since_signal: f64,
    between_signals: f64,
}

impl Window {
    /// At the beginning of a connection.
    pub fn new(control: Control) -> Self {
        Window {
            size: INITIAL,
            slow_start_until: f64::INFINITY,
            avoidance: control.avoidance(),
            since_signal: 0.0,
            between_signals: 0.0,
        }
    }

    /// The window.
    pub fn size(&self) -> f64 {
        self.size
    }

    /// Returns the values that siblings see, with the known round trip.
    pub fn as_subflow(&self, round_trip_s: f64) -> Subflow {
        Subflow {
            window: self.size,
            round_trip_s,
            between_signals: self.since_signal.max(self.between_signals),
        }
    }

    /// A packet was acknowledged without a signal. `grows` is false in recovery, and where the
    /// acknowledged packet was sent before it.
    pub fn acknowledge(&mut self, grows: bool, view: &View<'_>) {
        self.since_signal += 1.0;
        if !grows {
            return;
        }
        let increase = if self.size < self.slow_start_until {
            1.0
        } else {
            self.avoidance.increase(view)
        };
        self.size = (self.size + increase).clamp(LOSS, MAX);
    }

    /// A loss or a mark: once per round trip.
    pub fn signal(&mut self) {
        self.between_signals = std::mem::take(&mut self.since_signal);
        self.size = self.avoidance.decrease(self.size).max(REDUCED_MIN);
        self.slow_start_until = self.size;
    }

    /// Handles a timeout.
    pub fn timeout(&mut self) {
        self.signal();
        self.avoidance.restart();
        self.size = LOSS;
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use crate::tcp::Control;
    use crate::tcp::congestion::View;

    fn acknowledge(window: &mut Window, packets: u32) {
        for _ in 0..packets {
            let subflows = [window.as_subflow(0.01)];
            let view = View {
                now_s: 1.0,
                subflows: &subflows,
                own: 0,
            };
            window.acknowledge(true, &view);
        }
    }

    #[test]
    fn slow_start_doubles_avoidance_adds_one_per_round() {
        let mut window = Window::new(Control::Reno);
        acknowledge(&mut window, 10);
        assert_eq!(window.size(), 20.0);
        window.signal();
        assert_eq!(window.size(), 10.0);
        acknowledge(&mut window, 10);
        assert!((window.size() - 11.0).abs() < 0.05, "{}", window.size());
        window.timeout();
        assert_eq!(window.size(), 1.0);
        acknowledge(&mut window, 4);
        assert_eq!(window.size(), 5.0, "slow start up to half of what was");
    }

    #[test]
    fn no_number_of_signals_closes_it() {
        let mut window = Window::new(Control::Cubic);
        for _ in 0..100 {
            window.signal();
        }
        assert_eq!(window.size(), 2.0);
    }
}
