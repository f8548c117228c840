//! A terminator: one thread that waits for all its sockets at once.

use crate::backend::{Answered, Connections};
use crate::connection::{Connection, End, Ending, Far};
use crate::control::Control;
use crate::counts::{Counts, Failure};
use crate::deadlines::Deadlines;
use crate::turn::{self, Next, PIECE, Surroundings};
use anyhow::Context;
use nfluid_protocol::answer::Draining;
use nfluid_protocol::{Answer, Request};
use nfluid_tls::config::{Behind, Config};
use nfluid_tls::identity;
use nfluid_tls::key::Key;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustls::ServerConfig;
use serde_json::{Value, json};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that are accepted before existing connections get their turn again.
const ACCEPTED_AT_ONCE: usize = 64;
/// Time without accepting after the kernel had no room.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for which a client may take to close its side.
const LINGER: Duration = Duration::from_secs(2);
/// Time for which a connection may be idle while the terminator drains.
const SILENCE_AT_END: Duration = Duration::from_millis(500);
/// Events that are fetched at a time.
const EVENTS: usize = 256;

/// Event numbers outside the range of connections: listeners count from 0.
const CONTROL: u64 = 1 << 40;
const COMMANDS: u64 = CONTROL + 1;
const CONNECTOR: u64 = CONTROL + 2;
const PAUSE_OVER: u64 = CONTROL + 3;
/// Marks the event number of a connection. The next bit marks that of its backend's socket.
const CONNECTION: u64 = 1 << 63;
const BACKEND: u64 = 1 << 62;

/// The parts of a terminator.
pub struct Parts<'a> {
    /// Its configuration.
    pub config: &'a Config,
    /// Its certificates, PEM.
    pub certificates: &'a [u8],
    /// Its key.
    pub key: Key,
    /// Its listening sockets, which do not block.
    pub listeners: Vec<OwnedFd>,
    /// The socket to its connector, if it has a backend.
    pub connector: Option<OwnedFd>,
    /// Its listening socket for the daemon.
    pub control: Option<OwnedFd>,
    /// Its memory limit.
    pub memory_bytes: u64,
}

/// A slot for a connection. The generation distinguishes events of this connection from those of a former one.
#[derive(Debug, Default)]
struct Place {
    generation: u64,
    connection: Option<Box<Connection>>,
}

/// A terminator.
pub struct Server {
    epoll: OwnedFd,
    tls: Arc<ServerConfig>,
    behind: Behind,
    handshake_timeout: Duration,
    idle_timeout: Duration,
    listeners: Vec<OwnedFd>,
    /// True while no connection is accepted.
    is_pausing: bool,
    connector: Option<Connections>,
    is_connector_full: bool,
    control: Option<Control>,
    places: Vec<Place>,
    free: Vec<usize>,
    connections_max: usize,
    deadlines: Deadlines,
    /// Connections that can continue without an event.
    again: Vec<u64>,
    counts: Counts,
    expires: i64,
    is_draining: bool,
    scratch: Vec<u8>,
}

impl Server {
    /// Prepares the server.
    ///
    /// # Errors
    /// Certificate and key do not match, or the kernel refuses.
    pub fn new(parts: Parts<'_>) -> anyhow::Result<Self> {
        let config = parts.config;
        let tls = identity::server(parts.certificates, &parts.key, &config.alpn)?;
        drop(parts.key);
        let expires = identity::validity(parts.certificates)?.until;
        let connections_max = config.connections(parts.memory_bytes) as usize;
        let server = Server {
            epoll: epoll::create(CreateFlags::CLOEXEC).context("epoll")?,
            tls: Arc::new(tls),
            behind: config.behind.clone(),
            handshake_timeout: config.handshake_timeout,
            idle_timeout: config.idle_timeout,
            listeners: parts.listeners,
            is_pausing: false,
            connector: parts.connector.map(Connections::new),
            is_connector_full: false,
            control: parts.control.map(Control::new).transpose()?,
            places: Vec::new(),
            free: Vec::new(),
            connections_max,
            deadlines: Deadlines::default(),
            again: Vec::new(),
            counts: Counts::default(),
            expires,
            is_draining: false,
            scratch: vec![0; PIECE],
        };
        anyhow::ensure!(
            server.connector.is_some() == config.backend().is_some(),
            "a terminator with a backend has a connector, and no other has"
        );
        for (number, listener) in (0..).zip(&server.listeners) {
            server.watch(listener, number)?;
        }
        if let Some(connector) = &server.connector {
            server.watch(connector, CONNECTOR)?;
        }
        if let Some(control) = &server.control {
            server.watch(control.listener(), CONTROL)?;
        }
        Ok(server)
    }

