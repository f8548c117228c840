//! One turn of a connection: moves as many bytes as possible between client, TLS and backend, within bounds.
//!
//! Bytes are read only if a buffer has room: a receiver that takes no bytes stops its own sender, and no other
//! connection.

use crate::answer::Answer;
use crate::connection::{Backend, Connection, End, Ending, Far, WAITING_MAX};
use crate::counts::{Counts, Failure};
use nfluid_tls::config::Behind;
use rustls::HandshakeKind;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Rounds of one turn, before other connections get their turn.
const ROUNDS: u32 = 8;
/// Size of one read.
pub const PIECE: usize = 16 << 10;

/// The state that all connections share during a turn.
pub struct Surroundings<'a> {
    /// The counters.
    pub counts: &'a mut Counts,
    /// Room for [`PIECE`] bytes.
    pub scratch: &'a mut [u8],
    /// The backend or the fixed answer.
    pub behind: &'a Behind,
    /// True if the terminator is to end.
    pub is_draining: bool,
}

/// The next step for a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Waits for its sockets.
    Wait,
    /// The connection can continue at once.
    Again,
    /// Needs a connection to the backend.
    Backend,
    /// Is over.
    End(End),
}

impl Connection {
    /// Moves as many bytes as possible.
    pub fn turn(&mut self, around: &mut Surroundings<'_>) -> Next {
        for _ in 0..ROUNDS {
            match self.round(around) {
                Ok(true) => {}
                Ok(false) => return Next::Wait,
                Err(next) => return next,
            }
        }
        Next::Again
    }

    /// Moves bytes in each direction. Returns true if any byte was moved.
    fn round(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Next> {
        match self.ending {
            Ending::No => {}
            Ending::Sending => return self.send_rest(),
            Ending::Lingering => return self.linger(around.scratch),
        }
        let was_handshaking = self.tls.is_handshaking();
        let mut moved = self.read_client()?;
        moved |= self.write_client()?;
        if was_handshaking {
            if self.tls.is_handshaking() {
                return Ok(moved);
            }
            around.counts.handshakes += 1;
            let resumed = self.tls.handshake_kind() == Some(HandshakeKind::Resumed);
            around.counts.resumed += u64::from(resumed);
        }
        if matches!(self.far, Far::Unknown) {
            match around.behind {
                Behind::Answer(_) => self.far = Far::Answer(Answer::default()),
                Behind::Backend { .. } => {
                    self.far = Far::Awaited;
                    return Err(Next::Backend);
                }
            }
        }
        moved |= self.pass(around)?;
        moved |= self.write_client()?;
        Ok(moved)
    }

    /// Reads from the client into TLS.
    fn read_client(&mut self) -> Result<bool, Next> {
        if self.is_client_done || !self.tls.wants_read() {
            return Ok(false);
        }
        match self.tls.read_tls(&mut &self.client) {
            Ok(0) if self.tls.is_handshaking() => Err(Next::End(End::Failed(Failure::Left))),
            Ok(0) => {
                self.is_client_done = true;
                Ok(true)
            }
            Ok(_) => match self.tls.process_new_packets() {
                Ok(state) => {
                    self.is_client_done = state.peer_has_closed();
                    Ok(true)
                }
                Err(error) => {
                    // Sends the alert. The client may not read it, and nothing is lost then.
                    let _ = self.tls.write_tls(&mut &self.client);
                    Err(Next::End(self.broke(Failure::from(&error))))
                }
            },
            Err(error) => self.stalled(&error),
        }
    }

    /// Writes from TLS to the client.
    fn write_client(&mut self) -> Result<bool, Next> {
        let mut moved = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &self.client) {
                Ok(0) => return Ok(moved),
                Ok(_) => moved = true,
                Err(error) => return self.stalled(&error).map(|retry| moved | retry),
            }
        }
        Ok(moved)
    }

    /// Returns whether to try again at once, after an error of the client's socket.
    fn stalled(&self, error: &io::Error) -> Result<bool, Next> {
        match error.kind() {
            ErrorKind::WouldBlock => Ok(false),
            ErrorKind::Interrupted => Ok(true),
            _ => Err(Next::End(self.broke(Failure::Left))),
        }
    }

    fn broke(&self, why: Failure) -> End {
        if self.tls.is_handshaking() {
            End::Failed(why)
        } else {
            End::Broken
        }
    }

    /// Moves bytes between TLS and the backend or the fixed answer.
    fn pass(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Next> {
        let Connection {
            tls,
            far,
            is_client_done,
            ..
        } = self;
        let (moved, is_over) = match far {
            // The client's bytes stay in TLS, which then reads no more.
            Far::Unknown | Far::Awaited => (false, false),
            Far::Answer(answer) => {
                let moved = answered(tls, answer, around)?;
                let has_no_more = *is_client_done && !moved && !tls.wants_write();
                (moved, answer.is_over() || has_no_more)
            }
            Far::Backend(backend) => {
                let mut moved = forward(tls, backend, around)?;
                moved |= fetch(tls, backend, around)?;
                if *is_client_done
                    && backend.left() == 0
                    && !moved
                    && !backend.is_closed_for_writing
                {
                    backend.is_closed_for_writing = true;
                    // A backend that is gone is noticed by the next read.
                    let _ = backend.socket.shutdown(Shutdown::Write);
                }
                (moved, backend.is_done)
            }
        };
        if is_over {
            self.begin_end();
        }
        Ok(moved || is_over)
    }

    /// Begins the end of the client's side.
    pub fn begin_end(&mut self) {
        if self.ending == Ending::No {
            self.tls.send_close_notify();
            self.ending = Ending::Sending;
        }
    }

    fn send_rest(&mut self) -> Result<bool, Next> {
        let moved = self.write_client()?;
        if self.tls.wants_write() {
            return Ok(moved);
        }
        if self.is_client_done || self.client.shutdown(Shutdown::Write).is_err() {
            return Err(Next::End(End::Closed));
        }
        self.ending = Ending::Lingering;
        Ok(true)
    }

    fn linger(&mut self, scratch: &mut [u8]) -> Result<bool, Next> {
        match (&self.client).read(scratch) {
            Ok(read) if read > 0 => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            _ => Err(Next::End(End::Closed)),
        }
    }
}

