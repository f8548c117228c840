//! A platform of a test's own: the real daemon, the real command line, and hosts at its uplinks.

use super::evidence;
use super::program::program;
use super::skip::{is_root, skip};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Platforms of one test program take turns: each wants the few cores for itself.
static TURN: Mutex<()> = Mutex::new(());

/// How long something that must happen may take before a test gives up: no machine is so busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until something is so.
///
/// # Panics
/// If it does not become so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it never came true: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit code; nothing if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Outcome {
    fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Whether it succeeded.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}

/// Runs a program with words as arguments.
///
/// # Panics
/// If there is no such program.
pub fn run(line: &str) -> Outcome {
    let mut words = line.split_whitespace();
    Outcome::of(Command::new(words.next().expect("a program")).args(words))
}

/// Runs a program that must succeed; its standard output.
///
/// # Panics
/// If it fails.
pub fn must(line: &str) -> String {
    let outcome = run(line);
    assert!(outcome.succeeded(), "{line}: {outcome:?}");
    outcome.stdout
}

/// A platform, the namespaces around it, and everything that is left of them; removed when dropped.
#[derive(Debug)]
pub struct Platform {
    name: String,
    directory: PathBuf,
    daemon: Option<Child>,
    /// Starts of the daemon; each has its own log.
    starts: u32,
    namespaces: Vec<String>,
    /// What the daemon is started with, beside what it needs, and within which namespace.
    arguments: Vec<String>,
    daemon_netns: Option<String>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Platform {
    /// A platform whose daemon is up, or nothing, having told so, where the test cannot run. It has a namespace for
    /// the outer ends of its uplinks, see [`Platform::host`].
    ///
    /// # Panics
    /// If the daemon does not start.
    pub fn new(test: &str) -> Option<Self> {
        let mut platform = Self::at_rest(test)?;
        platform.start();
        Some(platform)
    }

    /// A platform whose daemon is not started yet; else as [`Platform::new`].
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn at_rest(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self::with_turn(test, Some(turn))
    }

    /// A second platform in the same test, at rest.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn beside(&self, test: &str) -> Option<Self> {
        Self::with_turn(test, None)
    }

