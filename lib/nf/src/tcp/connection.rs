//! The segments that belong to a connection, and the connection's state.
//!
//! Windows are followed as the Linux kernel's `nf_conntrack_proto_tcp` does, by Guido van Rooij, "Real Stateful TCP
//! Packet Filtering in IP Filter" (2001), with window scaling (RFC 7323) and SACK (RFC 2018). RST and SYN are believed
//! by RFC 5961: a RST ends a connection only with exactly the sequence number that its receiver expects; other ones in
//! the window, and SYNs, pass to the receiver, whose challenge ACK settles it, and change nothing.
//!
//! A connection is **established** when each end has acknowledged the other's SYN. So a SYN from a forged address,
//! which never sees the sequence number of the answer, establishes nothing, whatever the server answers.
//!
//! **Recovery**: of an end whose history is not known (a connection that was picked up, or comes from an image) the
//! next segment says where it is, until the other end has acknowledged it. Only then are the end's segments checked. So
//! a forged segment in that time changes nothing for good: it would have to come from both sides.

use super::segment::{SCALE_MAX, Segment, before};
use nfluid_wire::TcpFlags;
use serde::{Deserialize, Serialize};

/// Lower bound of the age that an ACK may have, in sequence numbers, as in the kernel's conntrack.
const ACK_AGE_MIN: u32 = 66_000;
/// Largest window that there is (RFC 7323 section 2.3).
const WINDOW_MAX: u32 = 1 << 30;

/// One of the two ends of a connection. The user of this module assigns the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Firewall: the sender of the first packet. NAT: the inside host.
    Near,
    /// The other one.
    Far,
}

impl End {
    pub(crate) const fn other(self) -> End {
        match self {
            End::Near => End::Far,
            End::Far => End::Near,
        }
    }
}

/// Settings of an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Out of the window only RSTs are refused, as with the kernel's `nf_conntrack_tcp_be_liberal`.
    pub(crate) liberal: bool,
    /// A segment after a RST shows that the RST was forged or stale (RFC 6146 section 3.5.2.2, state TRANS).
    pub(crate) revives: bool,
}

/// The segment cannot be one of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfWindow;

/// The effect of a passing segment on the connection's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The timer begins anew, with the time of the present stage.
    Restarts,
    /// No effect: the timer runs on.
    None,
}

/// Stage in the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Segments came from one end only (SYN-SENT).
    Opening,
    /// Both have, and the handshake is not over (SYN-RECEIVED).
    Answered,
    /// Each end has acknowledged the other's SYN.
    Established,
    /// A FIN came from one end.
    Closing,
    /// Both have, or one has sent a RST.
    Closed,
}

/// The known bounds of an end's sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Track {
    /// Behind the last octet that it has sent.
    end: u32,
    /// Behind the last octet that it may send: the right edge of the other end's window.
    end_max: u32,
    /// The largest window that it has offered; 0: unknown.
    window_max: u32,
    /// The octet that the other end expects next, by its last ACK. Before there is one: the sequence number of the SYN.
    expected: u32,
}

/// Flags of one end; those of the far end are [`FAR_SHIFT`] bits higher.
mod of_end {
    /// Has sent a SYN, or was seen to speak.
    pub const SPOKE: u16 = 1;
    /// The SYN of this end has been acknowledged.
    pub const ACKED: u16 = 2;
    pub const FIN: u16 = 4;
    /// The history of this end is not known, or not confirmed by the other end.
    pub const UNSURE: u16 = 8;
    /// The SYN of this end offered window scaling.
    pub const SCALES: u16 = 16;
}
const FAR_SHIFT: u32 = 5;
/// An end has sent a valid RST.
const RESET: u16 = 1 << 10;
/// An end has sent a SYN into the connection; [`Connection::challenge`] is its end.
const CHALLENGED: u16 = 1 << 11;
const CHALLENGER_IS_FAR: u16 = 1 << 12;
/// The flags that an image keeps.
const KEPT: u16 = (RESET - 1) | RESET;

const fn both(flag: u16) -> u16 {
    flag | flag << FAR_SHIFT
}