    fn watch(&self, fd: impl AsFd, number: u64) -> anyhow::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(number), EventFlags::IN)
            .context("watching a socket")
    }

    /// Serves; returns only with an error.
    ///
    /// # Errors
    /// The connector has ended, or the kernel refuses a resource that the server cannot do without.
    pub fn run(mut self) -> anyhow::Result<()> {
        println!(
            "nfluid-tls: serving on {} sockets, {} connections at most",
            self.listeners.len(),
            self.connections_max
        );
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.step(&mut events, None)?;
        }
    }

    /// Waits for events, for at most `patience`, and handles them.
    ///
    /// # Errors
    /// As for [`Server::run`].
    pub fn step(
        &mut self,
        events: &mut Vec<Event>,
        patience: Option<Duration>,
    ) -> anyhow::Result<()> {
        events.clear();
        let wait = if self.again.is_empty() {
            let due = self.deadlines.wait(Instant::now());
            due.into_iter().chain(patience).min()
        } else {
            Some(Duration::ZERO)
        };
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("waiting"),
        }
        for event in &*events {
            self.happened(event.data.u64())?;
        }
        for number in std::mem::take(&mut self.again) {
            self.go_on(number)?;
        }
        self.expire()
    }

    fn happened(&mut self, number: u64) -> anyhow::Result<()> {
        match number {
            CONTROL => self.accept_control(),
            COMMANDS => {
                self.handle_requests();
                Ok(())
            }
            CONNECTOR => self.connected(),
            number if number & CONNECTION != 0 => self.go_on(number & !BACKEND),
            number => self.accept(number as usize),
        }
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn accept(&mut self, listener: usize) -> anyhow::Result<()> {
        if self.is_pausing {
            // This was reported before.
            return Ok(());
        }
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.listeners.get(listener) else {
                return Ok(());
            };
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(client) => {
                    self.counts.connections += 1;
                    if self.open() >= self.connections_max {
                        self.counts.over_limit += 1;
                    } else {
                        self.begin(client.into())?;
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                // A client that closed before it was accepted (accept(2)).
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETUNREACH) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.counts.no_room += 1;
                    return self.pause();
                }
                Err(errno) => return Err(errno).context("accepting"),
            }
        }
        Ok(())
    }

    /// Stops accepting for a while: the kernel would report waiting clients again and again.
    fn pause(&mut self) -> anyhow::Result<()> {
        if std::mem::replace(&mut self.is_pausing, true) {
            // Another listening socket has had no room either.
            return Ok(());
        }
        for listener in &self.listeners {
            epoll::delete(&self.epoll, listener).context("pausing")?;
        }
        self.deadlines.put(Instant::now() + PAUSE, PAUSE_OVER);
        Ok(())
    }

    fn begin(&mut self, client: TcpStream) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.handshake_timeout;
        let Ok(connection) = Connection::new(client, &self.tls, deadline) else {
            self.counts.failed(Failure::Other);
            return Ok(());
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let place = &mut self.places[at];
        place.generation = (place.generation + 1) & 0xffff_ffff;
        place.connection = Some(Box::new(connection));
        let number = CONNECTION | (place.generation << 24) | at as u64;
        self.deadlines.put(deadline, number);
        // The first bytes have often arrived already.
        self.go_on(number)
    }

    /// Returns the connection of this number, unless it is over.
    fn find(&mut self, number: u64) -> Option<&mut Connection> {
        let place = self.places.get_mut((number & 0xff_ffff) as usize)?;
        let is_its = place.generation == (number & !CONNECTION) >> 24;
        place.connection.as_deref_mut().filter(|_| is_its)
    }

    /// Gives a connection its turn.
    fn go_on(&mut self, number: u64) -> anyhow::Result<()> {
        let at = (number & 0xff_ffff) as usize;
        if self.find(number).is_none() {
            return Ok(());
        }
        let Some(connection) = self.places[at].connection.as_deref_mut() else {
            return Ok(());
        };
        let next = connection.turn(&mut Surroundings {
            counts: &mut self.counts,
            scratch: &mut self.scratch,
            behind: &self.behind,
            is_draining: self.is_draining,
        });
        let now = Instant::now();
        if connection.ending != Ending::No {
            connection.deadline = connection.deadline.min(now + LINGER);
        } else if !connection.tls.is_handshaking() {
            connection.deadline = now + self.idle_timeout;
        }
        if connection.deadline < connection.queued {
            connection.queued = connection.deadline;
            self.deadlines.put(connection.deadline, number);
        }
        match next {
            Next::Wait => self.watch_connection(number),
            Next::Again => {
                self.again.push(number);
                self.watch_connection(number)
            }
            Next::Backend => {
                self.watch_connection(number)?;
                self.ask_for_backend(number)
            }
            Next::End(end) => {
                self.end(number, end);
                Ok(())
            }
        }
    }

    /// Watches exactly the events that a connection waits for.
    fn watch_connection(&mut self, number: u64) -> anyhow::Result<()> {
        let at = (number & 0xff_ffff) as usize;
        let Some(connection) = self.places[at].connection.as_deref_mut() else {
            return Ok(());
        };
        let wanted = connection.wanted();
        let backend = match &connection.far {
            Far::Backend(backend) => Some(&backend.socket),
            _ => None,
        };
        let sockets = [Some(&connection.client), backend];
        let numbers = [number, number | BACKEND];
        for (side, socket) in sockets.into_iter().enumerate() {
            let (Some(socket), old, new) = (socket, connection.watched[side], wanted[side]) else {
                continue;
            };
            let data = EventData::new_u64(numbers[side]);
            match (old.is_empty(), new.is_empty()) {
                _ if old == new => continue,
                (true, _) => epoll::add(&self.epoll, socket, data, new),
                (false, true) => epoll::delete(&self.epoll, socket),
                (false, false) => epoll::modify(&self.epoll, socket, data, new),
            }
            .context("watching a connection")?;
            connection.watched[side] = new;
        }
        Ok(())
    }

    fn ask_for_backend(&mut self, number: u64) -> anyhow::Result<()> {
        let connector = self.connector.as_mut().context("there is no connector")?;
        connector.ask(number)?;
        self.watch_connector()
    }

    fn watch_connector(&mut self) -> anyhow::Result<()> {
        let Some(connector) = &self.connector else {
            return Ok(());
        };
        if connector.has_unsent() != self.is_connector_full {
            self.is_connector_full = connector.has_unsent();
            let writes = if self.is_connector_full {
                EventFlags::OUT
            } else {
                EventFlags::empty()
            };
            let data = EventData::new_u64(CONNECTOR);
            epoll::modify(&self.epoll, connector, data, EventFlags::IN | writes)
                .context("watching the connector")?;
        }
        Ok(())
    }

    /// Handles answers of the connector, and sends waiting requests.
    fn connected(&mut self) -> anyhow::Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(connector) = &mut self.connector else {
                return Ok(());
            };
            connector.send()?;
            let Some(Answered { number, connection }) = connector.receive()? else {
                break;
            };
            let Some(found) = self.find(number) else {
                continue;
            };
            match connection {
                Ok(socket) => {
                    // Cloned, since the server is borrowed below.
                    let behind = self.behind.clone();
                    if let Some(found) = self.find(number) {
                        turn::attach(found, socket, &behind);
                    }
                }
                Err(why) => {
                    found.begin_end();
                    self.counts.had_no_backend(why);
                }
            }
            self.go_on(number)?;
        }
        self.watch_connector()
    }

    fn end(&mut self, number: u64, end: End) {
        let at = (number & 0xff_ffff) as usize;
        if self.find(number).is_none() {
            return;
        }
        match end {
            End::Closed => {}
            End::Failed(why) => self.counts.failed(why),
            End::Broken => self.counts.broken += 1,
        }
        // The sockets are closed, and so not watched any more.
        self.places[at].connection = None;
        self.free.push(at);
    }

    fn expire(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        while let Some((at, number)) = self.deadlines.due(now) {
            if number == PAUSE_OVER {
                self.accept_again()?;
                continue;
            }
            let Some(connection) = self.find(number) else {
                continue;
            };
            if at != connection.queued {
                // A later deadline has an entry of its own.
                continue;
            }
            if connection.deadline > now {
                let later = connection.deadline;
                connection.queued = later;
                self.deadlines.put(later, number);
                continue;
            }
            let is_over = connection.ending != Ending::No;
            let end = if is_over {
                End::Closed
            } else if connection.tls.is_handshaking() {
                End::Failed(Failure::Timeout)
            } else {
                self.counts.idle += 1;
                End::Closed
            };
            self.end(number, end);
        }
        Ok(())
    }

    fn accept_again(&mut self) -> anyhow::Result<()> {
        self.is_pausing = false;
        for (number, listener) in (0..).zip(&self.listeners) {
            self.watch(listener, number)?;
        }
        Ok(())
    }

    /// Handles a connection of the daemon.
    fn accept_control(&mut self) -> anyhow::Result<()> {
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        // This closes the former connection, which is then not watched any more.
        if control.accept() {
            let stream = control.stream().context("it was accepted")?;
            epoll::add(
                &self.epoll,
                stream,
                EventData::new_u64(COMMANDS),
                EventFlags::IN,
            )
            .context("watching the daemon")?;
        }
        Ok(())
    }

    /// Handles the daemon's requests.
    fn handle_requests(&mut self) {
        while let Some(request) = self.control.as_mut().and_then(Control::next) {
            let answer = match request {
                Ok(Request::Beat) => Answer::Ok(Value::Null),
                Ok(Request::Metrics) => Answer::Ok(json!({ "nf": self.metrics() })),
                Ok(Request::Drain { .. }) => {
                    self.drain();
                    Answer::of(&Draining {
                        connections: self.open() as u64,
                    })
                }
                Ok(other) => Answer::Error(format!("a terminator does not know '{}'", other.op())),
                Err(why) => Answer::Error(why),
            };
            if let Some(control) = &mut self.control {
                control.answer(&answer);
            }
        }
    }

    fn metrics(&self) -> serde_json::Map<String, Value> {
        let mut metrics = self.counts.report();
        metrics.insert("connections".to_owned(), self.open().into());
        metrics.insert("connections_limit".to_owned(), self.connections_max.into());
        // In seconds since 1970, as Prometheus expresses times.
        metrics.insert(
            "certificate_expires_seconds".to_owned(),
            self.expires.into(),
        );
        metrics
    }

    /// Stops accepting connections, and closes idle ones.
    pub fn drain(&mut self) {
        if std::mem::replace(&mut self.is_draining, true) {
            return;
        }
        // Closed sockets are not watched any more.
        self.listeners.clear();
        self.idle_timeout = self.idle_timeout.min(SILENCE_AT_END);
        let soon = Instant::now() + SILENCE_AT_END;
        for (at, place) in self.places.iter_mut().enumerate() {
            let Some(connection) = place.connection.as_deref_mut() else {
                continue;
            };
            if !connection.tls.is_handshaking() && connection.deadline > soon {
                connection.deadline = soon;
                connection.queued = soon;
                let number = CONNECTION | (place.generation << 24) | at as u64;
                self.deadlines.put(soon, number);
            }
        }
    }

    /// Returns the counters.
    #[cfg(test)]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
