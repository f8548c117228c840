//! The way to another daemon: TLS 1.3, both ends with a certificate, and patience that ends.

use anyhow::{Context, bail};
use nfluid_formats::message::{Message, Refusal};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest time of a whole message, and of each of its pieces.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time without a byte.
    pub idle: Duration,
    /// From the first byte to the last.
    pub whole: Duration,
}

/// A connection whose reads and writes end in time, however it drips.
pub struct Timed {
    stream: TcpStream,
    idle: Duration,
    deadline: Instant,
}

impl Timed {
    /// An operation that is not done within `patience` is given up.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(stream: TcpStream, patience: Patience) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Timed {
            stream,
            idle: patience.idle,
            deadline: Instant::now() + patience.whole,
        })
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the other daemon takes too long",
            ));
        }
        Ok(left.min(self.idle))
    }
}

/// A socket whose time is over reports that it would have to wait.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            "the other daemon says nothing for too long",
        ),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer).map_err(in_words)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.stream.set_write_timeout(Some(left))?;
        self.stream.write(buffer).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

enum Secured {
    Client(StreamOwned<ClientConnection, Timed>),
    Server(StreamOwned<ServerConnection, Timed>),
}

/// A conversation with another daemon.
pub struct Channel {
    secured: Box<Secured>,
    /// The peer's name, for errors.
    peer: String,
}

impl Channel {
    /// To a daemon that listens.
    pub fn of_client(stream: StreamOwned<ClientConnection, Timed>, peer: String) -> Self {
        Channel {
            secured: Box::new(Secured::Client(stream)),
            peer,
        }
    }

    /// To one that has called.
    pub fn of_server(stream: StreamOwned<ServerConnection, Timed>, peer: String) -> Self {
        Channel {
            secured: Box::new(Secured::Server(stream)),
            peer,
        }
    }

    /// Returns the name of the peer.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    fn timed(&mut self) -> &mut Timed {
        match &mut *self.secured {
            Secured::Client(stream) => &mut stream.sock,
            Secured::Server(stream) => &mut stream.sock,
        }
    }

    fn set_patience(&mut self, patience: Patience) {
        let timed = self.timed();
        timed.idle = patience.idle;
        timed.deadline = Instant::now() + patience.whole;
    }

    /// Says something.
    ///
    /// # Errors
    /// The other end does not take the message within `patience`. The message may have arrived all the same.
    pub fn say(&mut self, message: &Message, patience: Patience) -> anyhow::Result<()> {
        self.set_patience(patience);
        let said = match &mut *self.secured {
            Secured::Client(stream) => message.write(stream),
            Secured::Server(stream) => message.write(stream),
        };
        said.with_context(|| format!("sending '{}' to {}", message.name(), self.peer))
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// No message comes within `patience`, or the bytes are no message.
    pub fn hear(&mut self, patience: Patience) -> anyhow::Result<Message> {
        self.set_patience(patience);
        let heard = match &mut *self.secured {
            Secured::Client(stream) => Message::read(stream),
            Secured::Server(stream) => Message::read(stream),
        };
        heard.with_context(|| format!("listening to {}", self.peer))
    }

    /// Says something and waits for the answer.
    ///
    /// # Errors
    /// As [`Channel::say`] and [`Channel::hear`]; or the other end refuses: [`Refused`].
    pub fn ask(&mut self, message: &Message, patience: Patience) -> anyhow::Result<Message> {
        self.say(message, patience)?;
        match self.hear(patience)? {
            Message::Refused(refusal) => bail!(Refused(refusal)),
            answer => Ok(answer),
        }
    }
}

/// The other daemon says no, in its own words.
#[derive(Debug)]
pub struct Refused(pub Refusal);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// A message that is not the one that is due.
pub fn unexpected(message: &Message) -> anyhow::Error {
    anyhow::anyhow!("'{}' is not what comes next", message.name())
}