/// A connection: 40 bytes. The default is a connection of which no segment was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connection {
    tracks: [Track; 2],
    /// Behind the SYN that was sent into the connection: an answer to it shows that a new connection has begun.
    challenge: u32,
    flags: u16,
    /// The shifts of the windows of both ends, 4 bits each.
    scales: u8,
}

/// The record of a connection in an image. Sequence numbers are not in it: the connection has gone on since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    flags: u16,
    scales: u8,
}

impl Summary {
    /// Makes a connection of which only this is known: whether both ends have sent, which end has sent a FIN, whether
    /// an end has sent a RST.
    pub(crate) fn of_old(spoke: [bool; 2], fin: [bool; 2], reset: bool) -> Summary {
        let each = |flag: u16, [near, far]: [bool; 2]| {
            let bit = |has: bool, end: End| if has { at(end, flag) } else { 0 };
            bit(near, End::Near) | bit(far, End::Far)
        };
        let reset = if reset { RESET } else { 0 };
        let acked = if spoke == [true; 2] {
            both(of_end::ACKED)
        } else {
            0
        };
        let flags = each(of_end::SPOKE, spoke) | each(of_end::FIN, fin) | acked;
        Summary {
            flags: flags | both(of_end::SCALES) | reset,
            scales: SCALE_MAX << 4 | SCALE_MAX,
        }
    }
}

