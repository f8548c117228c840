//! A connector: makes connections to one server for a terminator, and passes them on. The connector never reads from
//! them.
//!
//! Connector and terminator are separate processes. An attacker who takes over a terminator, which parses untrusted
//! data and has a key, can open no connection. The connector, which can open connections, reads no data. A request is a
//! number of 8 bytes on a socket that keeps message boundaries. The answer is that number, a byte, and the connection.
//! The connector ends when its terminator does.

use anyhow::{Context, bail};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, connect, recv, sendmsg, socket_with, sockopt,
};
use std::collections::HashMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time in which a server has to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The terminator's number among events; no request has this number.
pub const TERMINATOR: u64 = u64::MAX;

/// The result of a request: the byte of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// The connection comes with the message.
    Connected = 0,
    /// The server refuses.
    Refused = 1,
    /// The server does not answer.
    Timeout = 2,
    /// The server has no route, or no descriptor is left.
    Unreachable = 3,
}

impl Outcome {
    /// Decodes a byte.
    pub fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Connected,
            Self::Refused,
            Self::Timeout,
            Self::Unreachable,
        ];
        all.into_iter().find(|became| *became as u8 == byte)
    }
}

impl From<Errno> for Outcome {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNREFUSED => Outcome::Refused,
            Errno::TIMEDOUT => Outcome::Timeout,
            _ => Outcome::Unreachable,
        }
    }
}

struct Pending {
    socket: OwnedFd,
    until: Instant,
}

/// Serves until the terminator ends. `most` is the terminator's limit of connections: at most this many are in
/// progress at once.
///
/// # Errors
/// The kernel refuses a resource that the connector cannot do without.
pub fn run(terminator: OwnedFd, server: SocketAddr, most: usize) -> anyhow::Result<()> {
    let mut connector = Connector::new(terminator, server, most)?;
    while connector.step(None)?.is_some() {}
    Ok(())
}

/// A connector.
struct Connector {
    epoll: OwnedFd,
    terminator: OwnedFd,
    server: SocketAddr,
    pending: HashMap<u64, Pending>,
    pending_max: usize,
}

impl Connector {
    fn new(terminator: OwnedFd, server: SocketAddr, most: usize) -> anyhow::Result<Self> {
        let connector = Connector {
            epoll: epoll::create(CreateFlags::CLOEXEC).context("epoll")?,
            terminator,
            server,
            pending: HashMap::new(),
            pending_max: most,
        };
        connector.watch(&connector.terminator, TERMINATOR, EventFlags::IN)?;
        Ok(connector)
    }

    fn watch(&self, fd: impl AsFd, number: u64, flags: EventFlags) -> anyhow::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(number), flags).context("watching a socket")
    }

    /// Waits for events, for at most `patience`, and handles them. Returns the number of events; `None`: the
    /// terminator has ended.
    fn step(&mut self, patience: Option<Duration>) -> anyhow::Result<Option<usize>> {
        let mut events = Vec::with_capacity(64);
        let next = self.pending.values().map(|one| one.until).min();
        let wait = next.map(|at| at.saturating_duration_since(Instant::now()));
        let wait = wait.into_iter().chain(patience).min();
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            wait.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("waiting"),
        }
        for event in &events {
            let (number, flags) = (event.data.u64(), event.flags);
            if number != TERMINATOR {
                if let Some(one) = self.pending.remove(&number) {
                    self.finish(number, &one.socket)?;
                }
            } else if !self.asked()? && flags.intersects(EventFlags::HUP) {
                return Ok(None);
            }
        }
        let now = Instant::now();
        let late = self.pending.extract_if(|_, one| one.until <= now);
        for (number, _) in late {
            answer(&self.terminator, number, Outcome::Timeout, None)?;
        }
        Ok(Some(events.len()))
    }

    /// Begins the terminator's next request. Returns true if there was one.
    fn asked(&mut self) -> anyhow::Result<bool> {
        let Some(number) = request(&self.terminator)? else {
            return Ok(false);
        };
        let is_taken = number == TERMINATOR || self.pending.contains_key(&number);
        if self.pending.len() >= self.pending_max || is_taken {
            answer(&self.terminator, number, Outcome::Unreachable, None)?;
            return Ok(true);
        }
        match begin(self.server) {
            Ok(socket) => {
                self.watch(&socket, number, EventFlags::OUT)?;
                let until = Instant::now() + PATIENCE;
                self.pending.insert(number, Pending { socket, until });
            }
            Err(errno) => answer(&self.terminator, number, errno.into(), None)?,
        }
        Ok(true)
    }

    /// Ends a connection attempt: the socket is connected, or has failed.
    fn finish(&self, number: u64, socket: &OwnedFd) -> anyhow::Result<()> {
        // Closing this copy does not end the watch, since the terminator holds the socket too.
        epoll::delete(&self.epoll, socket).context("leaving a socket alone")?;
        match sockopt::socket_error(socket).context("asking a socket")? {
            Ok(()) => {
                let connection = Some(socket.as_fd());
                answer(&self.terminator, number, Outcome::Connected, connection)
            }
            Err(errno) => answer(&self.terminator, number, errno.into(), None),
        }
    }
}

