//! A connection: a client's socket, TLS, and what is behind it. What moves between them is in [`crate::turn`].

use crate::answer::Answer;
use crate::counts::Failure;
use rustix::event::epoll::EventFlags;
use rustls::{ServerConfig, ServerConnection};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that may wait for a backend that does not take them.
pub const WAITING_MAX: usize = 16 << 10;

/// Where decrypted bytes go.
#[derive(Debug)]
pub enum Far {
    /// Nowhere yet: the handshake is not over.
    Unknown,
    /// To a backend to which there is no connection yet.
    Awaited,
    /// To a backend.
    Backend(Backend),
    /// Nowhere: requests are answered here.
    Answer(Answer),
}

/// The other side of a connection.
#[derive(Debug)]
pub struct Backend {
    /// The connection to it.
    pub socket: TcpStream,
    /// Bytes for it that it has not taken.
    pub waiting: Vec<u8>,
    /// How many of them it has.
    pub taken: usize,
    /// It sends nothing more.
    pub is_done: bool,
    /// It knows that nothing more comes.
    pub is_told: bool,
}

impl Backend {
    /// With these bytes to be sent first.
    pub fn new(socket: TcpStream, head: Vec<u8>) -> Self {
        Backend {
            socket,
            waiting: head,
            taken: 0,
            is_done: false,
            is_told: false,
        }
    }

    /// Bytes that wait.
    pub fn left(&self) -> usize {
        self.waiting.len() - self.taken
    }
}

/// How far its end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has not begun.
    No,
    /// What waits for the client is sent, then it is told that nothing more comes.
    Sending,
    /// The client was told; what it still sends is thrown away, so that the kernel does not reset what is on its way.
    Lingering,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Closed,
    /// The handshake has not succeeded.
    Failed(Failure),
    /// The client or the backend has gone in the middle.
    Broken,
}

/// One client.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub client: TcpStream,
    /// TLS.
    pub tls: ServerConnection,
    /// What is behind.
    pub far: Far,
    /// The client sends nothing more.
    pub is_client_done: bool,
    /// Whether it is about to end.
    pub ending: Ending,
    /// When it is given up if nothing happens.
    pub deadline: Instant,
    /// The time that is among the deadlines for it.
    pub queued: Instant,
    /// What the kernel was asked to tell: of the client, of the backend.
    pub watched: [EventFlags; 2],
}

impl Connection {
    /// Before its first byte.
    ///
    /// # Errors
    /// There is not enough memory, or no random number.
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

    /// Who the client is, by the PROXY protocol, version 1.
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

    /// What is to be told of the two sockets; nothing of one means that it is not to be looked at: else the kernel would
    /// tell of its end again and again.
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
