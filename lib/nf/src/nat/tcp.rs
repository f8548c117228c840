//! What a NAT must know about a TCP connection: the state machine of RFC 6146 section 3.5.2, which
//! RFC 7857 section 2 prescribes for NAT44 too, kept as the set of what has been seen.

use nfluid_wire::TcpFlags;
use serde::{Deserialize, Serialize};

/// Who sent a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Inside,
    Outside,
}

/// Which of the two timeouts of RFC 5382 section 5 holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Opening, closing or reset.
    Transitory,
    /// Both sides have sent a SYN, and not both a FIN.
    Established,
}

/// The state of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Connection(u8);

const SYN_INSIDE: u8 = 1;
const SYN_OUTSIDE: u8 = 2;
const FIN_INSIDE: u8 = 4;
const FIN_OUTSIDE: u8 = 8;
const RESET: u8 = 16;
const ESTABLISHED: u8 = SYN_INSIDE | SYN_OUTSIDE;
const CLOSED: u8 = FIN_INSIDE | FIN_OUTSIDE;

impl Connection {
    /// A connection whose opening was not seen, taken as established.
    pub(super) const PICKED_UP: Connection = Connection(ESTABLISHED);

    /// Takes note of a segment. Returns the phase if the connection's timer starts anew, `None`
    /// if it runs on: a closed connection is not kept alive by what still trickles in.
    #[inline]
    pub(super) fn segment(&mut self, sender: Sender, flags: TcpFlags) -> Option<Phase> {
        let (syn, fin) = match sender {
            Sender::Inside => (SYN_INSIDE, FIN_INSIDE),
            Sender::Outside => (SYN_OUTSIDE, FIN_OUTSIDE),
        };
        if flags.contains(TcpFlags::RST) {
            self.0 |= RESET;
            return Some(Phase::Transitory);
        }
        let over = self.0 & CLOSED == CLOSED || self.0 & RESET != 0;
        if flags.contains(TcpFlags::SYN) {
            // The same ports again: a new connection, in its first state.
            let before = if over { 0 } else { self.0 };
            self.0 = before | syn;
            return Some(self.phase());
        }
        if self.0 & CLOSED == CLOSED {
            return None;
        }
        // Anything but a RST after a RST: the RST was forged or stale (RFC 6146, state TRANS).
        self.0 &= !RESET;
        if flags.contains(TcpFlags::FIN) {
            self.0 |= fin;
        }
        Some(self.phase())
    }

    #[inline]
    pub(super) fn phase(self) -> Phase {
        let established = self.0 & ESTABLISHED == ESTABLISHED;
        let over = self.0 & CLOSED == CLOSED || self.0 & RESET != 0;
        if established && !over {
            Phase::Established
        } else {
            Phase::Transitory
        }
    }

    /// Without bits that mean nothing.
    pub(super) fn checked(self) -> Connection {
        Connection(self.0 & (ESTABLISHED | CLOSED | RESET))
    }

    /// The state's name for tables.
    pub(super) fn name(self) -> &'static str {
        match self.0 {
            state if state & RESET != 0 => "reset",
            state if state & CLOSED == CLOSED => "closed",
            state if state & CLOSED != 0 => "closing",
            state if state & ESTABLISHED == ESTABLISHED => "established",
            _ => "opening",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Phase::{Established, Transitory};
    use super::Sender::{Inside, Outside};
    use super::*;

    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;
    const FIN: TcpFlags = TcpFlags::FIN;
    const RST: TcpFlags = TcpFlags::RST;

    fn play(segments: &[(Sender, TcpFlags)]) -> (Connection, Option<Phase>) {
        let mut connection = Connection::default();
        let mut timer = None;
        for &(sender, flags) in segments {
            timer = connection.segment(sender, flags);
        }
        (connection, timer)
    }

    #[test]
    fn a_handshake_establishes() {
        let opening = [(Inside, SYN), (Outside, SYN | ACK), (Inside, ACK)];
        assert_eq!(play(&opening[..1]).1, Some(Transitory));
        assert_eq!(play(&opening[..2]).1, Some(Established));
        assert_eq!(play(&opening).0.name(), "established");
    }

    #[test]
    fn a_simultaneous_open_establishes() {
        assert_eq!(play(&[(Inside, SYN), (Outside, SYN)]).1, Some(Established));
    }

    #[test]
    fn one_side_alone_cannot_establish() {
        let flood = [
            (Outside, SYN),
            (Outside, ACK),
            (Outside, SYN),
            (Outside, ACK),
        ];
        assert_eq!(play(&flood).1, Some(Transitory));
    }

    #[test]
    fn two_fins_close_and_the_timer_runs_on() {
        let mut segments = std::vec![(Inside, SYN), (Outside, SYN | ACK), (Inside, FIN | ACK)];
        assert_eq!(play(&segments).1, Some(Established), "half closed");
        segments.push((Outside, FIN | ACK));
        assert_eq!(play(&segments).1, Some(Transitory));
        segments.push((Inside, ACK));
        let (closed, timer) = play(&segments);
        assert_eq!((closed.name(), timer), ("closed", None));
    }

    #[test]
    fn a_syn_reopens_a_closed_connection() {
        let (mut connection, _) =
            play(&[(Inside, SYN), (Outside, SYN), (Inside, FIN), (Outside, FIN)]);
        assert_eq!(connection.segment(Inside, SYN), Some(Transitory));
        assert_eq!(connection.segment(Outside, SYN | ACK), Some(Established));
    }

    #[test]
    fn data_after_a_reset_shows_that_the_reset_was_forged() {
        let (mut connection, _) = play(&[(Inside, SYN), (Outside, SYN | ACK), (Outside, RST)]);
        assert_eq!(
            (connection.name(), connection.phase()),
            ("reset", Transitory)
        );
        assert_eq!(connection.segment(Inside, ACK), Some(Established));
    }
}
