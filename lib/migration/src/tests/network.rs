//! A network of socket pairs between two sites, which can be cut between two messages.

use super::memory::MemorySite;
use crate::channel::{Channel, Patience, Stream};
use crate::migration::{Connect, Migration};
use anyhow::ensure;
use nfluid_formats::message::Message;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// An end of a connection.
struct Plain(UnixStream);

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Plain {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Plain {
    fn set_patience(&mut self, patience: Patience) {
        let idle = Some(patience.idle);
        self.0.set_read_timeout(idle).expect("a time");
        self.0.set_write_timeout(idle).expect("a time");
    }
}

/// The kinds of connection failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At once after the last message that is delivered.
    Closed,
    /// With the next message, which its sender takes for sent.
    Lost,
}

/// The messages of one connection.
struct Relay {
    /// Messages that are delivered before the cut, and how the connection then ends; absent: never.
    limit: Option<(usize, Cut)>,
    delivered: Mutex<Vec<&'static str>>,
    ends: [UnixStream; 2],
}

impl Relay {
    fn cut(&self) {
        for end in &self.ends {
            let _closed = end.shutdown(Shutdown::Both);
        }
    }

    /// Delivers what comes from one end to the other, until the connection is cut or closed.
    fn run(&self, from: usize) {
        let (mut from, mut to) = (&self.ends[from], &self.ends[1 - from]);
        while let Ok(message) = Message::read(&mut from) {
            let mut delivered = self.delivered.lock().expect("whole");
            let is_over = |count| self.limit.is_some_and(|(limit, _)| count == limit);
            if is_over(delivered.len()) || message.write(&mut to).is_err() {
                break;
            }
            delivered.push(message.name());
            if is_over(delivered.len()) && self.limit.is_some_and(|(_, cut)| cut == Cut::Closed) {
                // Still locked: the other direction delivers nothing meanwhile.
                self.cut();
                break;
            }
        }
        self.cut();
    }
}

/// The network between a source and a target.
pub struct Network {
    target: (MemorySite, Arc<Migration>),
    /// The cut of the next connection.
    limit: Mutex<Option<(usize, Cut)>>,
    /// No daemon can be reached after the first connection.
    is_down: AtomicBool,
    first: Mutex<Option<Arc<Relay>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Network {
    /// A network whose first connection fails after this number of messages.
    pub fn new(
        target: &MemorySite,
        migration: &Arc<Migration>,
        limit: Option<(usize, Cut)>,
    ) -> Arc<Self> {
        Arc::new(Network {
            target: (target.clone(), Arc::clone(migration)),
            limit: Mutex::new(limit),
            is_down: AtomicBool::new(false),
            first: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    /// Has the target be out of reach after the first connection, or in reach again.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Waits until the target has answered all calls.
    pub fn settle(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().expect("whole"));
        for thread in threads {
            thread.join().expect("the thread ends well");
        }
    }

    /// Returns the messages that were delivered on the first connection.
    pub fn delivered(&self) -> Vec<&'static str> {
        let first = self.first.lock().expect("whole");
        let first = first.as_ref().expect("a connection");
        first.delivered.lock().expect("whole").clone()
    }
}

impl Connect for Arc<Network> {
    fn connect(&self, to: &str) -> anyhow::Result<Channel> {
        let mut first = self.first.lock().expect("whole");
        let is_down = self.is_down.load(Ordering::Relaxed);
        ensure!(first.is_none() || !is_down, "{to} does not answer");
        let (source, near) = UnixStream::pair()?;
        let (far, target) = UnixStream::pair()?;
        let relay = Arc::new(Relay {
            limit: self.limit.lock().expect("whole").take(),
            delivered: Mutex::default(),
            ends: [near, far],
        });
        first.get_or_insert_with(|| Arc::clone(&relay));
        let mut threads = self.threads.lock().expect("whole");
        for from in [0, 1] {
            let relay = Arc::clone(&relay);
            threads.push(thread::spawn(move || relay.run(from)));
        }
        let (site, migration) = self.target.clone();
        threads.push(thread::spawn(move || {
            migration.answer(&site, Channel::new(Plain(target), "source".to_owned()));
        }));
        Ok(Channel::new(Plain(source), to.to_owned()))
    }
}
