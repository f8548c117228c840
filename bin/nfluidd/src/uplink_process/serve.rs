//! The socket of an uplink process.

use super::journal::Journal;
use super::protocol::{News, PROTOCOL, Request};
use nfluid_switch::Switch;
use nfluid_switch::uplink::Uplink;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// How long a peer may take to say or hear something. The uplink's own thread does not wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longer than any request.
const REQUEST_MAX: u64 = 256;

/// Answers requests and tells news, until one asks for the end.
///
/// # Errors
/// When the socket breaks, or what went wrong at the end.
pub fn until_told_to_end(
    switch: &Switch,
    uplink: Uplink,
    listener: &UnixListener,
    journal: &Journal,
    socket: &Path,
) -> anyhow::Result<()> {
    let mut follower: Option<UnixStream> = None;
    let (request, stream) = loop {
        wait(&uplink, listener, journal, follower.as_ref())?;
        if let Ok((stream, _)) = listener.accept() {
            match (read_request(&stream), stream) {
                (Some(Request::Status), mut stream) => drop(tell(&mut stream, &hello(&uplink))),
                (Some(Request::Follow), mut stream) => {
                    if tell(&mut stream, &hello(&uplink)).is_ok() {
                        follower = Some(stream);
                    }
                }
                (Some(end), stream) => break (end, stream),
                (None, _) => {}
            }
        }
        if let Some(stream) = &mut follower
            && (has_hung_up(stream) || tell_news(stream, &uplink, journal).is_err())
        {
            follower = None;
        }
    };
    end(request, stream, follower, switch, uplink, journal, socket)
}

/// Blocks until there is something to do. News wait for somebody to hear them.
fn wait(
    uplink: &Uplink,
    listener: &UnixListener,
    journal: &Journal,
    follower: Option<&UnixStream>,
) -> anyhow::Result<()> {
    let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
    let changes = uplink.changes();
    if let Some(stream) = follower {
        fds.push(PollFd::new(stream, PollFlags::IN));
        fds.push(PollFd::new(&changes, PollFlags::IN));
        fds.push(PollFd::new(journal, PollFlags::IN));
    }
    match poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn read_request(stream: &UnixStream) -> Option<Request> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(REQUEST_MAX));
    reader.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn hello(uplink: &Uplink) -> News {
    News::Hello {
        protocol: PROTOCOL,
        abi: nfluid_switch::abi::VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        status: uplink.status(),
    }
}

/// A follower says nothing: what it does not say is the end of it.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    let now = rustix::time::Timespec::default();
    !matches!(poll(&mut fds, Some(&now)), Ok(0))
}

fn tell_news(stream: &mut UnixStream, uplink: &Uplink, journal: &Journal) -> std::io::Result<()> {
    for (level, text) in journal.take() {
        let level = level.as_str().to_ascii_lowercase();
        tell(stream, &News::Line { level, text })?;
    }
    if uplink.has_changed() {
        tell(stream, &News::Status(uplink.status()))?;
    }
    Ok(())
}

fn tell(stream: &mut UnixStream, news: &News) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(news)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn end(
    request: Request,
    mut stream: UnixStream,
    follower: Option<UnixStream>,
    switch: &Switch,
    uplink: Uplink,
    journal: &Journal,
    socket: &Path,
) -> anyhow::Result<()> {
    let ended = if request == Request::Leave {
        uplink.leave();
        Ok(())
    } else {
        uplink.close(switch)
    };
    if let Some(mut stream) = follower {
        for (level, text) in journal.take() {
            let level = level.as_str().to_ascii_lowercase();
            // Who does not listen any more does not want to know.
            let _told = tell(&mut stream, &News::Line { level, text });
        }
    }
    let error = ended.as_ref().err().map(ToString::to_string);
    let _told = tell(&mut stream, &News::Ended { error });
    let _gone = std::fs::remove_file(socket);
    Ok(ended?)
}
