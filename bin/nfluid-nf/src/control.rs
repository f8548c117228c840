//! The daemon's way to talk to a running NF: one JSON request per line on the control socket, one
//! JSON answer per line. A thread reads and writes; the NF's own threads answer, between batches.
//!
//! Where there is one queue, that thread is started when the daemon connects and ends when it has said nothing for a while:
//! of very many instances, of which few are asked anything at a time, each costs a thread less, 50 KB.

use crate::scaling::PartRequest;
use anyhow::Context;
use nfluid_ring::port::PortStats;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, accept, recvmsg};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// Longest request in bytes: a configuration with all its rules.
const REQUEST_MAX: u64 = 64 << 20;
/// After this time without a connection nobody talks to the daemon. What is asked in a row, as for an upgrade, comes sooner.
const SILENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A request of the daemon.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Nothing: whoever answers is alive.
    Beat,
    /// All counters.
    Metrics,
    /// A command of the NF.
    Command {
        /// Its name.
        name: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
    },
    /// A new configuration.
    Reconfigure {
        /// The whole of it.
        config: Value,
    },
    /// The NF's state and copies of the frames that wait in its rings, written to the file that comes with the request.
    Export {
        /// The state alone: it will be exported again soon.
        #[serde(default)]
        state_only: bool,
    },
    /// State of another instance, added to the own.
    Import {
        /// So many bytes of the file that comes with the request.
        bytes: u64,
        /// What of it; absent: all.
        #[serde(default)]
        part: Option<PartRequest>,
    },
    /// It stands still until the other end of the socket that comes with the request is closed: flows come to it.
    Stand,
    /// Flows go from it: what waits in its rings up to these positions is handled, then its state is written to the file that
    /// comes with the request.
    Drain {
        /// One for each port.
        until: Vec<u32>,
    },
    /// Others have all flows but those in these buckets, 64 to a word.
    PartWith {
        /// What it keeps.
        kept: [u64; 4],
    },
    /// As [`Request::Import`], to a successor that has no ports yet, or to one that has just been made: it forgets the state again.
    Rehearse {
        /// So many bytes of the file.
        bytes: u64,
    },
    /// Ports and state go to the successor at the other end of the socket that comes with the request.
    HandOver,
    /// It leaves for another host: its state goes to the daemon at the other end of the socket that comes with the request, and
    /// it stands still.
    Depart {
        /// Bytes of memory that frames may take which come meanwhile; absent: as many as it has room for at most.
        #[serde(default)]
        room: Option<u64>,
    },
    /// It does not leave after all.
    Resume,
    /// Tells the hosts at its ports that these addresses are behind it.
    Announce {
        /// Port, counted from 0, and address.
        addresses: Vec<(u8, [u8; 6])>,
    },
}

/// A request and the descriptor that came with it.
#[derive(Debug)]
pub struct Order {
    /// The request.
    pub request: Request,
    /// What it is about, where it is about a file or a socket.
    pub fd: Option<OwnedFd>,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done; what was asked for.
    Ok(Value),
    /// Not done, and why.
    Error(String),
}

impl Request {
    /// Whether it is about state, of which every queue has its own.
    fn is_about_one(&self) -> bool {
        matches!(
            self,
            Request::Export { .. }
                | Request::Import { .. }
                | Request::Stand
                | Request::Drain { .. }
                | Request::PartWith { .. }
                | Request::Rehearse { .. }
                | Request::HandOver
                | Request::Depart { .. }
        )
    }
}

/// Reads a socket and keeps the descriptor that came last.
struct Receiving<'a> {
    stream: &'a UnixStream,
    fd: Option<OwnedFd>,
}

impl<'a> Receiving<'a> {
    fn new(stream: &'a UnixStream) -> Self {
        Receiving { stream, fd: None }
    }
}

impl Read for Receiving<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let received = recvmsg(
            self.stream,
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fd = fds.last().or(self.fd.take());
            }
        }
        Ok(received.bytes)
    }
}

/// What the port library counts, in the answer to [`Request::Metrics`].
pub fn port_stats(name: &str, stats: &PortStats) -> Value {
    serde_json::json!({
        "port": name,
        "calls": stats.calls,
        "rings": stats.rings,
        "tx_no_slot": stats.tx_no_slot,
        "tx_errors": stats.tx_errors,
    })
}

