//! Requests and replies between two hosts, of which none may be lost: so few are in flight at once that every ring has
//! room for them, however slow the machine is, and however long a ring is not emptied.

use super::patience::{PATIENCE, eventually};
use super::platform::Platform;
use super::two_hosts::{CLIENT, SERVER};
use super::within;
use std::collections::HashSet;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Requests in flight: fewer than any ring has slots, so that a loss means a broken promise.
const WINDOW: usize = 32;
/// Interval between two requests of a conversation that leaves the CPUs to others.
const UNHURRIED: Duration = Duration::from_millis(2);

/// Numbered datagrams from the host `client` to the host `server` and back, with counts of losses and duplicates.
#[derive(Debug)]
pub struct Conversation {
    stop: Arc<AtomicBool>,
    break_off: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    client: JoinHandle<Books>,
    server: JoinHandle<()>,
}

/// Counts of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Requests sent.
    pub asked: u64,
    /// Requests without a reply.
    pub lost: usize,
    /// Replies beyond the first to the same request.
    pub answered_twice: u64,
}

impl Conversation {
    /// Sends requests as fast as replies arrive.
    ///
    /// # Panics
    /// If the hosts are not those of [`super::two_hosts`].
    pub fn start(platform: &Platform) -> Self {
        Self::every(hosts(platform), Duration::ZERO)
    }

    /// As [`Conversation::start`], between hosts of which each has its own platform.
    ///
    /// # Panics
    /// If the hosts have other addresses than those of [`super::two_hosts`].
    pub fn between(client: &Platform, server: &Platform) -> Self {
        let hosts = [client.host_netns("client"), server.host_netns("server")];
        Self::every(hosts, Duration::ZERO)
    }

    /// As [`Conversation::start`], between a client and a server in these network namespaces, without a platform.
    ///
    /// # Panics
    /// If the hosts have other addresses than those of [`super::two_hosts`].
    pub fn in_namespaces(hosts: [PathBuf; 2]) -> Self {
        Self::every(hosts, Duration::ZERO)
    }

    /// Sends a few hundred requests per second.
    ///
    /// # Panics
    /// If the hosts are not those of [`super::two_hosts`].
    pub fn unhurried(platform: &Platform) -> Self {
        Self::every(hosts(platform), UNHURRIED)
    }

    fn every([client, server]: [PathBuf; 2], pause: Duration) -> Self {
        let server = bind(&server, &format!("{SERVER}:7"), pause);
        let client = bind(&client, &format!("{CLIENT}:0"), pause);
        client.connect(format!("{SERVER}:7")).expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicU64::new(0));
        let break_off = Arc::new(AtomicBool::new(false));
        let orders = [Arc::clone(&stop), Arc::clone(&break_off)];
        let answers_there = Arc::clone(&answers);
        let client = thread::spawn(move || ask(&client, pause, &orders, &answers_there));
        let done = Arc::new(AtomicBool::new(false));
        let done_there = Arc::clone(&done);
        let server = thread::spawn(move || answer(&server, &done_there));
        Conversation {
            stop,
            break_off,
            done,
            answers,
            client,
            server,
        }
    }

    /// Returns the number of replies so far.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Waits until `count` more requests have been answered.
    ///
    /// # Panics
    /// If they are not answered in time.
    pub fn has_answers(&self, count: u64, when: &str) {
        let before = self.answers();
        eventually(&format!("{count} answers {when}"), || {
            self.answers() > before + count
        });
    }

    /// Ends the conversation at once: what is open counts as lost.
    ///
    /// # Panics
    /// If a thread of the conversation has failed.
    pub fn break_off(self) -> Books {
        self.break_off.store(true, Ordering::Relaxed);
        self.end()
    }

    /// Ends the conversation when no request is open, or when no more replies arrive.
    ///
    /// # Panics
    /// If a thread of the conversation has failed.
    pub fn end(self) -> Books {
        self.stop.store(true, Ordering::Relaxed);
        let books = self.client.join().expect("the client ends");
        self.done.store(true, Ordering::Relaxed);
        self.server.join().expect("the server ends");
        println!("{books:?}");
        books
    }
}

fn hosts(platform: &Platform) -> [PathBuf; 2] {
    ["client", "server"].map(|host| platform.host_netns(host))
}

/// Binds a socket of a host; its read timeout is `pause`, or 20 ms without a pause.
fn bind(host: &Path, address: &str, pause: Duration) -> UdpSocket {
    let socket = within(host, || UdpSocket::bind(address));
    let socket = socket.expect("the host has the address");
    let patience = if pause.is_zero() {
        Duration::from_millis(20)
    } else {
        pause
    };
    socket.set_read_timeout(Some(patience)).expect("a timeout");
    socket
}

fn ask(
    socket: &UdpSocket,
    pause: Duration,
    [stop, break_off]: &[Arc<AtomicBool>; 2],
    answers: &AtomicU64,
) -> Books {
    let mut books = Books::default();
    let mut open = HashSet::new();
    let mut last_answer = Instant::now();
    let mut last_question = None::<Instant>;
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        let is_time = |last: Option<Instant>| last.is_none_or(|last| last.elapsed() >= pause);
        while !stopping && open.len() < WINDOW && is_time(last_question) {
            // If the host's own queue is full, sends again, as any program would.
            if socket.send(&books.asked.to_be_bytes()).is_err() {
                break;
            }
            last_question = Some(Instant::now());
            open.insert(books.asked);
            books.asked += 1;
        }
        let mut bytes = [0u8; 8];
        match socket.recv(&mut bytes) {
            Ok(8) if open.remove(&u64::from_be_bytes(bytes)) => {
                last_answer = Instant::now();
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => books.answered_twice += 1,
            Err(_) => {}
        }
        let is_over = || open.is_empty() || last_answer.elapsed() > PATIENCE / 4;
        if stopping && (break_off.load(Ordering::Relaxed) || is_over()) {
            books.lost = open.len();
            return books;
        }
    }
}

fn answer(socket: &UdpSocket, done: &AtomicBool) {
    let mut bytes = [0u8; 8];
    while !done.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut bytes) {
            while socket.send_to(&bytes[..len], from).is_err() {}
        }
    }
}
