//! The terminator's side of its connector: requests connections to the backend, and receives them.

use crate::connector::Outcome;
use crate::counts::NoBackend;
use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The socket to the connector.
#[derive(Debug)]
pub struct Connections {
    socket: OwnedFd,
    /// Requests for which the socket had no room.
    unsent: VecDeque<u64>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answered {
    /// The number of the request.
    pub number: u64,
    /// The connection.
    pub connection: Result<TcpStream, NoBackend>,
}

impl Connections {
    /// Creates the requester on this socket.
    pub fn new(socket: OwnedFd) -> Self {
        Connections {
            socket,
            unsent: VecDeque::new(),
        }
    }

    /// Requests a connection, under a unique number.
    ///
    /// # Errors
    /// The connector has ended.
    pub fn ask(&mut self, number: u64) -> anyhow::Result<()> {
        self.unsent.push_back(number);
        self.send()
    }

    /// Returns true if requests wait for room in the socket.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends the waiting requests.
    ///
    /// # Errors
    /// The connector has ended.
    pub fn send(&mut self) -> anyhow::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while let Some(number) = self.unsent.front() {
            match send(&self.socket, &number.to_ne_bytes(), flags) {
                Ok(_) => drop(self.unsent.pop_front()),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("the connector has ended"),
            }
        }
        Ok(())
    }

    /// Returns the next answer, if there is one.
    ///
    /// # Errors
    /// The connector has ended, or sends an invalid answer.
    pub fn receive(&mut self) -> anyhow::Result<Option<Answered>> {
        let mut message = [0; 9];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut message)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
            Ok(received) if received.bytes == 9 => {}
            Ok(_) => bail!("the connector has ended"),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno).context("hearing from the connector"),
        }
        let mut connection = None;
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = part {
                connection = fds.last();
            }
        }
        let (number, byte) = message.split_at(8);
        let number = u64::from_ne_bytes(number.try_into().context("8 bytes")?);
        let connection = match (Outcome::of(byte[0]), connection) {
            (Some(Outcome::Connected), Some(fd)) => Ok(TcpStream::from(fd)),
            (Some(Outcome::Refused), _) => Err(NoBackend::Refused),
            (Some(Outcome::Timeout), _) => Err(NoBackend::Timeout),
            // A connection that could not be passed: no descriptor is left.
            (Some(_), _) => Err(NoBackend::Unreachable),
            (None, _) => bail!("the connector says {}", byte[0]),
        };
        Ok(Some(Answered { number, connection }))
    }
}

impl AsFd for Connections {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
