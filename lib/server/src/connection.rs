//! The connection of a client: bytes that the client has sent, and bytes that TCP does not have yet.

use crate::service::{Answer, Service, UnixTime};
use alloc::vec::Vec;
use nfluid_nf::Nanos;
use smoltcp::socket::tcp::{Socket, State};

/// Time for a request, from the connection or from the last answer.
const REQUEST_TIME: Nanos = Nanos(10_000_000_000);
/// Time for an answer to arrive, and for the client to close.
const ANSWER_TIME: Nanos = Nanos(30_000_000_000);

/// Counters of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Connections that were established.
    pub accepted: u64,
    /// Answers.
    pub answers: u64,
    /// Connections that were ended because the client was too slow.
    pub timed_out: u64,
    /// Connections that were never established, and gave way to others.
    pub given_up: u64,
}

/// A connection, or a socket that waits for one.
#[derive(Debug, Default)]
pub struct Connection {
    /// Set while there is a client: the time at which the connection ends if nothing happens.
    deadline: Option<Nanos>,
    /// The connection is established.
    is_open: bool,
    said: Vec<u8>,
    unsent: Vec<u8>,
    /// Bytes of `unsent` that TCP has.
    handed_over: usize,
    closes: bool,
}

impl Connection {
    /// Returns true if a connection is established, or was and has not ended.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the time at which it ends if nothing happens.
    pub fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Returns true if its client has come at this time.
    pub fn is_of(&self, now: Nanos) -> bool {
        self.deadline == Some(Nanos(now.0 + REQUEST_TIME.0))
    }

    /// Forgets the client.
    pub fn reset(&mut self) {
        *self = Connection::default();
    }

    /// Does what there is to do.
    pub fn serve<S: Service>(
        &mut self,
        socket: &mut Socket<'_>,
        service: &S,
        now: Nanos,
        time: UnixTime,
        counts: &mut Connections,
    ) {
        match socket.state() {
            // Also after a client that has said no to the server's answer: the socket waits for the next one.
            State::Listen => return self.reset(),
            State::TimeWait | State::Closed => return,
            _ => {}
        }
        let first = Nanos(now.0 + REQUEST_TIME.0);
        let deadline = *self.deadline.get_or_insert(first);
        if now >= deadline {
            counts.timed_out += 1;
            socket.abort();
            return;
        }
        if socket.state() == State::SynReceived {
            return;
        }
        if !self.is_open {
            self.is_open = true;
            counts.accepted += 1;
        }
        loop {
            self.send(socket, now);
            if !self.unsent.is_empty() {
                return;
            }
            if self.closes {
                socket.close();
                return;
            }
            self.listen::<S>(socket);
            match service.answer(time, &self.said) {
                Answer::Wait if socket.may_recv() && self.said.len() < S::LONGEST_REQUEST => return,
                // There will be no more, or more than the service wants to hear.
                Answer::Wait => self.closes = true,
                Answer::Say {
                    bytes,
                    understood,
                    closes,
                } => {
                    counts.answers += 1;
                    self.said.drain(..understood.min(self.said.len()));
                    self.unsent = bytes;
                    self.closes = closes;
                    self.deadline = Some(Nanos(now.0 + ANSWER_TIME.0));
                }
            }
        }
    }

    /// Hands over to TCP what it has room for.
    fn send(&mut self, socket: &mut Socket<'_>, now: Nanos) {
        if self.unsent.is_empty() {
            return;
        }
        let rest = &self.unsent[self.handed_over..];
        self.handed_over += socket.send_slice(rest).unwrap_or(rest.len());
        if self.handed_over == self.unsent.len() {
            self.unsent = Vec::new();
            self.handed_over = 0;
            if !self.closes {
                self.deadline = Some(Nanos(now.0 + REQUEST_TIME.0));
            }
        }
    }

    /// Takes what the client has said, up to the longest request.
    fn listen<S: Service>(&mut self, socket: &mut Socket<'_>) {
        while self.said.len() < S::LONGEST_REQUEST && socket.can_recv() {
            let room = S::LONGEST_REQUEST - self.said.len();
            let taken = socket.recv(|bytes| {
                let taken = bytes.len().min(room);
                self.said.extend_from_slice(&bytes[..taken]);
                (taken, taken)
            });
            if !matches!(taken, Ok(1..)) {
                return;
            }
        }
    }
}