impl Answer {
    /// The answer of an NF on several queues, from the answers of all of them.
    fn of_all(request: &Request, answers: Vec<Answer>) -> Answer {
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

/// A request on its way to the NF's thread, with the way back.
type Asked = (Order, SyncSender<Answer>);

/// One queue's side of the control socket.
#[derive(Debug)]
pub struct Control {
    /// Where the daemon connects, if the queue's own thread looks there while nobody else does.
    door: Option<OwnedFd>,
    /// From the thread that talks to the daemon, while there is one.
    requests: Option<Receiver<Asked>>,
    /// One that came before its time.
    put_off: Option<Asked>,
    /// Readable when a request waits, or a frame may: the queue's thread may be asleep.
    bell: OwnedFd,
}

/// The socket's side of a queue.
struct Asker {
    requests: SyncSender<Asked>,
    bell: OwnedFd,
}

/// Rings when it is dropped: nobody talks to the daemon any more.
struct Farewell(OwnedFd);

impl Drop for Farewell {
    fn drop(&mut self) {
        ring(&self.0);
    }
}

impl Control {
    /// The sides of `queues` queues; answers on `listener` from now on, if there is one.
    pub fn start(listener: Option<OwnedFd>, queues: usize) -> anyhow::Result<Vec<Self>> {
        if queues == 1 {
            let bell = new_bell()?;
            return Ok(vec![Control {
                door: listener,
                requests: None,
                put_off: None,
                bell,
            }]);
        }
        let mut controls = Vec::with_capacity(queues);
        let mut askers = Vec::with_capacity(queues);
        for _ in 0..queues {
            let (sender, requests) = sync_channel(1);
            let bell = new_bell()?;
            askers.push(Asker {
                requests: sender,
                bell: bell.try_clone().context("duplicating the eventfd")?,
            });
            controls.push(Control {
                door: None,
                requests: Some(requests),
                put_off: None,
                bell,
            });
        }
        if let Some(listener) = listener {
            start_thread(move || serve(&UnixListener::from(listener), &askers, None))?;
        }
        Ok(controls)
    }

    /// Readable when the daemon wants something, or a frame may wait: the queue's thread may be asleep. Another one after each
    /// [`Control::answer`] and [`Control::answer_early`].
    pub fn wake(&self) -> &OwnedFd {
        match &self.door {
            Some(door) if self.requests.is_none() => door,
            _ => &self.bell,
        }
    }

    /// Answers all requests that wait.
    pub fn answer(&mut self, mut handle: impl FnMut(Order) -> Answer) {
        self.listen();
        while let Some((order, back)) = self.next() {
            // The asker may have gone; its answer is then nobody's.
            let _ = back.send(handle(order));
        }
    }

    /// The next request that waits.
    fn next(&mut self) -> Option<Asked> {
        if let Some(first) = self.put_off.take() {
            return Some(first);
        }
        match self.requests.as_ref()?.try_recv() {
            Ok(asked) => Some(asked),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                if self.door.is_some() {
                    self.requests = None;
                }
                None
            }
        }
    }

    /// Before the requests are looked at: one that comes later wakes again. Somebody at the door is let in.
    fn listen(&mut self) {
        match &self.door {
            Some(door) if self.requests.is_none() => {
                if !is_readable(door) {
                    return;
                }
                match talk(door, &self.bell) {
                    Ok(requests) => self.requests = Some(requests),
                    Err(error) => {
                        eprintln!("nfluid-nf: control socket: {error:#}");
                        // Who stays at the door would be looked at again and again.
                        drop(accept(door));
                    }
                }
            }
            _ => {
                let mut count = [0u8; 8];
                let _ = rustix::io::read(&self.bell, &mut count);
            }
        }
    }

    /// Answers the requests to which `handle` has an answer already. The first to which it has none is put off until
    /// [`Control::answer`], and so are all after it: then it returns `false`, and [`Control::wake`] stays readable.
    pub fn answer_early(&mut self, mut handle: impl FnMut(&mut Order) -> Option<Answer>) -> bool {
        self.listen();
        while let Some((mut order, back)) = self.next() {
            match handle(&mut order) {
                Some(answer) => drop(back.send(answer)),
                None => {
                    self.put_off = Some((order, back));
                    ring(&self.bell);
                    return false;
                }
            }
        }
        true
    }
}

fn new_bell() -> anyhow::Result<OwnedFd> {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("eventfd")
}

fn ring(bell: &OwnedFd) {
    // Full only if it has been rung for 2^64 times: it is readable.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
}

/// Starts to talk to the daemon, for as long as it has something to say.
fn talk(door: &OwnedFd, bell: &OwnedFd) -> anyhow::Result<Receiver<Asked>> {
    let (sender, requests) = sync_channel(1);
    let duplicate = |fd: &OwnedFd| fd.try_clone().context("duplicating a descriptor");
    let listener = UnixListener::from(duplicate(door)?);
    let asker = Asker {
        requests: sender,
        bell: duplicate(bell)?,
    };
    let farewell = Farewell(duplicate(bell)?);
    start_thread(move || {
        // Its own side of the channel is gone when it is rung.
        let _farewell = farewell;
        serve(&listener, &[asker], Some(SILENCE));
    })?;
    Ok(requests)
}

fn start_thread(work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name("control".to_owned())
        .stack_size(256 << 10)
        .spawn(work)
        .context("starting the control thread")
        .map(drop)
}

/// One daemon, one connection at a time; an error ends that connection only. Returns when nobody has come for so long.
fn serve(listener: &UnixListener, queues: &[Asker], silence: Option<Timespec>) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut fds, silence.as_ref()) {
            Ok(0) => return,
            Err(rustix::io::Errno::INTR) => continue,
            _ => match listener.accept() {
                Ok((stream, _)) => drop(converse(&stream, queues)),
                Err(error) => {
                    eprintln!("nfluid-nf: control socket: {error}");
                    return;
                }
            },
        }
    }
}

