//! An instance answers the daemon between batches.
//!
//! Where there are several queues, a thread reads requests and writes answers. Where there is one queue, the queue's own thread
//! does both, and another thread only takes what is long (`connection`). Of very many instances each costs a thread less, which
//! is 50 KB, and the daemon waits for no thread to be woken.

use super::connection::{self, Accepted, Partial};
use crate::answer::Answer;
use crate::request::Request;
use anyhow::Context;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// Longest request in bytes: a configuration with all its rules.
const REQUEST_MAX: u64 = 64 << 20;
/// Pause before a connection that could not be accepted is looked at again.
const NOT_ACCEPTED: Duration = Duration::from_millis(10);

/// A request and the descriptor that came with it.
#[derive(Debug)]
pub struct Received {
    /// The request.
    pub request: Request,
    /// The file or socket that the request is about.
    pub fd: Option<OwnedFd>,
}

/// The answer of an NF on several queues, from the answers of all of them.
fn answer_of_all(request: &Request, answers: Vec<Answer>) -> Answer {
    let mut values = Vec::new();
    for answer in answers {
        match answer {
            Answer::Ok(value) => values.push(value),
            error @ Answer::Error(_) => return error,
        }
    }
    if values.len() == 1 {
        return Answer::Ok(values.remove(0));
    }
    match request {
        Request::Metrics => Answer::Ok(values.into_iter().reduce(sum).unwrap_or_default()),
        Request::Command { .. } => Answer::Ok(Value::Array(values)),
        _ => Answer::Ok(Value::Null),
    }
}

/// Adds up figures of the same name; puts lists one behind the other.
fn sum(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            for (key, value) in other {
                let before = one.remove(&key);
                let both = before.map_or(value.clone(), |before| sum(before, value));
                one.insert(key, both);
            }
            Value::Object(one)
        }
        (Value::Array(mut one), Value::Array(other)) => {
            one.extend(other);
            Value::Array(one)
        }
        (Value::Number(one), Value::Number(other)) => match (one.as_u64(), other.as_u64()) {
            (Some(one), Some(other)) => one.saturating_add(other).into(),
            _ => (one.as_f64().unwrap_or(0.0) + other.as_f64().unwrap_or(0.0)).into(),
        },
        (one, _) => one,
    }
}

/// A request for a queue's thread, and where its answer goes.
type Pending = (Received, ReplyTo);

/// Where an answer goes. If the asker has gone, the answer is dropped.
#[derive(Debug)]
enum ReplyTo {
    /// To the thread that talks to the daemon.
    Thread(SyncSender<Answer>),
    /// To the daemon.
    Daemon(UnixStream),
}

impl ReplyTo {
    fn send(self, answer: Answer) {
        match self {
            ReplyTo::Thread(sender) => drop(sender.send(answer)),
            ReplyTo::Daemon(stream) => connection::reply(stream, &answer),
        }
    }
}

/// The control socket's side of a queue.
#[derive(Debug)]
pub struct Control {
    /// The listening socket, if the queue's own thread accepts connections.
    listener: Option<OwnedFd>,
    /// From the thread that talks to the daemon, while there is one.
    requests: Option<Receiver<Pending>>,
    /// The next request, which was accepted but is not answered yet.
    next: Option<Pending>,
    /// Readable when a request waits, or a frame may: the queue's thread may be asleep.
    doorbell: OwnedFd,
}

/// The socket's side of a queue.
struct Queue {
    requests: SyncSender<Pending>,
    doorbell: OwnedFd,
}

/// Rings the doorbell when it is dropped: the thread does not talk to the daemon any more.
struct RingOnDrop(OwnedFd);

impl Drop for RingOnDrop {
    fn drop(&mut self) {
        ring(&self.0);
    }
}