/// Reads the next request; `None` if the terminator has none.
fn request(terminator: &OwnedFd) -> anyhow::Result<Option<u64>> {
    let mut bytes = [0; 8];
    match recv(terminator, &mut bytes, RecvFlags::DONTWAIT) {
        Ok((8, _)) => Ok(Some(u64::from_ne_bytes(bytes))),
        Ok((0, _)) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNRESET) => Ok(None),
        Ok((length, _)) => bail!("a request of {length} bytes"),
        Err(errno) => Err(errno).context("hearing from the terminator"),
    }
}

/// Creates a socket that is connecting to the server.
fn begin(server: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn answer(
    terminator: &OwnedFd,
    number: u64,
    became: Outcome,
    connection: Option<BorrowedFd<'_>>,
) -> anyhow::Result<()> {
    let mut message = [0; 9];
    message[..8].copy_from_slice(&number.to_ne_bytes());
    message[8] = became as u8;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = connection.into_iter().collect();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let parts = [IoSlice::new(&message)];
    loop {
        // The send may block: the terminator reads answers whatever else it does.
        match sendmsg(terminator, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            // The terminator has ended, which the next event reports.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("answering the terminator"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Connections;
    use rustix::net::{RecvAncillaryBuffer, recvmsg, send, socketpair};
    use std::io::{IoSliceMut, Read, Write};
    use std::net::TcpListener;

    /// Returns the result of a request, and whether a descriptor came with the answer.
    fn asked(way: &OwnedFd, number: u64) -> (Option<Outcome>, bool) {
        send(way, &number.to_ne_bytes(), SendFlags::NOSIGNAL).expect("it listens");
        let mut message = [0; 9];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut message)];
        recvmsg(way, &mut parts, &mut ancillary, RecvFlags::empty()).expect("an answer");
        assert_eq!(message[..8], number.to_ne_bytes());
        (Outcome::of(message[8]), ancillary.drain().next().is_some())
    }

    #[test]
    fn a_number_that_is_not_a_requests_leads_nowhere() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("an address");
        let kind = SocketType::SEQPACKET;
        let (way, its_end) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
        let connector = std::thread::spawn(move || run(its_end, address, 1));
        let nowhere = (Some(Outcome::Unreachable), false);
        assert_eq!(asked(&way, TERMINATOR), nowhere);
        assert_eq!(asked(&way, 7), (Some(Outcome::Connected), true));
        drop(way);
        connector.join().expect("no panic").expect("it ends");
    }

    // promise: 17.6
    #[test]
    fn a_connection_that_was_handed_over_is_not_watched_any_more() {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = backend.local_addr().expect("an address");
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (own, terminator) =
            socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("a pair");
        let mut connector = Connector::new(own, address, 1).expect("an epoll");
        let mut connections = Connections::new(terminator);
        connections.ask(7).expect("it is there");
        let answered = loop {
            connector.step(None).expect("it serves");
            if let Some(answered) = connections.receive().expect("it is there") {
                break answered;
            }
        };
        let mut stream = answered.connection.expect("it is connected");
        let (mut far, _) = backend.accept().expect("it was called");
        // A connected socket is writable for as long as it exists; this must not be reported.
        far.write_all(b"hello").expect("it is open");
        let happened = connector.step(Some(Duration::ZERO)).expect("it serves");
        assert_eq!(happened, Some(0));
        stream.set_nonblocking(false).expect("it is ours");
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).expect("it is open");
        drop(connections);
        assert_eq!(connector.step(None).expect("it serves"), None);
    }
    /// The server does not answer: its accept queue is full.
    #[test]
    fn as_many_are_on_their_way_as_the_terminator_may_have_connections() {
        const MOST: u64 = 700;
        let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
        rustix::net::listen(&backend, 0).expect("it listens");
        let address = backend.local_addr().expect("an address");
        let _first = std::net::TcpStream::connect(address).expect("it has room for one");
        let kind = SocketType::SEQPACKET;
        let (way, its_end) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
        let mut connector = Connector::new(its_end, address, MOST as usize).expect("an epoll");
        for number in 0..MOST {
            send(&way, &number.to_ne_bytes(), SendFlags::NOSIGNAL).expect("it listens");
            while connector.pending.len() as u64 <= number {
                assert!(connector.asked().expect("it serves"), "{number}");
            }
        }
        let last = MOST.to_ne_bytes();
        send(&way, &last, SendFlags::NOSIGNAL).expect("it listens");
        assert!(connector.asked().expect("it serves"));
        let mut answer = [0; 9];
        recv(&way, &mut answer, RecvFlags::DONTWAIT).expect("it is one too many");
        assert_eq!(
            (&answer[..8], Outcome::of(answer[8])),
            (&last[..], Some(Outcome::Unreachable))
        );
        recv(&way, &mut answer, RecvFlags::DONTWAIT).expect_err("the others are on their way");
    }
}