fn converse(stream: &UnixStream, queues: &[Asker]) -> anyhow::Result<()> {
    let mut reader = BufReader::new(Receiving::new(stream));
    loop {
        let mut line = String::new();
        if reader.by_ref().take(REQUEST_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let fd = reader.get_mut().fd.take();
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(request) if queues.len() > 1 && request.is_about_one() => Answer::Error(format!(
                "it has {} queues, each with a state of its own: their states are not moved",
                queues.len()
            )),
            Ok(request) => ask_all(&request, fd, queues)?,
            Err(error) => Answer::Error(format!("not a request: {error}")),
        };
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        let mut stream = stream;
        stream.write_all(text.as_bytes())?;
    }
}

/// Asks one queue after the other; what one of them refuses, the rest is not asked.
fn ask_all(request: &Request, mut fd: Option<OwnedFd>, queues: &[Asker]) -> anyhow::Result<Answer> {
    let mut answers = Vec::with_capacity(queues.len());
    for queue in queues {
        let answer = queue.ask(Order {
            request: request.clone(),
            fd: fd.take(),
        })?;
        let is_refused = matches!(answer, Answer::Error(_));
        answers.push(answer);
        if is_refused {
            break;
        }
    }
    Ok(Answer::of_all(request, answers))
}

impl Asker {
    fn ask(&self, order: Order) -> anyhow::Result<Answer> {
        let (back, answer) = sync_channel(1);
        self.requests
            .send((order, back))
            .context("the NF has ended")?;
        ring(&self.bell);
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
        match Answer::of_all(&Request::Metrics, answers) {
            Answer::Ok(sum) => assert_eq!(sum, both),
            Answer::Error(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_cannot_be_answered_early_is_answered_later_and_in_its_turn() {
        let (requests, asked) = sync_channel(3);
        let flags = EventfdFlags::NONBLOCK;
        let mut control = Control {
            door: None,
            requests: Some(asked),
            put_off: None,
            bell: eventfd(0, flags).expect("an eventfd"),
        };
        let mut answers = Vec::new();
        for request in [Request::Beat, Request::Metrics, Request::Beat] {
            let (back, answer) = sync_channel(1);
            let order = Order { request, fd: None };
            requests.send((order, back)).expect("room");
            answers.push(answer);
        }
        let is_beat = |order: &mut Order| matches!(order.request, Request::Beat);
        let early = |order: &mut Order| is_beat(order).then(|| Answer::Ok(json!("early")));
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
            rustix::io::read(&control.bell, &mut count).is_ok(),
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
            control.answer(|order| match order.request {
                Request::Beat => Answer::Ok(json!("alive")),
                _ => Answer::Error("not that".to_owned()),
            });
        }
    }

    #[test]
    fn who_is_asked_nothing_has_no_thread_and_who_is_asked_again_another() {
        let place = std::env::temp_dir().join(format!("nfluid-test-{}", std::process::id()));
        let listener = UnixListener::bind(&place).expect("a socket");
        let mut controls = Control::start(Some(listener.into()), 1).expect("started");
        let mut control = controls.pop().expect("one queue");
        control.answer(|_| panic!("nobody has asked"));
        assert!(control.requests.is_none());
        for _ in 0..2 {
            // Two at once: the second waits for the first.
            let daemons: Vec<_> = (0..2)
                .map(|_| UnixStream::connect(&place).expect("connected"))
                .collect();
            for mut daemon in &daemons {
                daemon.write_all(b"{\"op\":\"beat\"}\n").expect("asked");
            }
            let reading = std::thread::spawn(move || {
                let line = |daemon: UnixStream| {
                    let mut line = String::new();
                    BufReader::new(daemon)
                        .read_line(&mut line)
                        .expect("answered");
                    line
                };
                daemons.into_iter().map(line).collect::<Vec<_>>()
            });
            // Until the thread has ended, which takes as long as the silence.
            let mut has_talked = false;
            look_until(&mut control, |control| {
                has_talked |= control.requests.is_some();
                has_talked && control.requests.is_none()
            });
            let lines = reading.join().expect("read");
            assert_eq!(lines, ["{\"ok\":\"alive\"}\n"; 2]);
        }
        std::fs::remove_file(&place).expect("it is there");
    }

    #[test]
    fn one_refusal_is_the_answer_of_all() {
        let request = Request::Reconfigure {
            config: Value::Null,
        };
        let answers = vec![Answer::Ok(Value::Null), Answer::Error("no".to_owned())];
        assert!(matches!(
            Answer::of_all(&request, answers),
            Answer::Error(why) if why == "no"
        ));
    }
}
