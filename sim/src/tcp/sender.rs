//! The sender of one subflow: what it sends, and what it takes for lost.
//!
//! Each transmission has a number of its own, which its acknowledgement brings back: as in RFC 9002,
//! which restates TCP's SACK-based recovery (RFC 6675) without its ambiguities. A transmission is lost
//! once one that is three younger is acknowledged, so that a lost repetition is found like any other;
//! a signal counts once per round trip (RFC 6582: a window of data, RFC 3168: the same for marks).

use super::congestion::{Control, Subflow, View};
use super::round_trip::RoundTrip;
use super::window::Window;
use std::collections::{BTreeSet, VecDeque};

/// RFC 5681, section 3.2, and RFC 9002, section 6.1.1: acknowledged younger ones that prove a loss.
const YOUNGER: u64 = 3;
/// Round trip that siblings see before any was measured, seconds.
const ROUND_TRIP_S: f64 = 1.0;

/// A sender that always has something to send, from [`Sender::start`] to [`Sender::stop`].
#[derive(Debug)]
pub struct Sender {
    window: Window,
    round_trip: RoundTrip,
    runs: bool,
    /// By number, from `first` on; nothing where it is acknowledged.
    outstanding: VecDeque<Option<Sent>>,
    first: u64,
    in_flight: u64,
    /// Sequence numbers to be sent again.
    lost: BTreeSet<u64>,
    next_sequence: u64,
    /// Transmissions before this one were on their way at the last signal.
    recovery_until: u64,
    deadline_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: u64,
    at_ns: u64,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// The number of the transmission.
    pub number: u64,
    /// Which packet of the stream it carries.
    pub sequence: u64,
}

impl Sender {
    /// A sender that has not begun.
    pub fn new(control: Control) -> Self {
        Sender {
            window: Window::new(control),
            round_trip: RoundTrip::default(),
            runs: false,
            outstanding: VecDeque::new(),
            first: 0,
            in_flight: 0,
            lost: BTreeSet::new(),
            next_sequence: 0,
            recovery_until: 0,
            deadline_ns: None,
        }
    }

    /// Begins to send.
    pub fn start(&mut self) {
        self.runs = true;
    }

    /// Sends nothing any more.
    pub fn stop(&mut self) {
        self.runs = false;
        self.deadline_ns = None;
    }

    /// Returns the window, packets.
    pub fn window(&self) -> f64 {
        self.window.size()
    }

    /// Returns the values that siblings see.
    pub fn as_subflow(&self) -> Subflow {
        let round_trip_s = self.round_trip.smoothed_s().unwrap_or(ROUND_TRIP_S);
        self.window.as_subflow(round_trip_s)
    }

    /// When [`Sender::expire`] has to be called, if nothing is acknowledged before.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// The next packet, as long as the window has room.
    pub fn transmit(&mut self, now_ns: u64) -> Option<Transmission> {
        if !self.runs || self.in_flight >= self.window.size() as u64 {
            return None;
        }
        let sequence = self.lost.pop_first().unwrap_or_else(|| {
            self.next_sequence += 1;
            self.next_sequence - 1
        });
        let number = self.next_number();
        self.outstanding.push_back(Some(Sent {
            sequence,
            at_ns: now_ns,
        }));
        self.in_flight += 1;
        if self.deadline_ns.is_none() {
            self.deadline_ns = Some(now_ns + self.round_trip.timeout_ns());
        }
        Some(Transmission { number, sequence })
    }

    /// A transmission was acknowledged; `marked`: it met congestion on its way. `subflows` are those of
    /// the connection, this one is `own`.
    pub fn acknowledge(
        &mut self,
        number: u64,
        marked: bool,
        now_ns: u64,
        subflows: &[Subflow],
        own: usize,
    ) {
        let Some(sent) = self.take(number) else {
            // The packet was given up by a timeout.
            return;
        };
        self.round_trip.sample(now_ns - sent.at_ns);
        let newest_lost = self.find_lost(number);
        let signals = [newest_lost, marked.then_some(number)];
        if signals
            .into_iter()
            .flatten()
            .any(|signal| signal >= self.recovery_until)
        {
            self.window.signal();
            self.recovery_until = self.next_number();
        } else {
            let view = View {
                now_s: now_ns as f64 / 1e9,
                subflows,
                own,
            };
            let grows = number >= self.recovery_until;
            self.window.acknowledge(grows, &view);
        }
        let waits = self.runs && (self.in_flight > 0 || !self.lost.is_empty());
        self.deadline_ns = waits.then(|| now_ns + self.round_trip.timeout_ns());
    }

