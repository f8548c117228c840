//! Asks instances, one or many at once.

use crate::request::Request;
use anyhow::{Context, anyhow};
use nfluid_formats::answer::{Gathered, LineError, read_line, understood};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};
use serde_json::Value;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for an NF to take a request and to answer. It answers between two batches.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that are written at once. The kernel waits for room for each piece, up to the whole write timeout each time.
const PIECE: usize = 16 << 10;

/// Connects without waiting. An instance that accepts no connection has a full queue some day; the kernel refuses then.
///
/// # Errors
/// When the instance does not listen, or its queue is full.
pub fn open(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// A stream whose reads and writes all have to be done by one deadline, however slowly the instance reads or writes.
pub struct ByDeadline<'a> {
    stream: &'a UnixStream,
    patience: Duration,
    deadline: Instant,
}

impl<'a> ByDeadline<'a> {
    /// From now on, within `patience`.
    pub fn new(stream: &'a UnixStream, patience: Duration) -> Self {
        ByDeadline {
            stream,
            patience,
            deadline: Instant::now() + patience,
        }
    }
}

impl ByDeadline<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for ByDeadline<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

impl Write for ByDeadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        let mut stream = self.stream;
        stream.write(&bytes[..bytes.len().min(PIECE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line_by(stream: ByDeadline<'_>) -> anyhow::Result<String> {
    let patience = stream.patience;
    read_line(stream).map_err(|error| match error {
        LineError::Io(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            anyhow!("no answer within {patience:?}")
        }
        error => error.into(),
    })
}

/// Sends one request and returns what the NF answers.
///
/// # Errors
/// When the instance does not listen or answer, or the NF refuses.
pub fn ask(path: &Path, request: &Request) -> anyhow::Result<Value> {
    ask_about(path, request, None)
}

/// As [`ask`]; hands over a file or socket with the request.
///
/// # Errors
/// As for [`ask`].
pub fn ask_about(
    path: &Path,
    request: &Request,
    about: Option<BorrowedFd<'_>>,
) -> anyhow::Result<Value> {
    ask_within(PATIENCE, path, request, about)
}

/// As [`ask_about`], in at most `patience`.
///
/// # Errors
/// As for [`ask`].
pub fn ask_within(
    patience: Duration,
    path: &Path,
    request: &Request,
    about: Option<BorrowedFd<'_>>,
) -> anyhow::Result<Value> {
    let text = request.line()?;
    // An instance that accepts the connection waits only a moment for the request.
    let stream = open(path).context("the instance does not listen for commands")?;
    stream.set_nonblocking(false)?;
    let mut timed = ByDeadline::new(&stream, patience);
    let mut sent = 0;
    if let Some(fd) = about {
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [IoSlice::new(&text.as_bytes()[..text.len().min(PIECE)])];
        stream.set_write_timeout(Some(patience))?;
        sent = sendmsg(&stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)
            .context("the instance does not take the request")?;
    }
    timed
        .write_all(&text.as_bytes()[sent..])
        .context("the instance does not take the request")?;
    let line = line_by(timed)?;
    Ok(understood(line.as_bytes())?)
}

/// Time that one change may wait for all the NFs that it asks one after the other. An NF that answers late uses up the time of
/// those after it. So the change ends, however many NFs there are.
#[derive(Debug)]
pub struct Budget(Duration);

/// A change's whole budget: that of two NFs that do not answer at all.
const ALL_TOGETHER: Duration = Duration::from_secs(10);
/// Least time for each NF: an NF that is well answers at once.
const EACH_MIN: Duration = Duration::from_millis(200);

impl Default for Budget {
    fn default() -> Self {
        Budget(ALL_TOGETHER)
    }
}

impl Budget {
    /// As [`ask_about`], in the time that is left.
    ///
    /// # Errors
    /// As for [`ask`].
    pub fn ask_about(
        &mut self,
        path: &Path,
        request: &Request,
        about: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<Value> {
        let begun = Instant::now();
        let patience = self.0.clamp(EACH_MIN, PATIENCE);
        let answer = ask_within(patience, path, request, about);
        self.0 = self.0.saturating_sub(begun.elapsed());
        if patience < PATIENCE {
            return answer.context("after others that have answered late in the same change");
        }
        answer
    }
}

/// Instances that are asked at the same time.
const AT_ONCE: usize = 64;

/// Sends the same request to many instances. Returns `read` of each answer; `None`: the instance does not answer. The daemon
/// waits for all of them at the same time.
pub fn ask_each<T>(
    paths: &[PathBuf],
    request: &Request,
    read: impl Fn(Value) -> T,
) -> Vec<Option<T>> {
    let Ok(text) = request.line() else {
        return paths.iter().map(|_| None).collect();
    };
    let mut answers = Vec::with_capacity(paths.len());
    for some in paths.chunks(AT_ONCE) {
        let asked = some.iter().map(|path| Asked::ask(path, text.as_bytes()));
        let mut asked: Vec<Option<Asked>> = asked.collect();
        let mut all: Vec<&mut Asked> = asked.iter_mut().flatten().collect();
        await_answers(&mut all, Instant::now() + PATIENCE);
        let some = asked.into_iter().map(|asked| asked?.answer().map(&read));
        answers.extend(some);
    }
    answers
}

/// An instance that was asked, and the part of its answer that has come. No call here waits.
pub struct Asked {
    stream: UnixStream,
    got: Gathered,
    is_over: bool,
}

impl Asked {
    /// An instance that was asked on this stream, which must not block.
    pub fn on(stream: UnixStream) -> Self {
        Asked {
            stream,
            got: Gathered::default(),
            is_over: false,
        }
    }

    fn ask(path: &Path, request: &[u8]) -> Option<Self> {
        let mut stream = open(path).ok()?;
        // The request is short: the socket has room for it.
        stream.write_all(request).ok()?;
        Some(Asked::on(stream))
    }

    /// Reads what has come. Returns true if no more is to be read: the answer is whole, too long, or cut.
    pub fn listen(&mut self) -> bool {
        while !self.is_over && self.hear() {}
        self.is_over
    }

    /// Returns true if bytes have arrived.
    fn hear(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => self.is_over = true,
            Ok(count) => self.is_over = self.got.add(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => self.is_over = true,
        }
        true
    }

    /// Reads until no more is to be read, or until `deadline`.
    pub fn wait(&mut self, deadline: Instant) {
        await_answers(&mut [self], deadline);
    }

    /// The line of the answer, as far as it has come.
    pub fn line(&self) -> &[u8] {
        self.got.line()
    }

    fn answer(&self) -> Option<Value> {
        understood(self.line()).ok()
    }
}

/// Readable when more of the answer has come.
impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until each has answered, or until `deadline`.
pub fn await_answers(asked: &mut [&mut Asked], deadline: Instant) {
    loop {
        let awaited = asked.iter_mut().filter(|asked| !asked.is_over);
        let mut awaited: Vec<&mut &mut Asked> = awaited.collect();
        let left = deadline.saturating_duration_since(Instant::now());
        if awaited.is_empty() || left.is_zero() {
            return;
        }
        let fds = awaited.iter();
        let mut fds: Vec<PollFd<'_>> = fds
            .map(|asked| PollFd::from_borrowed_fd(asked.as_fd(), PollFlags::IN))
            .collect();
        // Interrupted or not: look.
        let _ = poll(
            &mut fds,
            Some(&Timespec::try_from(left).unwrap_or_default()),
        );
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for (asked, _) in awaited.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            asked.listen();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_formats::answer::EACH_MAX;
    use serde_json::json;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Barrier};
    use std::thread;

    /// An instance that does `before` between the question and the answer.
    fn instance(
        folder: &Path,
        name: &str,
        answer: Vec<u8>,
        before: impl FnOnce() + Send + 'static,
    ) -> PathBuf {
        let path = folder.join(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a question");
            let mut question = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            reader.read_line(&mut question).expect("a line");
            before();
            for piece in answer.chunks(3) {
                // The client closes the connection when it has read enough.
                let _gone = stream.write_all(piece);
            }
        });
        path
    }

    #[test]
    fn many_are_asked_before_the_first_answers() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = Arc::new(Barrier::new(AT_ONCE));
        let paths: Vec<PathBuf> = (0..AT_ONCE)
            .map(|number| {
                let all = Arc::clone(&all);
                let answer = format!("{{\"ok\":{number}}}\n").into_bytes();
                instance(folder.path(), &number.to_string(), answer, move || {
                    all.wait();
                })
            })
            .collect();
        let answers = ask_each(&paths, &Request::Metrics, |answer| answer);
        let expected: Vec<_> = (0..AT_ONCE).map(|number| Some(json!(number))).collect();
        assert_eq!(answers, expected);
    }

    #[test]
    fn an_incomplete_answer_is_not_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("it can");
        let mut asked = Asked::on(ours);
        assert!(!asked.listen());
        theirs.write_all(b"{\"ok\":").expect("room");
        assert!(!asked.listen());
        theirs.write_all(b"1}\nmore").expect("room");
        assert!(asked.listen());
        assert_eq!(asked.line(), b"{\"ok\":1}");
    }

    // promise: 7.42
    #[test]
    fn an_answer_without_an_end_is_given_up() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("it can");
        let writer = thread::spawn(move || while theirs.write_all(&[b'x'; 4096]).is_ok() {});
        let mut asked = Asked::on(ours);
        while !asked.listen() {
            thread::yield_now();
        }
        assert!(asked.line().len() <= EACH_MAX + (16 << 10));
        drop(asked);
        writer.join().expect("ended");
    }

    #[test]
    fn an_answer_of_any_length_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("endless");
        let listener = UnixListener::bind(&path).expect("a socket");
        let hostile = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a question");
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        let why = ask(&path, &Request::Beat).expect_err("it has no end");
        assert!(format!("{why:#}").contains("4194304 bytes"), "{why:#}");
        hostile.join().expect("ended");
    }

    #[test]
    fn of_many_each_has_its_own_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let answers: [&[u8]; 6] = [
            b"{\"ok\":{\"a\":1}}\n",
            b"{\"error\":\"no\"}\n",
            b"nonsense\n",
            b"{\"ok\":2}",
            b"{\"ok\":3}\nand more\n",
            b"",
        ];
        let mut paths = vec![folder.path().join("nobody")];
        for (number, answer) in answers.into_iter().enumerate() {
            let name = number.to_string();
            paths.push(instance(folder.path(), &name, answer.to_vec(), || ()));
        }
        let expected = [
            None,
            Some(json!({ "a": 1 })),
            None,
            None,
            Some(json!(2)),
            Some(json!(3)),
            None,
        ];
        assert_eq!(
            ask_each(&paths, &Request::Metrics, |answer| answer),
            expected
        );
    }

    // promise: 7.41
    #[test]
    fn a_slow_reader_of_a_request_times_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drips");
        let listener = UnixListener::bind(&path).expect("a socket");
        let hostile = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a question");
            let mut drop = [0; PIECE];
            // This server would answer in the end.
            while let Ok(1..) = stream.read(&mut drop) {
                if drop.contains(&b'\n') {
                    let _gone = stream.write_all(b"{\"ok\":1}\n");
                }
                thread::sleep(Duration::from_millis(40));
            }
        });
        let request = Request::Reconfigure {
            config: json!("x".repeat(4 << 20)),
        };
        let patience = Duration::from_millis(100);
        let why = ask_within(patience, &path, &request, None).expect_err("it is too slow");
        assert!(format!("{why:#}").contains("take the request"), "{why:#}");
        hostile.join().expect("ended");
    }

    // promise: 7.41
    #[test]
    fn those_that_do_not_answer_share_what_a_change_may_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let silent = folder.path().join("silent");
        let _listens = UnixListener::bind(&silent).expect("a socket");
        let request = Request::Metrics;
        let mut budget = Budget(EACH_MIN * 3 / 2);
        for _ in 0..3 {
            let why = budget.ask_about(&silent, &request, None);
            let why = format!("{:#}", why.expect_err("it is silent"));
            assert!(why.contains("no answer within"), "{why}");
            assert!(why.contains("answered late"), "{why}");
        }
        assert_eq!(budget.0, Duration::ZERO);
        let answer = b"{\"ok\":1}\n".to_vec();
        let quick = instance(folder.path(), "quick", answer, || ());
        let answer = budget.ask_about(&quick, &request, None);
        assert_eq!(answer.expect("it answers at once"), json!(1));
    }

    #[test]
    fn silence_and_end_are_distinguished() {
        let said = |stream: &UnixStream, patience| {
            let line = line_by(ByDeadline::new(stream, patience));
            line.expect_err("no answer").to_string()
        };
        let (own, theirs) = UnixStream::pair().expect("a pair");
        let why = said(&own, Duration::from_millis(10));
        assert!(why.contains("within"), "{why}");
        drop(theirs);
        let why = said(&own, Duration::from_secs(60));
        assert!(why.contains("has ended"), "{why}");
        let (own, theirs) = UnixStream::pair().expect("a pair");
        // With something unread the other end is reset.
        (&own).write_all(b"question\n").expect("room");
        drop(theirs);
        let why = said(&own, Duration::from_secs(60));
        assert!(why.contains("has ended"), "{why}");
    }
}