impl Control {
    /// The sides of `queues` queues; answers on `listener` from now on, if there is one.
    pub fn start(listener: Option<OwnedFd>, queues: usize) -> anyhow::Result<Vec<Self>> {
        if queues == 1 {
            let doorbell = new_doorbell()?;
            return Ok(vec![Control {
                listener,
                requests: None,
                next: None,
                doorbell,
            }]);
        }
        let mut controls = Vec::with_capacity(queues);
        let mut sides = Vec::with_capacity(queues);
        for _ in 0..queues {
            let (sender, requests) = sync_channel(1);
            let doorbell = new_doorbell()?;
            sides.push(Queue {
                requests: sender,
                doorbell: doorbell.try_clone().context("duplicating the eventfd")?,
            });
            controls.push(Control {
                listener: None,
                requests: Some(requests),
                next: None,
                doorbell,
            });
        }
        if let Some(listener) = listener {
            start_thread(move || serve(&UnixListener::from(listener), &sides))?;
        }
        Ok(controls)
    }

    /// Readable when the daemon wants something, or a frame may wait: the queue's thread may be asleep. Another one after each
    /// [`Control::answer`] and [`Control::answer_early`].
    pub fn wake(&self) -> &OwnedFd {
        match &self.listener {
            Some(listener) if self.accepts() => listener,
            _ => &self.doorbell,
        }
    }

    /// Answers all requests that wait.
    pub fn answer(&mut self, mut handle: impl FnMut(Received) -> Answer) {
        self.listen();
        while let Some((received, reply_to)) = self.next() {
            reply_to.send(handle(received));
        }
    }

    /// Returns true if the next connection is accepted: no request waits, and no thread reads one.
    fn accepts(&self) -> bool {
        self.requests.is_none() && self.next.is_none()
    }

    /// The next request that waits.
    fn next(&mut self) -> Option<Pending> {
        if let Some(first) = self.next.take() {
            return Some(first);
        }
        match self.requests.as_ref()?.try_recv() {
            Ok(pending) => Some(pending),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                if self.listener.is_some() {
                    self.requests = None;
                }
                None
            }
        }
    }

    /// Takes the wake-up, and accepts a connection that waits. Comes before the look at requests: a later request wakes again.
    fn listen(&mut self) {
        match &self.listener {
            Some(listener) if self.accepts() => {
                if !is_readable(listener) {
                    return;
                }
                let accepted = match connection::accept(listener) {
                    Ok(Accepted::Nothing) => Ok(()),
                    Ok(Accepted::Whole(received, stream)) => {
                        self.next = Some((received, ReplyTo::Daemon(stream)));
                        Ok(())
                    }
                    Ok(Accepted::Begun(partial)) => start_reader(partial, &self.doorbell)
                        .map(|requests| self.requests = Some(requests)),
                    Err(error) => {
                        // The connection stays in the queue, and the socket stays readable.
                        std::thread::sleep(NOT_ACCEPTED);
                        Err(error)
                    }
                };
                if let Err(error) = accepted {
                    eprintln!("control socket: {error:#}");
                }
            }
            _ => {
                let mut count = [0u8; 8];
                let _ = rustix::io::read(&self.doorbell, &mut count);
            }
        }
    }

    /// Answers the requests to which `handle` has an answer already. The first to which it has none is put off until
    /// [`Control::answer`], and so are all after it: then it returns `false`, and [`Control::wake`] stays readable.
    pub fn answer_early(
        &mut self,
        mut handle: impl FnMut(&mut Received) -> Option<Answer>,
    ) -> bool {
        self.listen();
        while let Some((mut received, reply_to)) = self.next() {
            match handle(&mut received) {
                Some(answer) => reply_to.send(answer),
                None => {
                    self.next = Some((received, reply_to));
                    ring(&self.doorbell);
                    return false;
                }
            }
        }
        true
    }
}

fn new_doorbell() -> anyhow::Result<OwnedFd> {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("eventfd")
}

fn ring(doorbell: &OwnedFd) {
    // The write fails only after 2^64 rings: the doorbell is readable then.
    let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
}

