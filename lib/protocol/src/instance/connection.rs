//! A connection of the daemon, with one request and one answer.
//!
//! Mostly both are short. Then the queue's own thread reads the request and writes the answer, and no other thread has to be
//! woken. A longer request or answer is left to a thread, which may wait.

use super::control::{Received, start_thread};
use crate::answer::Answer;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, accept_with,
    recvmsg, send,
};
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Longest request in bytes that the queue's own thread reads.
const SHORT: usize = 4096;
/// Time for the request to come: the daemon sends it some microseconds after it has connected.
const MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000,
};

/// A connection that was accepted.
pub enum Accepted {
    /// The whole request has come; the answer goes to the stream.
    Whole(Received, UnixStream),
    /// Only the beginning of the request has come.
    Begun(Partial),
    /// The daemon has gone again, or has sent no request and was answered so.
    Nothing,
}

/// A request of which only the beginning may have come.
pub struct Partial {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// Number of the bytes that were read from here.
    at: usize,
    /// The descriptor that came last.
    pub fd: Option<OwnedFd>,
}

/// Accepts a connection that waits.
///
/// # Errors
/// No connection waits, or the process has no descriptor left for it.
pub fn accept(listener: &OwnedFd) -> anyhow::Result<Accepted> {
    let stream = accept_with(listener, SocketFlags::CLOEXEC).context("accepting a connection")?;
    let mut fds = [PollFd::new(&stream, PollFlags::IN)];
    // An error shows when the stream is read.
    let _ = poll(&mut fds, Some(&MOMENT));
    let mut partial = Partial::new(stream.into());
    let mut buffer = [0; SHORT];
    match receive(&partial.stream, &mut buffer, RecvFlags::DONTWAIT) {
        Ok((0, _)) => return Ok(Accepted::Nothing),
        Ok((length, fd)) => {
            partial.bytes.extend_from_slice(&buffer[..length]);
            partial.fd = fd;
        }
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(_) => return Ok(Accepted::Nothing),
    }
    if partial.bytes.last() != Some(&b'\n') {
        return Ok(Accepted::Begun(partial));
    }
    let Partial {
        stream, bytes, fd, ..
    } = partial;
    match serde_json::from_slice(&bytes) {
        Ok(request) => Ok(Accepted::Whole(Received { request, fd }, stream)),
        Err(error) => {
            reply(stream, &Answer::Error(format!("not a request: {error}")));
            Ok(Accepted::Nothing)
        }
    }
}

/// Writes an answer. The daemon may read it later: this thread does not wait for that.
pub fn reply(stream: UnixStream, answer: &Answer) {
    let Ok(text) = answer.line() else {
        return;
    };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match send(&stream, &text, flags) {
        Ok(sent) => sent,
        Err(Errno::AGAIN | Errno::INTR) => 0,
        // The daemon has gone.
        Err(_) => return,
    };
    if sent < text.len() {
        let rest = start_thread(move || drop((&stream).write_all(&text[sent..])));
        if let Err(error) = rest {
            eprintln!("control socket: {error:#}");
        }
    }
}

fn receive(
    stream: &UnixStream,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(stream, &mut parts, &mut ancillary, flags)?;
    let mut last = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            last = fds.last().or(last);
        }
    }
    Ok((received.bytes, last))
}

impl Partial {
    /// A connection from which nothing was read yet.
    pub fn new(stream: UnixStream) -> Self {
        Partial {
            stream,
            bytes: Vec::new(),
            at: 0,
            fd: None,
        }
    }

    /// The stream, for the answer.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}

impl Read for Partial {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut rest = &self.bytes[self.at..];
        if !rest.is_empty() {
            let length = rest.read(buffer)?;
            self.at += length;
            return Ok(length);
        }
        let (length, fd) = receive(&self.stream, buffer, RecvFlags::empty())?;
        self.fd = fd.or(self.fd.take());
        Ok(length)
    }
}
