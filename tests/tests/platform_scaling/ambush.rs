//! A daemon that is killed at a certain request to a member.

use nfluid_testbed::process::signal;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// When it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The member has not heard of it.
    Before,
    /// The member has served the request, and the daemon has not got the answer.
    After,
}

/// Lies between a daemon and the control socket of a member; all requests but that one pass.
pub struct Ambush {
    control: PathBuf,
    aside: PathBuf,
    struck: Receiver<()>,
}

impl Ambush {
    /// At the member that listens at `control`, for the daemon of this number.
    pub fn lay(control: &Path, daemon: u32, request: &str, moment: Moment) -> Self {
        let aside = control.with_extension("aside");
        fs::rename(control, &aside).expect("it listens there");
        let listener = UnixListener::bind(control).expect("nobody listens there any more");
        let (strike, struck) = channel();
        let (member, request) = (aside.clone(), request.to_owned());
        // The thread ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some((asked, fd)) = hear(&stream) else {
                    continue;
                };
                let is_it = op(&asked) == request;
                if is_it && moment == Moment::Before {
                    signal(daemon, Signal::KILL);
                    let _struck = strike.send(());
                    continue;
                }
                let answer = ask(&member, &asked, fd);
                if is_it {
                    signal(daemon, Signal::KILL);
                    let _struck = strike.send(());
                }
                let _gone = (&stream).write_all(&answer);
            }
        });
        Ambush {
            control: control.to_owned(),
            aside,
            struck,
        }
    }

    /// Waits until the daemon was killed; the member listens where it did.
    pub fn end(self) {
        let struck = self.struck.recv_timeout(PATIENCE);
        struck.expect("the request comes");
        fs::rename(&self.aside, &self.control).expect("both are there");
    }
}

fn op(asked: &[u8]) -> String {
    let asked: Value = serde_json::from_slice(asked).unwrap_or_default();
    asked["op"].as_str().unwrap_or_default().to_owned()
}

/// A request, a line, and the descriptor that comes with it.
fn hear(stream: &UnixStream) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    let (mut asked, mut fd) = (Vec::new(), None);
    while !asked.ends_with(b"\n") {
        let mut buffer = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let received = recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let bytes = received.ok().filter(|received| received.bytes > 0)?.bytes;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.last().or(fd);
            }
        }
        asked.extend_from_slice(&buffer[..bytes]);
    }
    Some((asked, fd))
}

/// Returns the member's answer.
fn ask(member: &Path, asked: &[u8], fd: Option<OwnedFd>) -> Vec<u8> {
    let mut stream = UnixStream::connect(member).expect("it listens");
    let mut sent = 0;
    if let Some(fd) = fd {
        let fds = [fd.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let parts = [IoSlice::new(asked)];
        sent = sendmsg(&stream, &parts, &mut ancillary, SendFlags::NOSIGNAL).expect("it hears");
    }
    stream.write_all(&asked[sent..]).expect("it hears");
    let mut answer = Vec::new();
    let read = BufReader::new(stream).read_until(b'\n', &mut answer);
    read.expect("it answers");
    answer
}
