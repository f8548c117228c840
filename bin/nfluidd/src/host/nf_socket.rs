//! The daemon's side of an instance's control socket.

use anyhow::{Context, bail};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an NF may take to answer: it answers between two batches.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer in bytes; the instance is hostile.
const ANSWER_MAX: u64 = 16 << 20;

/// Connects without waiting for anybody: who accepts nobody has no room for more some day, and then refuses.
///
/// # Errors
/// When the instance does not listen, or its queue is full.
pub fn open(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// An answer that has to be there by a time, however it drips in.
struct Answering<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Read for Answering<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

/// A line of an answer, all of which has to be there by then.
///
/// # Errors
/// When it is not.
pub fn line_within(stream: &UnixStream, patience: Duration) -> anyhow::Result<String> {
    let answering = Answering {
        stream,
        deadline: Instant::now() + patience,
    };
    let mut line = String::new();
    BufReader::new(answering)
        .take(ANSWER_MAX)
        .read_line(&mut line)
        .with_context(|| format!("no answer within {} s", patience.as_secs()))?;
    Ok(line)
}

/// Sends one request and returns what the NF answers.
///
/// # Errors
/// When the instance does not listen or answer, or the NF refuses.
pub fn ask(path: &Path, request: &Value) -> anyhow::Result<Value> {
    ask_about(path, request, None)
}

/// As [`ask`], about a file or socket that is handed over with the request.
///
/// # Errors
/// As for [`ask`].
pub fn ask_about(
    path: &Path,
    request: &Value,
    about: Option<BorrowedFd<'_>>,
) -> anyhow::Result<Value> {
    let mut stream = open(path).context("the instance does not listen for commands")?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    let mut sent = 0;
    if let Some(fd) = about {
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [IoSlice::new(text.as_bytes())];
        sent = sendmsg(&stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)
            .context("the instance does not take the request")?;
    }
    stream
        .write_all(&text.as_bytes()[sent..])
        .context("the instance does not take the request")?;
    let line = line_within(&stream, PATIENCE)?;
    let answer: Value = serde_json::from_str(&line).context("the answer is not JSON")?;
    match (
        answer.get("ok"),
        answer.get("error").and_then(Value::as_str),
    ) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(why)) => bail!("{why}"),
        (None, None) => bail!("the answer is neither success nor error"),
    }
}
