//! The socket of a process.

use crate::journal::Journal;
use crate::protocol::{End, News, PROTOCOL, Request};
use crate::service::Service;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Longest time of a peer to send or receive. The process's other threads do not wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longer than any request: an order names up to 64 ports, or 1024 rules of less than 400 bytes each.
const REQUEST_MAX: usize = 512 * 1024;

/// Answers requests and sends news, until a request asks for the end.
///
/// # Errors
/// When the socket breaks, or what went wrong at the end.
pub fn until_end<S: Service>(
    mut service: S,
    listener: &UnixListener,
    journal: &Journal,
    socket: &Path,
) -> anyhow::Result<()> {
    let mut follower: Option<UnixStream> = None;
    let (how, stream) = loop {
        wait(&service, listener, journal, follower.as_ref())?;
        if let Ok((mut stream, _)) = listener.accept() {
            match read_request::<S>(&stream) {
                Some((Request::Status, _)) => drop(send(&mut stream, &hello(&service))),
                Some((Request::Follow, _)) => {
                    let greeted = send(&mut stream, &hello(&service)).is_ok();
                    follower = greeted.then_some(stream).or(follower);
                }
                Some((Request::Obey(order), fds)) => {
                    let outcome = service.obey(order, fds);
                    // A daemon that does not wait for the answer looks at the status later.
                    let _sent = send(&mut stream, &outcome);
                }
                Some((Request::End(how), _)) => break (how, stream),
                None => {}
            }
        }
        if let Some(stream) = &mut follower
            && (has_hung_up(stream) || send_news(stream, &service, journal).is_err())
        {
            follower = None;
        }
    };
    end(how, stream, follower, service, journal, socket)
}

/// Blocks until there is something to do. News wait for a reader.
fn wait<S: Service>(
    service: &S,
    listener: &UnixListener,
    journal: &Journal,
    follower: Option<&UnixStream>,
) -> anyhow::Result<()> {
    let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
    let changes = service.changes();
    if let Some(stream) = follower {
        fds.push(PollFd::new(stream, PollFlags::IN));
        fds.push(PollFd::new(journal, PollFlags::IN));
        fds.extend(changes.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    }
    match poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn read_request<S: Service>(stream: &UnixStream) -> Option<(Request<S::Order>, Vec<OwnedFd>)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let (line, fds) = nfluid_sandbox::fds::receive_line(stream, REQUEST_MAX).ok()?;
    Some((serde_json::from_slice(&line).ok()?, fds))
}

fn hello<S: Service>(service: &S) -> News<S::Status> {
    News::Hello {
        protocol: PROTOCOL,
        abi: nfluid_switch::abi::VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        status: service.status(),
    }
}

/// Returns true if a follower has closed its connection: a follower sends nothing else.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    let now = rustix::time::Timespec::default();
    !matches!(poll(&mut fds, Some(&now)), Ok(0))
}

fn send_news<S: Service>(
    stream: &mut UnixStream,
    service: &S,
    journal: &Journal,
) -> std::io::Result<()> {
    send_lines::<S>(stream, journal)?;
    if service.has_changed() {
        send(stream, &News::Status(service.status()))?;
    }
    Ok(())
}

fn send_lines<S: Service>(stream: &mut UnixStream, journal: &Journal) -> std::io::Result<()> {
    for (level, text) in journal.take() {
        let level = level.as_str().to_ascii_lowercase();
        send(stream, &News::<S::Status>::Line { level, text })?;
    }
    Ok(())
}

fn send(stream: &mut UnixStream, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn end<S: Service>(
    how: End,
    mut stream: UnixStream,
    follower: Option<UnixStream>,
    service: S,
    journal: &Journal,
    socket: &Path,
) -> anyhow::Result<()> {
    let ended = service.end(how);
    if let Some(mut stream) = follower {
        // A daemon that does not listen any more needs no lines.
        let _sent = send_lines::<S>(&mut stream, journal);
    }
    let error = ended.as_ref().err().map(|error| format!("{error:#}"));
    let _sent = send(&mut stream, &News::<S::Status>::Ended { error });
    let _gone = std::fs::remove_file(socket);
    ended
}
