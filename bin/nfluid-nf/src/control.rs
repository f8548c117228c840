//! The daemon's way to talk to a running NF: a line of JSON for each connection to the control socket, answered by another.
//! The NF's own threads answer, between batches.
//!
//! Where there are several queues, a thread reads and writes. Where there is one, its own thread does, and another one only
//! what is long (`door`): of very many instances each costs a thread less, 50 KB, and who asks waits for nobody to be woken.

use crate::door::{self, Guest, Speech};
use crate::scaling::PartRequest;
use anyhow::Context;
use nfluid_ring::port::PortStats;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// Longest request in bytes: a configuration with all its rules.
const REQUEST_MAX: u64 = 64 << 20;
/// Before somebody who could not be let in is looked at again.
const NOT_LET_IN: Duration = Duration::from_millis(10);

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
type Asked = (Order, Back);

/// Where an answer goes. The asker may have gone; it is nobody's then.
#[derive(Debug)]
enum Back {
    /// To the thread that talks to the daemon.
    Thread(SyncSender<Answer>),
    /// To the daemon.
    Daemon(UnixStream),
}

impl Back {
    fn send(self, answer: Answer) {
        match self {
            Back::Thread(back) => drop(back.send(answer)),
            Back::Daemon(stream) => door::reply(stream, &answer),
        }
    }
}

/// One queue's side of the control socket.
#[derive(Debug)]
pub struct Control {
    /// Where the daemon connects, if the queue's own thread looks there while nobody else does.
    door: Option<OwnedFd>,
    /// From the thread that talks to the daemon, while there is one.
    requests: Option<Receiver<Asked>>,
    /// The next one: somebody at the door has asked, or it came before its time.
    next: Option<Asked>,
    /// Readable when a request waits, or a frame may: the queue's thread may be asleep.
    bell: OwnedFd,
}

/// The socket's side of a queue.
struct Asker {
    requests: SyncSender<Asked>,
    bell: OwnedFd,
}

/// Rings when it is dropped: the thread does not talk to the daemon any more.
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
                next: None,
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
                next: None,
                bell,
            });
        }
        if let Some(listener) = listener {
            start_thread(move || serve(&UnixListener::from(listener), &askers))?;
        }
        Ok(controls)
    }

    /// Readable when the daemon wants something, or a frame may wait: the queue's thread may be asleep. Another one after each
    /// [`Control::answer`] and [`Control::answer_early`].
    pub fn wake(&self) -> &OwnedFd {
        match &self.door {
            Some(door) if self.is_free() => door,
            _ => &self.bell,
        }
    }

    /// Answers all requests that wait.
    pub fn answer(&mut self, mut handle: impl FnMut(Order) -> Answer) {
        self.listen();
        while let Some((order, back)) = self.next() {
            back.send(handle(order));
        }
    }

    /// Whether nobody has been let in.
    fn is_free(&self) -> bool {
        self.requests.is_none() && self.next.is_none()
    }

    /// The next request that waits.
    fn next(&mut self) -> Option<Asked> {
        if let Some(first) = self.next.take() {
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
            Some(door) if self.is_free() => {
                if !is_readable(door) {
                    return;
                }
                let heard = match door::let_in(door) {
                    Ok(Guest::Left) => Ok(()),
                    Ok(Guest::Asks(order, stream)) => {
                        self.next = Some((order, Back::Daemon(stream)));
                        Ok(())
                    }
                    Ok(Guest::Speaks(speech)) => {
                        talk(speech, &self.bell).map(|requests| self.requests = Some(requests))
                    }
                    Err(error) => {
                        // Who stays at the door is looked at again and again.
                        std::thread::sleep(NOT_LET_IN);
                        Err(error)
                    }
                };
                if let Err(error) = heard {
                    eprintln!("nfluid-nf: control socket: {error:#}");
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
                Some(answer) => back.send(answer),
                None => {
                    self.next = Some((order, back));
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

/// Has a thread hear the rest of a request, and write the answer.
fn talk(speech: Speech, bell: &OwnedFd) -> anyhow::Result<Receiver<Asked>> {
    let (sender, requests) = sync_channel(1);
    let duplicate = |fd: &OwnedFd| fd.try_clone().context("duplicating a descriptor");
    let asker = Asker {
        requests: sender,
        bell: duplicate(bell)?,
    };
    let farewell = Farewell(duplicate(bell)?);
    start_thread(move || {
        // Its own side of the channel is gone when it is rung.
        let _farewell = farewell;
        drop(converse(speech, &[asker]));
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

/// One daemon, one connection at a time; an error ends that connection only.
fn serve(listener: &UnixListener, queues: &[Asker]) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => drop(converse(Speech::on(stream), queues)),
            Err(error) => {
                eprintln!("nfluid-nf: control socket: {error}");
                return;
            }
        }
    }
}

/// One request, and its answer.
fn converse(speech: Speech, queues: &[Asker]) -> anyhow::Result<()> {
    let mut reader = BufReader::new(speech);
    let mut line = String::new();
    if reader.by_ref().take(REQUEST_MAX).read_line(&mut line)? == 0 {
        return Ok(());
    }
    let mut speech = reader.into_inner();
    let fd = speech.fd.take();
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
    Ok(speech.into_stream().write_all(text.as_bytes())?)
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
            .send((order, Back::Thread(back)))
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
            next: None,
            bell: eventfd(0, flags).expect("an eventfd"),
        };
        let mut answers = Vec::new();
        for request in [Request::Beat, Request::Metrics, Request::Beat] {
            let (back, answer) = sync_channel(1);
            let order = Order { request, fd: None };
            requests.send((order, Back::Thread(back))).expect("room");
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
    fn who_is_asked_in_short_has_no_thread_and_who_is_asked_at_length_has_one_for_that() {
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
        door::reply(near, &long);
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
            Answer::of_all(&request, answers),
            Answer::Error(why) if why == "no"
        ));
    }
}
