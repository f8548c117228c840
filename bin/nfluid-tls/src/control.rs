//! The control connection of a terminator: one JSON request per line, one JSON answer per line. Requests are answered
//! between the turns of connections, so that an answer shows that clients are served too.

use anyhow::Context;
use nfluid_protocol::{Answer, Request};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// Longest request in bytes.
const REQUEST_MAX: usize = 4 << 10;

/// The daemon's connection.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    stream: Option<UnixStream>,
    read: Vec<u8>,
}

impl Control {
    /// Listens on an inherited socket.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(listener: OwnedFd) -> anyhow::Result<Self> {
        let listener = UnixListener::from(listener);
        listener
            .set_nonblocking(true)
            .context("the control socket")?;
        Ok(Control {
            listener,
            stream: None,
            read: Vec::new(),
        })
    }

    /// Returns the listening socket for the daemon.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Returns the daemon's connection.
    pub fn stream(&self) -> Option<&UnixStream> {
        self.stream.as_ref()
    }

    /// Accepts a connection, in place of the one before. Returns true if there was one.
    pub fn accept(&mut self) -> bool {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.listener, flags) {
            Ok(stream) => {
                self.stream = Some(stream.into());
                self.read.clear();
                true
            }
            Err(errno) => {
                if errno != Errno::AGAIN {
                    eprintln!("nfluid-tls: control socket: {errno}");
                }
                false
            }
        }
    }

    /// Returns the next complete request, or the error in it.
    pub fn next(&mut self) -> Option<Result<Request, String>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(parse(&line));
            }
            let mut piece = [0; 1024];
            let read = self.stream.as_ref()?.read(&mut piece);
            match read {
                Ok(read) if read > 0 && self.read.len() < REQUEST_MAX => {
                    self.read.extend_from_slice(&piece[..read]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The daemon has sent everything, or too much.
                _ => {
                    self.stream = None;
                    return None;
                }
            }
        }
    }

    /// Answers. An answer that the daemon does not take, which fits into the socket's buffer, is dropped.
    pub fn answer(&mut self, answer: &Answer) {
        let Ok(text) = answer.line() else {
            return;
        };
        let stream = self.stream.as_mut();
        let written = stream.map(|stream| stream.write_all(&text));
        if matches!(written, Some(Err(_))) {
            self.stream = None;
        }
    }
}

fn parse(line: &[u8]) -> Result<Request, String> {
    serde_json::from_slice(line).map_err(|error| format!("not a request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_protocol::answer::Draining;
    use std::io::{BufRead, BufReader};

    #[test]
    fn requests_are_read_line_by_line_and_one_that_is_too_long_ends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).expect("a socket");
        let mut control = Control::new(listener.into()).expect("it listens");
        assert!(!control.accept(), "nobody has called");
        let mut daemon = UnixStream::connect(&path).expect("it listens");
        assert!(control.accept());
        assert!(control.next().is_none());
        daemon
            .write_all(b"{\"op\":\"beat\"}\n{\"op\":\"hand_over\"}\nnonsense\n")
            .expect("it reads");
        assert_eq!(control.next(), Some(Ok(Request::Beat)));
        assert_eq!(control.next(), Some(Ok(Request::HandOver)));
        assert!(matches!(control.next(), Some(Err(_))));
        control.answer(&Answer::of(&Draining { connections: 3 }));
        let mut line = String::new();
        BufReader::new(&daemon)
            .read_line(&mut line)
            .expect("it answers");
        assert_eq!(line, "{\"ok\":{\"connections\":3}}\n");
        daemon
            .write_all(&[b'x'; 2 * REQUEST_MAX])
            .expect("there is room");
        assert!(control.next().is_none() && control.stream().is_none());
    }
}
