//! The daemon's way to talk to a running NF: one JSON request per line on the control socket, one
//! JSON answer per line. A thread reads and writes; the NF's own thread answers, between batches.

use anyhow::Context;
use nfluid_ring::port::PortStats;
use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Longest request in bytes: a configuration with all its rules.
const REQUEST_MAX: u64 = 64 << 20;

/// A request of the daemon.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// All counters.
    Metrics,
    /// A command of the NF.
    Command {
        /// Its name.
        name: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
    },
    /// A new configuration.
    Reconfigure {
        /// The whole of it.
        config: Value,
    },
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done; what was asked for.
    Ok(Value),
    /// Not done, and why.
    Error(String),
}

/// What the port library counts, in the answer to [`Request::Metrics`].
pub fn port_stats(name: &str, stats: &PortStats) -> Value {
    serde_json::json!({
        "port": name,
        "calls": stats.calls,
        "rings": stats.rings,
        "tx_no_slot": stats.tx_no_slot,
        "tx_errors": stats.tx_errors,
    })
}

/// A request on its way to the NF's thread, with the way back.
type Asked = (Request, SyncSender<Answer>);

/// The NF's side of the control socket.
#[derive(Debug)]
pub struct Control {
    requests: Receiver<Asked>,
    /// Readable when a request waits: the NF's thread may be blocked on its doorbell.
    pub wake: OwnedFd,
}

impl Control {
    /// Starts to answer on `listener`.
    pub fn start(listener: OwnedFd) -> anyhow::Result<Self> {
        let (sender, requests) = sync_channel(1);
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("eventfd")?;
        let ring = wake.try_clone().context("duplicating the eventfd")?;
        let listener = UnixListener::from(listener);
        std::thread::Builder::new()
            .name("control".to_owned())
            .stack_size(256 << 10)
            .spawn(move || serve(&listener, &sender, &ring))
            .context("starting the control thread")?;
        Ok(Control { requests, wake })
    }

    /// Answers all requests that wait.
    pub fn answer(&self, mut handle: impl FnMut(Request) -> Answer) {
        while let Ok((request, back)) = self.requests.try_recv() {
            // The asker may have gone; its answer is then nobody's.
            let _ = back.send(handle(request));
        }
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }
}

fn serve(listener: &UnixListener, requests: &SyncSender<Asked>, ring: &OwnedFd) {
    for stream in listener.incoming() {
        match stream {
            // One daemon, one connection at a time; an error ends that connection only.
            Ok(stream) => drop(converse(&stream, requests, ring)),
            Err(error) => {
                eprintln!("nfluid-nf: control socket: {error}");
                return;
            }
        }
    }
}

fn converse(
    stream: &UnixStream,
    requests: &SyncSender<Asked>,
    ring: &OwnedFd,
) -> anyhow::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(REQUEST_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => ask(request, requests, ring)?,
            Err(error) => Answer::Error(format!("not a request: {error}")),
        };
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        let mut stream = stream;
        stream.write_all(text.as_bytes())?;
    }
}

fn ask(request: Request, requests: &SyncSender<Asked>, ring: &OwnedFd) -> anyhow::Result<Answer> {
    let (back, answer) = sync_channel(1);
    requests.send((request, back)).context("the NF has ended")?;
    rustix::io::write(ring, &1u64.to_ne_bytes()).context("waking the NF")?;
    answer.recv().context("the NF has ended")
}