/// Starts a thread that reads the rest of a request and writes the answer.
fn start_reader(partial: Partial, doorbell: &OwnedFd) -> anyhow::Result<Receiver<Pending>> {
    let (sender, requests) = sync_channel(1);
    let duplicate = |fd: &OwnedFd| fd.try_clone().context("duplicating a descriptor");
    let queue = Queue {
        requests: sender,
        doorbell: duplicate(doorbell)?,
    };
    let at_the_end = RingOnDrop(duplicate(doorbell)?);
    start_thread(move || {
        // Dropped last: the thread's side of the channel is gone when the doorbell rings.
        let _at_the_end = at_the_end;
        drop(converse(partial, &[queue]));
    })?;
    Ok(requests)
}

/// Starts a thread that talks to the daemon.
pub fn start_thread(work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name("control".to_owned())
        .stack_size(256 << 10)
        .spawn(work)
        .context("starting the control thread")
        .map(drop)
}

/// Serves one connection after the other. An error ends its connection only.
fn serve(listener: &UnixListener, queues: &[Queue]) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => drop(converse(Partial::new(stream), queues)),
            Err(error) => {
                eprintln!("control socket: {error}");
                return;
            }
        }
    }
}

/// Reads one request and writes its answer.
fn converse(partial: Partial, queues: &[Queue]) -> anyhow::Result<()> {
    let mut reader = BufReader::new(partial);
    let mut line = String::new();
    if reader.by_ref().take(REQUEST_MAX).read_line(&mut line)? == 0 {
        return Ok(());
    }
    let mut partial = reader.into_inner();
    let fd = partial.fd.take();
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) if queues.len() > 1 && request.is_about_state() => Answer::Error(format!(
            "it has {} queues, each with a state of its own: their states are not moved",
            queues.len()
        )),
        Ok(request) => ask_all(&request, fd, queues)?,
        Err(error) => Answer::Error(format!("not a request: {error}")),
    };
    Ok(partial.into_stream().write_all(&answer.line()?)?)
}

/// Asks one queue after the other. When one refuses, the rest are not asked.
fn ask_all(request: &Request, mut fd: Option<OwnedFd>, queues: &[Queue]) -> anyhow::Result<Answer> {
    let mut answers = Vec::with_capacity(queues.len());
    for queue in queues {
        let answer = queue.ask(Received {
            request: request.clone(),
            fd: fd.take(),
        })?;
        let is_refused = matches!(answer, Answer::Error(_));
        answers.push(answer);
        if is_refused {
            break;
        }
    }
    Ok(answer_of_all(request, answers))
}