    fn with_turn(test: &str, turn: Option<MutexGuard<'static, ()>>) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nfluid-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let mut platform = Self {
            name,
            directory,
            daemon: None,
            starts: 0,
            namespaces: Vec::new(),
            arguments: Vec::new(),
            daemon_netns: None,
            _turn: turn,
        };
        if let Err(why) = platform.add_namespace("p") {
            skip(test, &format!("no network namespaces here: {why}"));
            return None;
        }
        let edge = platform.edge();
        let veth = run(&format!("ip -n {edge} link add probe type veth"));
        if !veth.succeeded() {
            skip(test, &format!("no veth here: {}", veth.stderr));
            return None;
        }
        must(&format!("ip -n {edge} link del probe"));
        Some(platform)
    }

    /// What the daemon is started with from its next start on, beside what it needs.
    pub fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments;
    }

    /// From its next start on the daemon runs in the namespace of its uplinks' outer ends, [`Platform::edge`].
    pub fn run_at_edge(&mut self) {
        self.daemon_netns = Some(self.edge());
    }

    /// The namespace in which the platform's interfaces are, for `netns:`.
    pub fn edge(&self) -> String {
        format!("{}-p", self.name)
    }

    /// A directory for the test's own files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the daemon keeps what outlives it.
    pub fn run_dir(&self) -> PathBuf {
        self.directory.join("run")
    }

    /// The API's socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir().join("nfluidd.sock")
    }

    /// Where the kernel keeps the platform's objects.
    pub fn pins(&self) -> PathBuf {
        Path::new("/sys/fs/bpf").join(&self.name)
    }

    /// A host: a namespace with `address` on its `eth0`, whose other end is the interface `host` of
    /// [`Platform::edge`]. IPv6 is off at both ends: only the test's own frames travel.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn host(&mut self, host: &str, address: &str) {
        let namespace = self.add_namespace(host).expect("a namespace");
        let edge = self.edge();
        must(&format!(
            "ip -n {edge} link add {host} type veth peer name eth0 netns {namespace}"
        ));
        must(&format!("ip -n {edge} link set {host} up"));
        must(&format!("ip -n {namespace} address add {address} dev eth0"));
        must(&format!("ip -n {namespace} link set eth0 up"));
    }

    /// A namespace of its own, removed with the platform; its name.
    ///
    /// # Errors
    /// What `ip` says.
    ///
    /// # Panics
    /// If it has no loopback interface.
    pub fn add_namespace(&mut self, suffix: &str) -> Result<String, String> {
        let namespace = format!("{}-{suffix}", self.name);
        let made = run(&format!("ip netns add {namespace}"));
        if !made.succeeded() {
            return Err(made.stderr);
        }
        self.namespaces.push(namespace.clone());
        let quiet = "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
        let _no_ipv6_at_all = run(&format!("ip netns exec {namespace} sysctl -qw {quiet}"));
        must(&format!("ip -n {namespace} link set lo up"));
        Ok(namespace)
    }

    /// The network namespace of a host.
    pub fn host_netns(&self, host: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("{}-{host}", self.name))
    }

    /// Runs a program on a host.
    pub fn on(&self, host: &str, line: &str) -> Outcome {
        run(&format!("ip netns exec {}-{host} {line}", self.name))
    }

    /// Whether one echo request from `host` to `address` is answered within a second. For what is tried until it is so,
    /// or must not be; what must be so is asked with [`Platform::reaches`].
    pub fn pings(&self, host: &str, address: &str) -> bool {
        self.on(host, &format!("ping -n -c 1 -W 1 {address}"))
            .succeeded()
    }

    /// Whether one echo request from `host` to `address` is answered, however long that takes.
    pub fn reaches(&self, host: &str, address: &str) -> bool {
        let patience = PATIENCE.as_secs();
        self.on(host, &format!("ping -n -c 1 -W {patience} {address}"))
            .succeeded()
    }

    /// Starts a daemon, and waits until it serves.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(&mut self) {
        self.daemon = Some(self.launch());
        let socket = self.socket();
        eventually("the daemon serves", || {
            let daemon = self.daemon.as_mut().expect("it was started");
            if let Some(ended) = daemon.try_wait().expect("it is our child") {
                let log = fs::read_to_string(self.directory.join(format!("log-{}", self.starts)));
                panic!("nfluidd ended with {ended}: {log:?}");
            }
            UnixStream::connect(&socket).is_ok()
        });
    }

    /// Starts one more daemon, and waits for nothing.
    fn launch(&mut self) -> Child {
        self.starts += 1;
        let log = self.directory.join(format!("log-{}", self.starts));
        self.daemon_command()
            .stderr(File::create(log).expect("the directory is ours"))
            .spawn()
            .expect("nfluidd is built")
    }

    fn daemon_command(&self) -> Command {
        let mut command = match &self.daemon_netns {
            None => Command::new(program("nfluidd")),
            Some(namespace) => {
                // Not 'ip netns exec', which hides what is mounted below /sys.
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}"));
                command.arg(program("nfluidd"));
                command
            }
        };
        command.args(&self.arguments);
        command.args(["--name", &self.name, "--state-dir"]);
        command.arg(self.directory.join("state"));
        command.arg("--run-dir").arg(self.run_dir());
        command.arg("--nf-program").arg(program("nfluid-nf"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs a daemon of the same platform that is expected to end by itself.
    pub fn second_daemon(&self) -> Outcome {
        Outcome::of(&mut self.daemon_command())
    }

    /// Whether the daemon that was started last runs still.
    pub fn is_up(&mut self) -> bool {
        let daemon = self.daemon.as_mut();
        daemon.is_some_and(|daemon| matches!(daemon.try_wait(), Ok(None)))
    }

    /// The daemon's process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").id()
    }

    /// Kills the daemon, as a crash would.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.kill().expect("it is our child");
        daemon.wait().expect("it is our child");
    }

    /// Asks the daemon to end, and waits for it.
    ///
    /// # Panics
    /// If it does not run.
    pub fn terminate_daemon(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().expect("it runs");
        signal(daemon.id(), Signal::TERM);
        daemon.wait().expect("it is our child")
    }

    /// Asks the daemon to end so that another can take its place, and waits for it.
    ///
    /// # Panics
    /// If it does not run.
    pub fn hand_over(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().expect("it runs");
        signal(daemon.id(), Signal::USR2);
        daemon.wait().expect("it is our child")
    }

    /// Runs `nfluid` with the platform's socket.
    pub fn nfluid(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.nfluid_command().args(arguments))
    }

    /// What `nfluid` says.
    ///
    /// # Panics
    /// If it fails.
    pub fn must_say(&self, arguments: &[&str]) -> String {
        let outcome = self.nfluid(arguments);
        assert!(outcome.succeeded(), "{arguments:?}: {outcome:?}");
        outcome.stdout
    }

    /// Has `nfluid` refuse something for a reason.
    ///
    /// # Panics
    /// If it does not, or says another one.
    pub fn must_refuse(&self, arguments: &[&str], reason: &str) {
        let outcome = self.nfluid(arguments);
        assert!(!outcome.succeeded(), "{arguments:?}: {outcome:?}");
        assert!(
            outcome.stderr.contains(reason),
            "{arguments:?}: {outcome:?}"
        );
    }

    /// The command `nfluid` with the platform's socket, to be run by the test.
    pub fn nfluid_command(&self) -> Command {
        let mut command = Command::new(program("nfluid"));
        command.arg("--socket").arg(self.socket());
        command
    }

    /// What `nfluid` answers as JSON.
    ///
    /// # Panics
    /// If it fails.
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let outcome = self.nfluid(&[arguments, &["-o", "json"]].concat());
        assert!(outcome.succeeded(), "{arguments:?}: {outcome:?}");
        serde_json::from_str(&outcome.stdout).expect("JSON was asked for")
    }

    /// What the daemon answers to a plain GET, with the head of the answer.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn page(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("the daemon listens");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Asks the daemon for something without a program in between; whether it agrees.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn requests(&self, method: &str, path: &str, body: &Value) -> bool {
        let mut stream = UnixStream::connect(self.socket()).expect("the daemon listens");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.starts_with("HTTP/1.1 2")
    }

    /// Applies a deployment. `EDGE` stands for the namespace of the interfaces.
    ///
    /// # Panics
    /// If the test cannot write the file.
    pub fn try_apply(&self, deployment: &str) -> Outcome {
        let path = self.directory.join("deployment.yaml");
        fs::write(&path, deployment.replace("EDGE", &self.edge())).expect("the directory is ours");
        let path = path.to_str().expect("names of ours are text");
        self.nfluid(&["apply", "-f", path, "-o", "json"])
    }

    /// Applies a deployment that must be accepted; what changed, as `verb kind name`, sorted.
    ///
    /// # Panics
    /// If it is refused.
    pub fn apply(&self, deployment: &str) -> Vec<String> {
        let outcome = self.try_apply(deployment);
        assert!(outcome.succeeded(), "{outcome:?}");
        let answer: Value = serde_json::from_str(&outcome.stdout).expect("JSON was asked for");
        let mut changes: Vec<String> = list(&answer["changes"])
            .map(|change| {
                ["verb", "kind", "name"]
                    .map(|key| text(&change[key]))
                    .join(" ")
            })
            .collect();
        changes.sort();
        changes
    }

    /// State of an instance as the daemon tells it.
    pub fn instance(&self, name: &str) -> Value {
        let all = self.ask(&["get", "instances"]);
        let found = list(&all).find(|instance| instance["name"] == name);
        found.cloned().unwrap_or(Value::Null)
    }

    /// Process ids of the instances that run.
    ///
    /// # Panics
    /// If the daemon does not answer.
    pub fn pids(&self) -> BTreeMap<String, u32> {
        let all = self.ask(&["get", "instances"]);
        let pid = |instance: &Value| {
            let pid = u32::try_from(instance["pid"].as_u64()?).expect("a process id");
            Some((text(&instance["name"]), pid))
        };
        list(&all).filter_map(pid).collect()
    }

    /// Kinds of the events about an object, the oldest first.
    pub fn events_of(&self, name: &str) -> Vec<String> {
        let all = self.ask(&["events"]);
        let about = list(&all).filter(|event| event["name"] == name);
        about.map(|event| text(&event["kind"])).collect()
    }

    /// Directories of the platform in the cgroup hierarchies.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let root = PathBuf::from("/sys/fs/cgroup");
        let controllers = fs::read_dir(&root).into_iter().flatten().flatten();
        let roots = controllers.map(|entry| entry.path()).chain([root.clone()]);
        let own = roots.map(|root| root.join(&self.name));
        own.filter(|path| path.is_dir()).collect()
    }

    /// Processes in the platform's cgroups: the daemon's with its helpers, and the instances'.
    pub fn processes(&self) -> Vec<u32> {
        self.processes_below("")
    }

    /// Kills these processes, and waits until they have ended: the directory of one that is ending cannot be removed. Whether
    /// they have.
    pub(super) fn kill_all(&self) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let left = self.processes();
            if left.is_empty() {
                return true;
            }
            left.iter().for_each(|pid| signal(*pid, Signal::KILL));
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Processes in the cgroups of instances.
    pub fn instance_processes(&self) -> Vec<u32> {
        self.processes_below("i-")
    }

    /// Processes of functions.
    pub fn function_processes(&self) -> Vec<u32> {
        self.processes_below("functions/")
    }

    fn processes_below(&self, prefix: &str) -> Vec<u32> {
        let mark = format!("/{}/{prefix}", self.name);
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| is_alive(*pid))
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/cgroup"))
                    .is_ok_and(|text| text.contains(&mark))
            })
            .collect()
    }

    fn delete_everything(&mut self) {
        if self.daemon.is_none() {
            // Only a daemon knows how to take everything down.
            self.daemon = Some(self.launch());
            let start = Instant::now();
            while start.elapsed() < PATIENCE && !self.socket().exists() {
                thread::sleep(Duration::from_millis(20));
            }
        }
        self.nfluid(&["delete", "--all"]);
        if let Some(mut daemon) = self.daemon.take() {
            signal(daemon.id(), Signal::TERM);
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                if !matches!(daemon.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
            let _gone = daemon.kill();
            let _reaped = daemon.wait();
        }
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if thread::panicking() {
            evidence::leave(&self.directory, self.starts);
        }
        if self.starts > 0 {
            self.delete_everything();
        }
        let _or_not = self.kill_all();
        for namespace in &self.namespaces {
            run(&format!("ip netns del {namespace}"));
        }
        let _pins = fs::remove_dir_all(self.pins());
        for cgroup in self.cgroups() {
            remove_cgroup(&cgroup);
        }
        let _files = fs::remove_dir_all(&self.directory);
    }
}

/// Sends a signal to a process that is the test's own.
///
/// # Panics
/// If the number is no process id.
pub fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().expect("a process id"));
    // Who is gone already needs none.
    let _sent = rustix::process::kill_process(pid.expect("a process id"), signal);
}

/// Whether a process exists.
pub fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses.
    let state = status.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
    state.is_some_and(|state| state != "Z")
}

/// What an NF says of itself on its control socket, which also listens while no daemon runs.
///
/// # Panics
/// If it does not answer.
pub fn metrics_of(control: &Path) -> Value {
    let mut stream = UnixStream::connect(control).expect("it listens");
    stream
        .write_all(b"{\"op\":\"metrics\"}\n")
        .expect("it reads");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("it answers");
    let mut answer: Value = serde_json::from_str(&line).expect("JSON");
    answer["ok"].take()
}

/// The items of a JSON list.
///
/// # Panics
/// If it is none.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("no list: {value}"))
        .iter()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_cgroup(&entry.path());
        }
    }
    let _removed = fs::remove_dir(path);
}
