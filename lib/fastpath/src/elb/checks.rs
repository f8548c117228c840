//! Health checks of a balancer's servers: a thread in the namespace of the interface connects to them, and sends
//! requests to HTTP servers.

use super::config::{BalancerConfig, Check, CheckConfig};
use super::finding::{Finding, Findings};
use nfluid_netdev::Place;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
    sockopt,
};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest delay until the thread sees that it must end.
const LOOK: Duration = Duration::from_millis(100);
/// Length of the status in an answer: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;

/// The servers to check.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    servers: Vec<(String, SocketAddr, CheckConfig)>,
}

impl Subject {
    /// Returns the servers of services with health checks; `None` if no service has them.
    pub fn of(config: &BalancerConfig) -> Option<Self> {
        let services = config.services.values();
        let servers = services.filter_map(|service| Some((service, service.health.as_ref()?)));
        let servers = servers.flat_map(|(service, check)| {
            let all = service.servers.iter();
            all.map(move |server| (service.server_key(server.at), server.at, check.clone()))
        });
        let servers: Vec<_> = servers.collect();
        (!servers.is_empty()).then_some(Subject { servers })
    }
}

/// The thread of the checks. Dropping this ends the thread.
pub struct Checks {
    subject: Subject,
    stop: Arc<AtomicBool>,
}

impl Checks {
    /// Starts checking the servers of an instance, from the namespace of its interface.
    pub fn start(findings: Findings, place: &Place, subject: Subject) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (there, servers) = (Arc::clone(&stop), subject.servers.clone());
        let place = place.clone();
        let started = std::thread::Builder::new()
            .name("servers".to_owned())
            .spawn(move || {
                let looked = place.within(|| {
                    look_after(&findings, servers, &there);
                    Ok(())
                });
                if let Err(error) = looked {
                    tracing::warn!(instance = findings.instance(), %error, "its servers are not looked after");
                }
            });
        if let Err(error) = started {
            tracing::warn!(%error, "servers are not looked after");
        }
        Checks { subject, stop }
    }

    /// Returns the checked servers.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A server with the results of its last checks.
struct Server {
    key: String,
    at: SocketAddr,
    check: CheckConfig,
    due: Instant,
    /// Result of the last checks (true: success), and the number of equal results in a row.
    streak: (bool, u32),
    why: String,
}

fn look_after(
    findings: &Findings,
    servers: Vec<(String, SocketAddr, CheckConfig)>,
    stop: &AtomicBool,
) {
    let server = |(key, at, check)| Server {
        key,
        at,
        check,
        due: Instant::now(),
        streak: (true, 0),
        why: String::new(),
    };
    let mut checked: Vec<Server> = servers.into_iter().map(server).collect();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let mut due: Vec<&mut Server> = checked.iter_mut().filter(|one| one.due <= now).collect();
        let probes = due.iter().map(|one| Probe::start(one.at, &one.check));
        let answers = answers(probes.collect());
        for (one, answer) in due.iter_mut().zip(answers) {
            one.note(answer);
            // Only while the checks are wanted: the configuration may have changed.
            if !stop.load(Ordering::Relaxed)
                && let Some(down) = one.verdict()
            {
                findings.report(Finding::Server {
                    key: one.key.clone(),
                    down: down.then(|| one.why.clone()),
                });
            }
        }
        let next = checked.iter().map(|one| one.due).min();
        let wait = next.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()));
        std::thread::sleep(wait.min(LOOK));
    }
}

impl Server {
    fn note(&mut self, answer: Result<(), String>) {
        self.due = Instant::now() + Duration::from_millis(self.check.times().0.0);
        let is_well = answer.is_ok();
        self.streak = match self.streak {
            (kind, count) if kind == is_well => (kind, count.saturating_add(1)),
            _ => (is_well, 1),
        };
        self.why = answer.err().unwrap_or_default();
    }

    /// Returns true if the server is down; `None` if not yet decided.
    fn verdict(&self) -> Option<bool> {
        match self.streak {
            (true, count) => (count >= self.check.rise).then_some(false),
            (false, count) => (count >= self.check.fall).then_some(true),
        }
    }
}

/// A check in progress.
struct Probe {
    socket: Result<OwnedFd, String>,
    /// The rest of the request. Empty for servers that only have to accept a connection.
    request: Vec<u8>,
    is_connected: bool,
    answer: Vec<u8>,
    until: Instant,
    result: Option<Result<(), String>>,
}

impl Probe {
    fn start(at: SocketAddr, check: &CheckConfig) -> Self {
        let request = match check.check {
            Check::Tcp => String::new(),
            Check::Http => format!(
                "GET {} HTTP/1.0\r\nHost: {at}\r\nConnection: close\r\n\r\n",
                check.path
            ),
        };
        Probe {
            socket: connecting(at).map_err(|error| error.to_string()),
            request: request.into_bytes(),
            is_connected: false,
            answer: Vec::new(),
            until: Instant::now() + Duration::from_millis(check.times().1.0),
            result: None,
        }
    }

    /// Continues as far as possible without waiting.
    fn go_on(&mut self) {
        let result = self.step();
        match result {
            Ok(true) => self.result = Some(Ok(())),
            Ok(false) if Instant::now() >= self.until => {
                self.result = Some(Err("it does not answer in time".to_owned()));
            }
            Ok(false) => {}
            Err(why) => self.result = Some(Err(why)),
        }
    }

