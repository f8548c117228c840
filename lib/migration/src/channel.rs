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
    /// Limits all reads and writes to `patience`.
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

/// A socket reports a timeout as "would block".
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

/// A connection to another daemon, as bytes.
pub trait Stream: Read + Write + Send {
    /// Sets how long the next message may take.
    fn set_patience(&mut self, patience: Patience);
}

impl Timed {
    fn set_patience(&mut self, patience: Patience) {
        self.idle = patience.idle;
        self.deadline = Instant::now() + patience.whole;
    }
}

impl Stream for StreamOwned<ClientConnection, Timed> {
    fn set_patience(&mut self, patience: Patience) {
        self.sock.set_patience(patience);
    }
}

impl Stream for StreamOwned<ServerConnection, Timed> {
    fn set_patience(&mut self, patience: Patience) {
        self.sock.set_patience(patience);
    }
}

/// A conversation with another daemon.
pub struct Channel {
    stream: Box<dyn Stream>,
    /// The other daemon, for errors.
    peer: String,
}

impl Channel {
    /// A conversation over `stream` with the daemon at `peer`.
    pub fn new(stream: impl Stream + 'static, peer: String) -> Self {
        Channel {
            stream: Box::new(stream),
            peer,
        }
    }

    /// Returns the address of the other daemon.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end does not receive the message within `patience`. The message may have arrived nevertheless.
    pub fn say(&mut self, message: &Message, patience: Patience) -> anyhow::Result<()> {
        self.stream.set_patience(patience);
        let said = message.write(&mut self.stream);
        said.with_context(|| format!("sending '{}' to {}", message.name(), self.peer))
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// No message comes within `patience`, or the bytes are no message.
    pub fn hear(&mut self, patience: Patience) -> anyhow::Result<Message> {
        self.stream.set_patience(patience);
        let heard = Message::read(&mut self.stream);
        heard.with_context(|| format!("listening to {}", self.peer))
    }

    /// Sends a message and waits for the answer.
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