    /// The deadline has passed: everything on its way is taken for lost (RFC 6298, section 5).
    pub fn expire(&mut self, now_ns: u64) {
        self.window.timeout();
        self.round_trip.back_off();
        self.first = self.next_number();
        self.recovery_until = self.first;
        self.in_flight = 0;
        let given_up = self.outstanding.drain(..).flatten();
        self.lost.extend(given_up.map(|sent| sent.sequence));
        self.deadline_ns = Some(now_ns + self.round_trip.timeout_ns());
    }

    fn next_number(&self) -> u64 {
        self.first + self.outstanding.len() as u64
    }

    fn take(&mut self, number: u64) -> Option<Sent> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let sent = self.outstanding.get_mut(place)?.take()?;
        self.in_flight -= 1;
        Some(sent)
    }

    /// Finds the packets that are so much older than `acknowledged` that they are lost; returns the newest of them.
    fn find_lost(&mut self, acknowledged: u64) -> Option<u64> {
        let mut newest = None;
        while let Some(front) = self.outstanding.front() {
            if front.is_some() && self.first + YOUNGER > acknowledged {
                break;
            }
            if let Some(sent) = front {
                self.lost.insert(sent.sequence);
                self.in_flight -= 1;
                newest = Some(self.first);
            }
            self.outstanding.pop_front();
            self.first += 1;
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::{Sender, Transmission};
    use crate::tcp::Control;

    const ROUND_TRIP_NS: u64 = 10_000_000;

    fn send_all(sender: &mut Sender, now_ns: u64) -> Vec<Transmission> {
        std::iter::from_fn(|| sender.transmit(now_ns)).collect()
    }

    fn acknowledge(sender: &mut Sender, number: u64, marked: bool) {
        let subflows = [sender.as_subflow()];
        sender.acknowledge(number, marked, ROUND_TRIP_NS, &subflows, 0);
    }

    fn started() -> Sender {
        let mut sender = Sender::new(Control::Reno);
        assert!(sender.transmit(0).is_none(), "not started");
        sender.start();
        sender
    }

    #[test]
    fn what_three_younger_ones_overtake_is_sent_again_and_halves_the_window_once() {
        let mut sender = started();
        assert_eq!(send_all(&mut sender, 0).len(), 10);
        acknowledge(&mut sender, 2, false);
        assert!(sender.lost.is_empty(), "not yet");
        for number in [3, 4] {
            acknowledge(&mut sender, number, false);
        }
        assert_eq!(Vec::from_iter(sender.lost.clone()), [0, 1]);
        let halved = sender.window();
        assert_eq!(halved, 5.5, "once for both");
        for number in 5..8 {
            acknowledge(&mut sender, number, true);
        }
        assert_eq!(sender.window(), halved, "one signal per round trip");
        let again = send_all(&mut sender, ROUND_TRIP_NS);
        assert_eq!(
            again[0],
            Transmission {
                number: 10,
                sequence: 0
            }
        );
        assert_eq!(
            again[1],
            Transmission {
                number: 11,
                sequence: 1
            }
        );
        assert_eq!(again[2].sequence, 10);
    }

    #[test]
    fn a_lost_repetition_is_sent_again() {
        let mut sender = started();
        send_all(&mut sender, 0);
        for number in 1..10 {
            acknowledge(&mut sender, number, false);
        }
        let again = send_all(&mut sender, ROUND_TRIP_NS);
        assert_eq!(again[0].sequence, 0);
        for sent in &again[1..] {
            acknowledge(&mut sender, sent.number, false);
        }
        let third = send_all(&mut sender, 2 * ROUND_TRIP_NS);
        assert_eq!(third[0].sequence, 0);
    }

    #[test]
    fn a_timeout_gives_up_all_and_late_answers_change_nothing() {
        let mut sender = started();
        send_all(&mut sender, 0);
        let deadline_ns = sender.deadline_ns().unwrap();
        assert_eq!(deadline_ns, 1_000_000_000);
        sender.expire(deadline_ns);
        assert_eq!(sender.window(), 1.0);
        assert_eq!(
            sender.deadline_ns(),
            Some(3_000_000_000),
            "waits twice as long"
        );
        acknowledge(&mut sender, 3, true);
        assert_eq!(sender.window(), 1.0);
        let again = send_all(&mut sender, deadline_ns);
        assert_eq!(
            again,
            [Transmission {
                number: 10,
                sequence: 0
            }]
        );
    }

    #[test]
    fn a_stopped_sender_waits_for_nothing() {
        let mut sender = started();
        send_all(&mut sender, 0);
        sender.stop();
        acknowledge(&mut sender, 0, false);
        assert_eq!((sender.deadline_ns(), sender.transmit(1)), (None, None));
    }
}