/// Reads decrypted bytes; `None` if there are none.
fn decrypted(
    tls: &mut rustls::ServerConnection,
    room: usize,
    around: &mut Surroundings<'_>,
) -> Result<usize, Next> {
    let room = room.min(around.scratch.len());
    if room == 0 {
        return Ok(0);
    }
    match tls.reader().read(&mut around.scratch[..room]) {
        Ok(read) => {
            around.counts.received_bytes += read as u64;
            Ok(read)
        }
        // No bytes now; or none any more, without a close_notify of the client.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::UnexpectedEof
            ) =>
        {
            Ok(0)
        }
        Err(_) => Err(Next::End(End::Broken)),
    }
}

/// Answers at most one request, after all earlier answers have been sent.
fn answered(
    tls: &mut rustls::ServerConnection,
    answer: &mut Answer,
    around: &mut Surroundings<'_>,
) -> Result<bool, Next> {
    let Behind::Answer(body) = around.behind else {
        return Err(Next::End(End::Broken));
    };
    let read = decrypted(tls, answer.room(), around)?;
    answer.take(&around.scratch[..read]);
    if tls.wants_write() {
        return Ok(read > 0);
    }
    let Some(text) = answer.next(body, around.is_draining) else {
        return Ok(read > 0);
    };
    // The buffer has room for the answer, since nothing else waits.
    let written = tls.writer().write(&text);
    if written.is_ok_and(|written| written == text.len()) {
        around.counts.answered += 1;
        around.counts.sent_bytes += text.len() as u64;
        Ok(true)
    } else {
        Err(Next::End(End::Broken))
    }
}

/// Moves bytes from TLS to the backend.
fn forward(
    tls: &mut rustls::ServerConnection,
    backend: &mut Backend,
    around: &mut Surroundings<'_>,
) -> Result<bool, Next> {
    let read = decrypted(tls, WAITING_MAX.saturating_sub(backend.left()), around)?;
    if read > 0 {
        backend.waiting.drain(..backend.taken);
        backend.taken = 0;
        backend.waiting.extend_from_slice(&around.scratch[..read]);
    }
    let mut moved = read > 0;
    while let Some(rest) = backend
        .waiting
        .get(backend.taken..)
        .filter(|rest| !rest.is_empty())
    {
        match backend_moved((&backend.socket).write(rest))? {
            Some(0) | None => break,
            Some(written) => {
                backend.taken += written;
                moved = true;
            }
        }
    }
    if backend.left() == 0 {
        // An idle connection holds no memory for this.
        backend.waiting = Vec::new();
        backend.taken = 0;
    }
    Ok(moved)
}

/// Moves bytes from the backend to TLS, after all earlier ones have been sent.
fn fetch(
    tls: &mut rustls::ServerConnection,
    backend: &mut Backend,
    around: &mut Surroundings<'_>,
) -> Result<bool, Next> {
    if backend.is_done || tls.wants_write() {
        return Ok(false);
    }
    let Some(read) = backend_moved((&backend.socket).read(around.scratch))? else {
        return Ok(false);
    };
    backend.is_done = read == 0;
    let bytes = &around.scratch[..read];
    match tls.writer().write(bytes) {
        Ok(written) if written == read => {}
        _ => return Err(Next::End(End::Broken)),
    }
    around.counts.sent_bytes += read as u64;
    Ok(true)
}

/// Returns the number of bytes that a call on the backend's socket has moved; `None`: the call would block.
fn backend_moved(result: io::Result<usize>) -> Result<Option<usize>, Next> {
    match result {
        Ok(moved) => Ok(Some(moved)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(_) => Err(Next::End(End::Broken)),
    }
}

/// Attaches a requested backend connection.
pub fn attach(connection: &mut Connection, socket: TcpStream, behind: &Behind) {
    let is_told_first = matches!(
        behind,
        Behind::Backend {
            proxy_protocol: true,
            ..
        }
    );
    let head = if is_told_first {
        connection.proxy_head()
    } else {
        Vec::new()
    };
    connection.far = Far::Backend(Backend::new(socket, head));
}