impl Connection {
    /// Returns the record for an image.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            flags: self.flags & KEPT,
            scales: self.scales,
        }
    }

    /// Makes a connection from an image, which is not trusted. The connection learns its windows anew.
    pub(crate) fn restored(summary: Summary) -> Connection {
        let scale = |shift: u8| (summary.scales >> shift & 0xf).min(SCALE_MAX) << shift;
        Connection {
            flags: summary.flags & KEPT | both(of_end::UNSURE),
            scales: scale(0) | scale(4),
            ..Connection::default()
        }
    }

    /// Returns the stage of the connection.
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        let all = |flags: u16| self.flags & flags == flags;
        if self.flags & RESET != 0 || all(both(of_end::FIN)) {
            Stage::Closed
        } else if !all(both(of_end::ACKED)) {
            if all(both(of_end::SPOKE)) {
                Stage::Answered
            } else {
                Stage::Opening
            }
        } else if self.flags & both(of_end::FIN) != 0 {
            Stage::Closing
        } else {
            Stage::Established
        }
    }

    /// True if the connection has begun and was never established: it gives way when there is no room for others.
    #[inline]
    pub(crate) fn is_half_open(&self) -> bool {
        self.flags != 0 && self.flags & both(of_end::ACKED) != both(of_end::ACKED)
    }

    /// The stage's name for tables.
    pub(crate) fn name(&self) -> &'static str {
        match self.stage() {
            Stage::Opening => "opening",
            Stage::Answered => "answered",
            Stage::Established => "established",
            Stage::Closing => "closing",
            Stage::Closed if self.flags & RESET != 0 => "reset",
            Stage::Closed => "closed",
        }
    }

    /// Takes note of a segment that `from` has sent.
    ///
    /// # Errors
    /// The segment must not pass.
    #[inline]
    pub(crate) fn segment(
        &mut self,
        from: End,
        segment: &Segment<'_>,
        policy: Policy,
    ) -> Result<Effect, OutOfWindow> {
        let was_closed = self.stage() == Stage::Closed;
        let effect = if segment.has(TcpFlags::RST) {
            self.reset(from, segment)?
        } else if segment.has(TcpFlags::SYN) {
            self.synchronize(from, segment, policy)?
        } else {
            self.exchange(from, segment, policy)?
        };
        let stays_closed = was_closed && self.stage() == Stage::Closed;
        Ok(if stays_closed { Effect::None } else { effect })
    }

    #[inline]
    fn has(&self, end: End, flag: u16) -> bool {
        self.flags & at(end, flag) != 0
    }

    #[inline]
    fn set(&mut self, end: End, flag: u16) {
        self.flags |= at(end, flag);
    }

    #[inline]
    fn knows(&self, end: End) -> bool {
        self.has(end, of_end::SPOKE | of_end::UNSURE)
    }

    #[inline]
    fn track(&mut self, end: End) -> &mut Track {
        &mut self.tracks[end as usize]
    }

    #[inline]
    fn scale(&self, end: End) -> u8 {
        self.scales >> (4 * end as u8) & 0xf
    }

    /// A segment without SYN and RST: in both windows or refused.
    #[inline]
    fn exchange(
        &mut self,
        from: End,
        segment: &Segment<'_>,
        policy: Policy,
    ) -> Result<Effect, OutOfWindow> {
        // RFC 9293 section 3.10.7.4: the receiver drops a segment without ACK.
        if !segment.has(TcpFlags::ACK) {
            return Err(OutOfWindow);
        }
        let to = from.other();
        if self.flags == 0 {
            self.flags = both(of_end::UNSURE | of_end::SCALES);
            self.scales = SCALE_MAX << 4 | SCALE_MAX;
        }
        if !self.knows(from) {
            // A SYN is answered by an ACK: its receiver still has an older connection, and the RST that the ACK brings
            // about will end that (RFC 9293 section 3.5.1, figure 10).
            return Ok(Effect::None);
        }
        let known = self.knows(to);
        if !known || !self.is_in_windows(from, segment) {
            return if policy.liberal {
                self.note_liberally(from, segment)
            } else {
                Err(OutOfWindow)
            };
        }
        self.learn(from, segment);
        self.move_windows(from, segment);
        self.set(from, of_end::SPOKE);
        self.set(to, of_end::ACKED);
        self.finish(from, segment);
        if policy.revives {
            self.flags &= !RESET;
        }
        Ok(Effect::Restarts)
    }

    /// Notes a segment outside of the windows in liberal mode: the windows stay unchanged.
    #[cold]
    fn note_liberally(&mut self, from: End, segment: &Segment<'_>) -> Result<Effect, OutOfWindow> {
        self.finish(from, segment);
        Ok(Effect::Restarts)
    }

    #[inline]
    fn finish(&mut self, from: End, segment: &Segment<'_>) {
        if segment.has(TcpFlags::FIN) {
            self.set(from, of_end::FIN);
        }
    }

    /// The conditions I to IV of van Rooij's paper, and that an ACK in the handshake covers the SYN.
    #[inline]
    fn is_in_windows(&self, from: End, segment: &Segment<'_>) -> bool {
        let to = from.other();
        let (sender, receiver) = (&self.tracks[from as usize], &self.tracks[to as usize]);
        let data = self.has(from, of_end::UNSURE)
            || !before(sender.end_max, segment.seq)
                && (receiver.window_max == 0
                    || !before(segment.end, sender.end.wrapping_sub(receiver.window_max)));
        let ack = self.has(to, of_end::UNSURE) || {
            let highest = segment.highest_ack();
            let oldest = receiver
                .end
                .wrapping_sub(sender.window_max.max(ACK_AGE_MIN));
            !before(receiver.end, highest)
                && !before(highest, oldest)
                && (self.has(to, of_end::ACKED) || before(receiver.expected, segment.ack))
        };
        data && ack
    }

    /// Recovery: takes over what a segment shows of ends whose history is not known.
    #[inline]
    fn learn(&mut self, from: End, segment: &Segment<'_>) {
        if self.flags & both(of_end::UNSURE) != 0 {
            self.learn_anew(from, segment);
        }
    }

    #[inline(never)]
    fn learn_anew(&mut self, from: End, segment: &Segment<'_>) {
        let (to, window) = (from.other(), self.window(from, segment));
        let has_window = window.max(1);
        if self.has(from, of_end::UNSURE) {
            let sender = self.track(from);
            if sender.end_max == 0 {
                sender.expected = segment.seq;
            }
            sender.end = segment.end;
            sender.end_max = segment.end.wrapping_add(has_window);
            sender.window_max = has_window;
        }
        if self.has(to, of_end::UNSURE) {
            let age_max = self.track(from).window_max.max(ACK_AGE_MIN);
            let receiver = self.track(to);
            let confirms = receiver.window_max != 0
                && !before(receiver.end, segment.ack)
                && !before(segment.ack, receiver.end.wrapping_sub(age_max));
            receiver.expected = segment.ack;
            receiver.end_max = segment.ack.wrapping_add(has_window);
            if confirms {
                self.flags &= !at(to, of_end::UNSURE);
            } else {
                // The receiver has to send a segment itself before the other end can confirm it.
                receiver.window_max = 0;
                receiver.end = segment.ack;
            }
        }
    }

    /// Returns the window that the sender has offered, in octets.
    #[inline]
    fn window(&self, from: End, segment: &Segment<'_>) -> u32 {
        // The window of a SYN is not scaled (RFC 7323 section 2.2).
        let scale = if segment.has(TcpFlags::SYN) {
            0
        } else {
            self.scale(from)
        };
        segment.window << scale
    }

    /// Takes over the values of a segment in both windows.
    #[inline]
    fn move_windows(&mut self, from: End, segment: &Segment<'_>) {
        let highest = segment.highest_ack();
        let window = self.window(from, segment);
        let [near, far] = &mut self.tracks;
        let (sender, receiver) = match from {
            End::Near => (near, far),
            End::Far => (far, near),
        };
        let offered = window.saturating_add(highest.wrapping_sub(segment.ack));
        sender.window_max = sender.window_max.max(offered.min(WINDOW_MAX));
        if before(sender.end, segment.end) {
            sender.end = segment.end;
        }
        // The segment may be as long as the other end allows.
        if !segment.whole && before(sender.end, sender.end_max) {
            sender.end = sender.end_max;
        }
        if before(sender.end_max, segment.end) && receiver.window_max != 0 {
            let more = segment.end.wrapping_sub(sender.end_max);
            receiver.window_max = receiver.window_max.saturating_add(more).min(WINDOW_MAX);
        }
        // A closed window is probed with one octet.
        let edge = highest.wrapping_add(window.max(1));
        if before(receiver.end_max, edge) {
            receiver.end_max = edge;
        }
        if before(receiver.expected, segment.ack) {
            receiver.expected = segment.ack;
        }
    }

    /// A RST: see RFC 5961 section 3.
    #[cold]
    fn reset(&mut self, from: End, segment: &Segment<'_>) -> Result<Effect, OutOfWindow> {
        let (track, other) = (
            self.tracks[from as usize],
            self.tracks[from.other() as usize],
        );
        if self.flags == 0 {
            return Err(OutOfWindow);
        }
        if self.stage() == Stage::Closed {
            // No connection to end. Some stacks send a RST with the number of their FIN.
            return Ok(Effect::None);
        }
        if !self.knows(from) {
            // The answer to a SYN has to acknowledge it (RFC 9293 section 3.10.7.3).
            let acknowledges = segment.has(TcpFlags::ACK)
                && before(other.expected, segment.ack)
                && !before(other.end, segment.ack);
            return if acknowledges {
                Ok(self.end_by_reset())
            } else {
                Err(OutOfWindow)
            };
        }
        let unsure = self.has(from, of_end::UNSURE);
        let tracked = !unsure || track.end_max != 0;
        if tracked && (segment.seq == track.expected || segment.seq == track.end) {
            return Ok(self.end_by_reset());
        }
        // An end that opens a connection may get an ACK of an older connection, and answers with a RST that ends the
        // older one.
        let ends_older = self.stage() == Stage::Opening && !self.knows(from.other());
        if unsure || ends_older {
            return Ok(Effect::None);
        }
        if before(segment.seq, track.expected) || before(track.end_max, segment.seq) {
            return Err(OutOfWindow);
        }
        // The receiver sends a challenge ACK. If the sender means it, its next RST is exact.
        Ok(Effect::None)
    }

    fn end_by_reset(&mut self) -> Effect {
        self.flags |= RESET;
        Effect::Restarts
    }

    /// A SYN, with or without ACK.
    #[cold]
    fn synchronize(
        &mut self,
        from: End,
        segment: &Segment<'_>,
        policy: Policy,
    ) -> Result<Effect, OutOfWindow> {
        if segment.has(TcpFlags::ACK) {
            return self.answer(from, segment, policy);
        }
        let to = from.other();
        let is_anew = self.stage() == Stage::Closed
            || self.stage() == Stage::Opening
                && self.has(from, of_end::SPOKE)
                && !self.has(to, of_end::SPOKE);
        if is_anew {
            *self = Connection::default();
        } else if self.knows(from) {
            // RFC 5961 section 4: whatever its sequence number, the receiver answers with a challenge ACK. If it
            // answers with a SYN-ACK instead, both ends have forgotten this connection.
            if self.has(from, of_end::UNSURE) || segment.end != self.track(from).end {
                self.challenge = segment.end;
                self.flags &= !CHALLENGER_IS_FAR;
                self.flags |= CHALLENGED
                    | if from == End::Far {
                        CHALLENGER_IS_FAR
                    } else {
                        0
                    };
            }
            return Ok(Effect::None);
        }
        self.begin(from, segment);
        Ok(Effect::Restarts)
    }

    /// A SYN-ACK.
    fn answer(
        &mut self,
        from: End,
        segment: &Segment<'_>,
        policy: Policy,
    ) -> Result<Effect, OutOfWindow> {
        let to = from.other();
        let challenger = if self.flags & CHALLENGER_IS_FAR == 0 {
            End::Near
        } else {
            End::Far
        };
        if self.flags & CHALLENGED != 0 && challenger == to && segment.ack == self.challenge {
            // The SYN's window and options were not kept. Larger ones than it had are a bound too.
            let track = Track {
                end: self.challenge,
                end_max: self.challenge,
                window_max: u32::from(u16::MAX),
                expected: self.challenge.wrapping_sub(1),
            };
            *self = Connection::default();
            *self.track(to) = track;
            self.set(to, of_end::SPOKE | of_end::SCALES);
            self.scales = SCALE_MAX << (4 * to as u8);
        }
        if !self.is_half_open()
            || !self.has(to, of_end::SPOKE)
            || self.flags & both(of_end::UNSURE) != 0
        {
            return self.exchange(from, segment, policy);
        }
        let opener = self.tracks[to as usize];
        // Sent again, it may acknowledge what has been acknowledged.
        let known = opener
            .expected
            .wrapping_sub(u32::from(self.has(to, of_end::ACKED)));
        if !before(known, segment.ack) || before(opener.end, segment.ack) {
            return Err(OutOfWindow);
        }
        self.begin(from, segment);
        self.track(from).end_max = segment.end.wrapping_add(opener.window_max);
        let opener = self.track(to);
        opener.expected = segment.ack;
        opener.end_max = segment.ack.wrapping_add(segment.window.max(1));
        self.set(to, of_end::ACKED);
        Ok(Effect::Restarts)
    }

    /// An end begins with this SYN.
    fn begin(&mut self, from: End, segment: &Segment<'_>) {
        *self.track(from) = Track {
            end: segment.end,
            end_max: segment.end,
            window_max: segment.window.max(1),
            expected: segment.seq,
        };
        let offer = segment.window_scale();
        self.scales &= !(0xf << (4 * from as u8));
        self.scales |= offer.unwrap_or_default() << (4 * from as u8);
        self.flags &= !at(from, of_end::SCALES);
        self.set(
            from,
            of_end::SPOKE | if offer.is_some() { of_end::SCALES } else { 0 },
        );
        // Both have to offer it (RFC 7323 section 1.3).
        let answered = self.has(from.other(), of_end::SPOKE);
        if answered && self.flags & both(of_end::SCALES) != both(of_end::SCALES) {
            self.scales = 0;
        }
    }
}

#[inline]
const fn at(end: End, flag: u16) -> u16 {
    flag << (FAR_SHIFT * end as u32)
}

const _: () = assert!(size_of::<Connection>() == 40);
