//! A connection: a client's socket, TLS, and the backend or the fixed answer. [`crate::turn`] moves the bytes between
//! them.

use crate::answer::Answer;
use crate::counts::Failure;
use rustix::event::epoll::EventFlags;
use rustls::{ServerConfig, ServerConnection};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// Limit of the bytes that wait for a slow backend.
pub const WAITING_MAX: usize = 16 << 10;

/// The destination of decrypted bytes.
#[derive(Debug)]
pub enum Far {
    /// None yet: the handshake is not over.
    Unknown,
    /// A backend without a connection yet.
    Awaited,
    /// The backend behind the terminator.
    Backend(Backend),
    /// None: requests are answered here.
    Answer(Answer),
}

/// The backend's side of a connection.
#[derive(Debug)]
pub struct Backend {
    /// The socket to the backend.
    pub socket: TcpStream,
    /// Bytes that the backend has not taken.
    pub waiting: Vec<u8>,
    /// Number of these bytes that were sent.
    pub taken: usize,
    /// True if the backend sends nothing more.
    pub is_done: bool,
    /// True if the end of the stream has been sent to the backend.
    pub is_closed_for_writing: bool,
}

impl Backend {
    /// Creates the backend's side, with bytes to be sent first.
    pub fn new(socket: TcpStream, head: Vec<u8>) -> Self {
        Backend {
            socket,
            waiting: head,
            taken: 0,
            is_done: false,
            is_closed_for_writing: false,
        }
    }

    /// Returns the number of bytes that wait.
    pub fn left(&self) -> usize {
        self.waiting.len() - self.taken
    }
}

/// The progress of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The end has not begun.
    No,
    /// The bytes for the client are being sent; then the end of the stream.
    Sending,
    /// The client got the end of the stream. Its further bytes are discarded, so that the kernel does not reset the
    /// bytes in flight.
    Lingering,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A normal end.
    Closed,
    /// The handshake failed.
    Failed(Failure),
    /// The client or the backend has closed in the middle.
    Broken,
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub client: TcpStream,
    /// TLS.
    pub tls: ServerConnection,
    /// The destination of decrypted bytes.
    pub far: Far,
    /// True if the client sends nothing more.
    pub is_client_done: bool,
    /// The progress of the end.
    pub ending: Ending,
    /// Time at which an idle connection is given up.
    pub deadline: Instant,
    /// The entry in the table of deadlines.
    pub queued: Instant,
    /// The events that the kernel reports: of the client, of the backend.
    pub watched: [EventFlags; 2],
}

impl Connection {
    /// Creates the connection before its first byte.
    ///
    /// # Errors
    /// Memory or random numbers are not available.
    pub fn new(
        client: TcpStream,
        config: &Arc<ServerConfig>,
        deadline: Instant,
    ) -> Result<Self, rustls::Error> {
        let mut tls = ServerConnection::new(Arc::clone(config))?;
        tls.set_buffer_limit(Some(WAITING_MAX));
        Ok(Connection {
            client,
            tls,
            far: Far::Unknown,
            is_client_done: false,
            ending: Ending::No,
            deadline,
            queued: deadline,
            watched: [EventFlags::empty(); 2],
        })
    }

    /// Returns the client's address in the PROXY protocol, version 1.
    pub fn proxy_head(&self) -> Vec<u8> {
        let ends = (self.client.peer_addr(), self.client.local_addr());
        let (Ok(from), Ok(to)) = ends else {
            return b"PROXY UNKNOWN\r\n".to_vec();
        };
        let kind = match from {
            SocketAddr::V4(_) => "TCP4",
            SocketAddr::V6(_) => "TCP6",
        };
        let (a, b) = (from.ip(), to.ip());
        format!("PROXY {kind} {a} {b} {} {}\r\n", from.port(), to.port()).into_bytes()
    }

    /// Returns the events to watch on the two sockets. An empty set removes a socket from the watch: otherwise the
    /// kernel would report its end again and again.
    pub fn wanted(&self) -> [EventFlags; 2] {
        let flag = |is_wanted, flag| if is_wanted { flag } else { EventFlags::empty() };
        let reads = match self.ending {
            Ending::No => !self.is_client_done && self.tls.wants_read(),
            Ending::Sending => false,
            Ending::Lingering => true,
        };
        let client = flag(reads, EventFlags::IN) | flag(self.tls.wants_write(), EventFlags::OUT);
        let backend = match &self.far {
            Far::Backend(backend) if self.ending == Ending::No => {
                let reads = !backend.is_done && !self.tls.wants_write();
                flag(reads, EventFlags::IN) | flag(backend.left() > 0, EventFlags::OUT)
            }
            _ => EventFlags::empty(),
        };
        [client, backend]
    }
}
