//! The daemon at the door: a connection has one request and one answer.
//!
//! Mostly both are short. Then the NF's own thread takes the request and writes the answer, and nobody else has to be woken;
//! what is longer is left to a thread, which may wait for its rest.

use crate::control::{Answer, Order, start_thread};
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

/// Longest request that is short, in bytes.
const SHORT: usize = 4096;
/// Who has connected sends its request a few microseconds later.
const MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000,
};

/// Somebody who has come.
pub enum Guest {
    /// A short request, and where its answer goes.
    Asks(Order, UnixStream),
    /// It has not said all of it yet.
    Speaks(Speech),
    /// It has gone again, or what it said was none; it was told so.
    Left,
}

/// A request of which only the beginning may have come.
pub struct Speech {
    stream: UnixStream,
    heard: Vec<u8>,
    at: usize,
    /// The descriptor that came last.
    pub fd: Option<OwnedFd>,
}

/// Lets in who waits at the door.
///
/// # Errors
/// Nobody is there, or there is no descriptor left for it.
pub fn let_in(door: &OwnedFd) -> anyhow::Result<Guest> {
    let stream = accept_with(door, SocketFlags::CLOEXEC).context("accepting a connection")?;
    let mut fds = [PollFd::new(&stream, PollFlags::IN)];
    // What is wrong shows when it is read.
    let _ = poll(&mut fds, Some(&MOMENT));
    let mut speech = Speech::on(stream.into());
    let mut buffer = [0; SHORT];
    match receive(&speech.stream, &mut buffer, RecvFlags::DONTWAIT) {
        Ok((0, _)) => return Ok(Guest::Left),
        Ok((length, fd)) => {
            speech.heard.extend_from_slice(&buffer[..length]);
            speech.fd = fd;
        }
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(_) => return Ok(Guest::Left),
    }
    if speech.heard.last() != Some(&b'\n') {
        return Ok(Guest::Speaks(speech));
    }
    let Speech {
        stream, heard, fd, ..
    } = speech;
    match serde_json::from_slice(&heard) {
        Ok(request) => Ok(Guest::Asks(Order { request, fd }, stream)),
        Err(error) => {
            reply(stream, &Answer::Error(format!("not a request: {error}")));
            Ok(Guest::Left)
        }
    }
}

/// Writes an answer. Whoever has asked may read it later: this thread does not wait for that.
pub fn reply(stream: UnixStream, answer: &Answer) {
    let Ok(mut text) = serde_json::to_vec(answer) else {
        return;
    };
    text.push(b'\n');
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match send(&stream, &text, flags) {
        Ok(sent) => sent,
        Err(Errno::AGAIN | Errno::INTR) => 0,
        // It has gone: its answer is nobody's.
        Err(_) => return,
    };
    if sent < text.len() {
        let rest = start_thread(move || drop((&stream).write_all(&text[sent..])));
        if let Err(error) = rest {
            eprintln!("nfluid-nf: control socket: {error:#}");
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

impl Speech {
    /// Nothing was heard yet.
    pub fn on(stream: UnixStream) -> Self {
        Speech {
            stream,
            heard: Vec::new(),
            at: 0,
            fd: None,
        }
    }

    /// Where the answer goes.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}

impl Read for Speech {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut heard = &self.heard[self.at..];
        if !heard.is_empty() {
            let length = heard.read(buffer)?;
            self.at += length;
            return Ok(length);
        }
        let (length, fd) = receive(&self.stream, buffer, RecvFlags::empty())?;
        self.fd = fd.or(self.fd.take());
        Ok(length)
    }
}
