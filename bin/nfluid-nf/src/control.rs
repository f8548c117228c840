//! The daemon's way to talk to a running NF: one JSON request per line on the control socket, one
//! JSON answer per line. A thread reads and writes; the NF's own threads answer, between batches.

use crate::scaling::PartRequest;
use anyhow::Context;
use nfluid_ring::port::PortStats;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Longest request in bytes: a configuration with all its rules.
const REQUEST_MAX: u64 = 64 << 20;

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
    Depart,
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
                | Request::Depart
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
    requests: Receiver<Asked>,
    /// One that came before its time.
    put_off: Option<Asked>,
    /// Readable when a request waits, or a frame may: the queue's thread may be asleep.
    pub wake: OwnedFd,
}

/// The socket's side of a queue.
struct Asker {
    requests: SyncSender<Asked>,
    wake: OwnedFd,
}

impl Control {
    /// The sides of `queues` queues; starts to answer on `listener`, if there is one.
    pub fn start(listener: Option<OwnedFd>, queues: usize) -> anyhow::Result<Vec<Self>> {
        let mut controls = Vec::with_capacity(queues);
        let mut askers = Vec::with_capacity(queues);
        for _ in 0..queues {
            let (sender, requests) = sync_channel(1);
            let wake =
                eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("eventfd")?;
            askers.push(Asker {
                requests: sender,
                wake: wake.try_clone().context("duplicating the eventfd")?,
            });
            controls.push(Control {
                requests,
                put_off: None,
                wake,
            });
        }
        if let Some(listener) = listener {
            let listener = UnixListener::from(listener);
            std::thread::Builder::new()
                .name("control".to_owned())
                .stack_size(256 << 10)
                .spawn(move || serve(&listener, &askers))
                .context("starting the control thread")?;
        }
        Ok(controls)
    }

    /// Answers all requests that wait.
    pub fn answer(&mut self, mut handle: impl FnMut(Order) -> Answer) {
        self.quieten();
        let first = self.put_off.take();
        for (order, back) in first.into_iter().chain(self.requests.try_iter()) {
            // The asker may have gone; its answer is then nobody's.
            let _ = back.send(handle(order));
        }
    }

    /// Answers the requests to which `handle` has an answer already. The first to which it has none is put off until
    /// [`Control::answer`], and so are all after it: then it returns `false`, and [`Control::wake`] stays readable.
    pub fn answer_early(&mut self, mut handle: impl FnMut(&mut Order) -> Option<Answer>) -> bool {
        self.quieten();
        while let Ok((mut order, back)) = self.requests.try_recv() {
            match handle(&mut order) {
                Some(answer) => drop(back.send(answer)),
                None => {
                    self.put_off = Some((order, back));
                    // Full only if it has been rung for 2^64 times: it is readable.
                    let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
                    return false;
                }
            }
        }
        true
    }

    /// Before the requests are looked at: one that comes later wakes again.
    fn quieten(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }
}

fn serve(listener: &UnixListener, queues: &[Asker]) {
    for stream in listener.incoming() {
        match stream {
            // One daemon, one connection at a time; an error ends that connection only.
            Ok(stream) => drop(converse(&stream, queues)),
            Err(error) => {
                eprintln!("nfluid-nf: control socket: {error}");
                return;
            }
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
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).context("waking the NF")?;
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
            requests: asked,
            put_off: None,
            wake: eventfd(0, flags).expect("an eventfd"),
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
            rustix::io::read(&control.wake, &mut count).is_ok(),
            "it is still rung"
        );
        control.answer(|_| Answer::Ok(json!("late")));
        assert_eq!([said(1), said(2)], [json!("late"), json!("late")]);
        assert!(control.answer_early(|_| None), "nothing waits");
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