impl Queue {
    fn ask(&self, received: Received) -> anyhow::Result<Answer> {
        let (sender, answer) = sync_channel(1);
        self.requests
            .send((received, ReplyTo::Thread(sender)))
            .context("the NF has ended")?;
        ring(&self.doorbell);
        answer.recv().context("the NF has ended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_of_all_queues_are_added_up() {
        let one = json!({"nf": {"a_total": 1.0, "b_total": 2.5}, "engine": {"received": 3}, "ports": [1]});
        let other = json!({"nf": {"a_total": 4.0}, "engine": {"received": 5}, "ports": [2]});
        let both = json!({"nf": {"a_total": 5.0, "b_total": 2.5}, "engine": {"received": 8}, "ports": [1, 2]});
        let answers = vec![Answer::Ok(one), Answer::Ok(other)];
        match answer_of_all(&Request::Metrics, answers) {
            Answer::Ok(sum) => assert_eq!(sum, both),
            Answer::Error(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_cannot_be_answered_early_is_answered_later_and_in_its_turn() {
        let (requests, asked) = sync_channel(3);
        let flags = EventfdFlags::NONBLOCK;
        let mut control = Control {
            listener: None,
            requests: Some(asked),
            next: None,
            doorbell: eventfd(0, flags).expect("an eventfd"),
        };
        let mut answers = Vec::new();
        for request in [Request::Beat, Request::Metrics, Request::Beat] {
            let (sender, answer) = sync_channel(1);
            let received = Received { request, fd: None };
            requests
                .send((received, ReplyTo::Thread(sender)))
                .expect("room");
            answers.push(answer);
        }
        let is_beat = |received: &mut Received| matches!(received.request, Request::Beat);
        let early = |received: &mut Received| is_beat(received).then(|| Answer::Ok(json!("early")));
        assert!(!control.answer_early(early));
        let said = |at: usize| match answers[at].try_recv() {
            Ok(Answer::Ok(said)) => said,
            _ => Value::Null,
        };
        assert_eq!(
            [said(0), said(1), said(2)],
            [json!("early"), Value::Null, Value::Null]
        );
        let mut count = [0; 8];
        assert!(
            rustix::io::read(&control.doorbell, &mut count).is_ok(),
            "it is still rung"
        );
        control.answer(|_| Answer::Ok(json!("late")));
        assert_eq!([said(1), said(2)], [json!("late"), json!("late")]);
        assert!(control.answer_early(|_| None), "nothing waits");
    }

    /// Looks as a queue's thread does, until `done`.
    fn look_until(control: &mut Control, mut done: impl FnMut(&Control) -> bool) {
        while !done(control) {
            let mut fds = [PollFd::new(control.wake(), PollFlags::IN)];
            poll(&mut fds, None).expect("a wait");
            control.answer(|received| match received.request {
                Request::Beat => Answer::Ok(json!("alive")),
                _ => Answer::Error("not that".to_owned()),
            });
        }
    }

    #[test]
    fn only_long_requests_have_a_thread_of_their_own() {
        let place = std::env::temp_dir().join(format!("nfluid-test-{}", std::process::id()));
        let listener = UnixListener::bind(&place).expect("a socket");
        let mut controls = Control::start(Some(listener.into()), 1).expect("started");
        let mut control = controls.pop().expect("one queue");
        control.answer(|_| panic!("nobody has asked"));
        let connect = || UnixStream::connect(&place).expect("connected");
        let said = |mut daemon: &UnixStream| {
            let mut all = String::new();
            daemon.read_to_string(&mut all).expect("answered");
            all
        };
        let beat = b"{\"op\":\"beat\"}\n";
        // Two at once: the second waits for the first.
        let daemons = [connect(), connect()];
        for mut daemon in &daemons {
            daemon.write_all(beat).expect("asked");
        }
        for daemon in &daemons {
            control.answer(|_| Answer::Ok(json!("alive")));
            assert_eq!(said(daemon), "{\"ok\":\"alive\"}\n");
            assert!(control.requests.is_none(), "without a thread");
        }
        let slow = connect();
        let (first, rest) = beat.split_at(5);
        (&slow).write_all(first).expect("begun");
        control.answer(|_| panic!("it has not asked yet"));
        assert!(control.requests.is_some(), "a thread listens");
        (&slow).write_all(rest).expect("asked");
        look_until(&mut control, |control| control.requests.is_none());
        assert_eq!(said(&slow), "{\"ok\":\"alive\"}\n");
        let strange = connect();
        (&strange).write_all(b"{}\n").expect("asked");
        control.answer(|_| panic!("that is no request"));
        assert!(said(&strange).contains("not a request"));
        std::fs::remove_file(&place).expect("it is there");
    }

    #[test]
    fn an_answer_that_the_socket_does_not_hold_is_no_reason_to_wait() {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let long = Answer::Ok(json!("x".repeat(4 << 20)));
        connection::reply(near, &long);
        let mut all = String::new();
        far.read_to_string(&mut all).expect("answered");
        assert_eq!(all.len(), (4 << 20) + "{\"ok\":\"\"}\n".len());
    }

    #[test]
    fn one_refusal_is_the_answer_of_all() {
        let request = Request::Reconfigure {
            config: Value::Null,
        };
        let answers = vec![Answer::Ok(Value::Null), Answer::Error("no".to_owned())];
        assert!(matches!(
            answer_of_all(&request, answers),
            Answer::Error(why) if why == "no"
        ));
    }
}