    /// Returns true if a valid answer has arrived.
    fn step(&mut self) -> Result<bool, String> {
        let socket = self.socket.as_ref().map_err(Clone::clone)?;
        let text = |error: Errno| error.to_string();
        if !self.is_connected {
            let mut fds = [PollFd::new(socket, PollFlags::OUT)];
            let ready = poll(&mut fds, Some(&Timespec::default())).map_err(text)?;
            if ready == 0 {
                return Ok(false);
            }
            let connected = sockopt::socket_error(socket).map_err(text)?;
            connected.map_err(text)?;
            self.is_connected = true;
            if self.request.is_empty() {
                return Ok(true);
            }
        }
        if !self.request.is_empty() {
            match send(socket, &self.request, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.request.drain(..sent)),
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(text(error)),
            }
        }
        let mut buffer = [0u8; 64];
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return Err("it closes the connection without an answer".to_owned()),
            Ok((got, _)) => self.answer.extend(&buffer[..got]),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(text(error)),
        }
        if self.answer.len() < STATUS_BYTES {
            return Ok(false);
        }
        status_of(&self.answer).map(|()| true)
    }
}

fn connecting(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if at.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &at) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Checks the status at the beginning of an answer.
fn status_of(answer: &[u8]) -> Result<(), String> {
    let head = String::from_utf8_lossy(&answer[..STATUS_BYTES]);
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    match status.and_then(|status| status.parse::<u16>().ok()) {
        Some(200..=399) => Ok(()),
        Some(status) => Err(format!("it answers with status {status}")),
        None => Err("what it answers is not HTTP".to_owned()),
    }
}

/// Waits for the answers to all checks, each until its timeout.
fn answers(mut probes: Vec<Probe>) -> Vec<Result<(), String>> {
    loop {
        for probe in probes.iter_mut().filter(|probe| probe.result.is_none()) {
            probe.go_on();
        }
        let open = || probes.iter().filter(|probe| probe.result.is_none());
        let Some(until) = open().map(|probe| probe.until).min() else {
            break;
        };
        let sockets = open().filter_map(|probe| {
            let events = if probe.is_connected {
                PollFlags::IN
            } else {
                PollFlags::OUT
            };
            let socket = probe.socket.as_ref().ok()?;
            Some(PollFd::from_borrowed_fd(socket.as_fd(), events))
        });
        let mut fds: Vec<PollFd<'_>> = sockets.collect();
        let wait = until.saturating_duration_since(Instant::now());
        let wait = Timespec::try_from(wait).unwrap_or_default();
        // An interrupted poll is no error: all probes are checked.
        let _ = poll(&mut fds, Some(&wait));
    }
    let results = probes.into_iter();
    results
        .map(|probe| probe.result.unwrap_or(Ok(())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::config::parse;
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn check(kind: &str) -> CheckConfig {
        let config = json!({ "services": { "web": {
            "at": "203.0.113.1:80", "servers": [],
            "health": { "check": kind, "timeout": "30s", "fall": 2 },
        } } });
        let found = parse(&config).expect("it is right");
        found.services["web"].health.clone().expect("one")
    }

    fn ask(at: SocketAddr, kind: &str) -> Result<(), String> {
        answers(vec![Probe::start(at, &check(kind))]).remove(0)
    }

    // promise: 15.13
    #[test]
    fn a_server_is_well_if_it_takes_connections_or_answers_as_it_should() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("it has one");
        assert_eq!(ask(at, "tcp"), Ok(()));
        let server = std::thread::spawn(move || {
            let _the_first = listener.accept();
            for status in ["200 OK", "503 Busy", "rubbish and more rubbish"] {
                let (mut client, _) = listener.accept().expect("somebody asks");
                let mut request = [0; 64];
                let got = client.read(&mut request).expect("a request");
                assert!(request[..got].starts_with(b"GET / HTTP/1.0\r\n"));
                let answer = if status.starts_with('r') {
                    status.to_owned()
                } else {
                    format!("HTTP/1.1 {status}\r\n\r\n")
                };
                client.write_all(answer.as_bytes()).expect("it listens");
            }
        });
        assert_eq!(ask(at, "http"), Ok(()));
        assert_eq!(
            ask(at, "http"),
            Err("it answers with status 503".to_owned())
        );
        assert_eq!(
            ask(at, "http"),
            Err("what it answers is not HTTP".to_owned())
        );
        server.join().expect("it ends");
        assert!(ask(at, "tcp").is_err(), "nobody listens any more");
    }

    // promise: 15.13
    #[test]
    fn one_failure_is_none() {
        let mut server = Server {
            key: String::new(),
            at: "127.0.0.1:1".parse().expect("one"),
            check: check("tcp"),
            due: Instant::now(),
            streak: (true, 0),
            why: String::new(),
        };
        let verdicts = [false, false, true, false, true, true].map(|is_well| {
            server.note(if is_well {
                Ok(())
            } else {
                Err("no".to_owned())
            });
            server.verdict()
        });
        assert_eq!(verdicts, [None, Some(true), None, None, None, Some(false)]);
    }
}
