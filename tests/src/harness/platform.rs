//! A platform of a test's own: the real daemon, the real command line, and hosts at its uplinks. Failures here fail the
//! test; a failing test leaves evidence.

use super::command::{Outcome, must, run, run_command};
use super::evidence;
use super::patience::{PATIENCE, eventually};
use super::skip::{is_root, skip};
use nfluid_testbed::flood::{Flood, Sending};
use nfluid_testbed::namespace::probe_veth;
use nfluid_testbed::{interrupt, platform, unique_number};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Platforms of one test program run one at a time: each needs the few cores for itself.
static TURN: Mutex<()> = Mutex::new(());

/// A platform and the namespaces around it; removed when dropped.
#[derive(Debug)]
pub struct Platform {
    platform: platform::Platform,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Deref for Platform {
    type Target = platform::Platform;

    fn deref(&self) -> &Self::Target {
        &self.platform
    }
}

impl DerefMut for Platform {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.platform
    }
}

impl Platform {
    /// Makes a platform with a running daemon; reports the reason and returns `None` where the test cannot run. A
    /// namespace holds the outer ends of the uplinks, see [`Platform::host`].
    ///
    /// # Panics
    /// If the daemon does not start.
    pub fn new(test: &str) -> Option<Self> {
        let mut platform = Self::at_rest(test)?;
        platform.start();
        Some(platform)
    }

    /// As [`Platform::new`], but the daemon is not started yet.
    ///
    /// # Panics
    /// If the platform cannot be made.
    pub fn at_rest(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self::with_turn(test, Some(turn))
    }

    /// Makes a second platform in the same test; its daemon is not started.
    ///
    /// # Panics
    /// If the platform cannot be made.
    pub fn beside(&self, test: &str) -> Option<Self> {
        Self::with_turn(test, None)
    }

    fn with_turn(test: &str, turn: Option<MutexGuard<'static, ()>>) -> Option<Self> {
        // Waits fail when interrupted: the platform is then removed as after any other failure.
        interrupt::watch().expect("signals can be watched");
        interrupt::check().expect("the tests go on");
        let name = format!("nfluid-test-{}-{}", std::process::id(), unique_number());
        let mut platform = Self {
            platform: platform::Platform::new(&name).expect("the programs are built"),
            _turn: turn,
        };
        let edge = match platform.add_namespace("p") {
            Ok(edge) => edge,
            Err(why) => {
                skip(test, &format!("no network namespaces here: {why:#}"));
                return None;
            }
        };
        if let Err(why) = probe_veth(&edge) {
            skip(test, &format!("no veth here: {why:#}"));
            return None;
        }
        Some(platform)
    }

    /// Adds these arguments to the daemon's own from its next start on.
    pub fn set_arguments(&mut self, arguments: Vec<String>) {
        self.platform.set_arguments(arguments);
    }

    /// Runs the daemon in the namespace of its uplinks' outer ends, [`Platform::edge`], from its next start on.
    pub fn run_at_edge(&mut self) {
        let edge = self.edge();
        self.set_daemon_netns(edge);
    }

    /// The namespace of the platform's interfaces, for `netns:`.
    pub fn edge(&self) -> String {
        self.namespace_name("p")
    }

    /// What an instance has said. The daemon copies it a little later than the instance says it.
    pub fn log(&self, instance: &str) -> String {
        fs::read_to_string(self.instance_log(instance)).unwrap_or_default()
    }

    /// Waits until an instance has said this.
    ///
    /// # Panics
    /// If it does not say so in time.
    pub fn await_log(&self, instance: &str, text: &str) {
        eventually(&format!("{instance} says '{text}'"), || {
            self.log(instance).contains(text)
        });
    }

    /// A counter of a port, by its name in the metrics between `nfluid_port_` and `_total`; `None`: there is none.
    pub fn port_counter(&self, name: &str, port: &str) -> Option<u64> {
        let start = format!("nfluid_port_{name}_total{{port=\"{port}\"}} ");
        let page = self.page("/metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(&start));
        value.map(|value| value.parse().expect("a number"))
    }

    /// TCP segments with a wrong checksum that a host has received.
    ///
    /// # Panics
    /// If the host does not count them.
    pub fn bad_checksums(&self, host: &str) -> u64 {
        self.snmp(host, "Tcp", "InCsumErrors")
    }

    /// A counter of a host's kernel, of a protocol.
    ///
    /// # Panics
    /// If the host does not count this.
    pub fn snmp(&self, host: &str, protocol: &str, name: &str) -> u64 {
        let snmp = self.on(host, "cat /proc/net/snmp");
        let protocol = format!("{protocol}:");
        let mut lines = snmp.stdout.lines().map(str::split_whitespace);
        let mut of_protocol = || {
            let mut words = lines.find(|words| words.clone().next() == Some(protocol.as_str()));
            words.take().expect("Linux knows it")
        };
        let (mut names, mut values) = (of_protocol(), of_protocol());
        let at = names.position(|it| it == name).expect("Linux counts it");
        let value = values.nth(at).expect("a value for each name");
        value.parse().expect("a number")
    }

    /// Makes a host: a namespace with `address` on its `eth0`, whose other end is the interface `host` of
    /// [`Platform::edge`]. IPv6 is off at both ends: only the test's own frames travel.
    ///
    /// # Panics
    /// If the host cannot be made.
    pub fn host(&mut self, host: &str, address: &str) {
        let edge = self.edge();
        let namespace = self.add_namespace(host).expect("a namespace");
        must(&format!(
            "ip -n {edge} link add {host} type veth peer name eth0 netns {namespace}"
        ));
        must(&format!("ip -n {edge} link set {host} up"));
        must(&format!("ip -n {namespace} address add {address} dev eth0"));
        must(&format!("ip -n {namespace} link set eth0 up"));
    }

    /// The network namespace of a host.
    pub fn host_netns(&self, host: &str) -> PathBuf {
        self.namespace_path(host)
    }

    /// Runs a program on a host.
    pub fn on(&self, host: &str, line: &str) -> Outcome {
        run(&format!(
            "ip netns exec {} {line}",
            self.namespace_name(host)
        ))
    }

    /// Returns true if one echo request from `host` to `address` is answered within a second. For conditions that a
    /// test polls, or that must not hold; a ping that must succeed uses [`Platform::reaches`].
    pub fn pings(&self, host: &str, address: &str) -> bool {
        self.on(host, &format!("ping -n -c 1 -W 1 {address}"))
            .succeeded()
    }

    /// Returns true if one echo request from `host` to `address` is answered, however long that takes.
    pub fn reaches(&self, host: &str, address: &str) -> bool {
        let patience = PATIENCE.as_secs();
        self.on(host, &format!("ping -n -c 1 -W {patience} {address}"))
            .succeeded()
    }

    /// Floods port 9 of another host with this type of service, until the result is dropped.
    ///
    /// # Panics
    /// If a host does not exist.
    pub fn flood(&self, from: &str, to: &str, tos: u8) -> Flood {
        let sending = Sending { core: None, tos };
        let flood = Flood::start(&self.host_netns(from), &format!("{to}:9"), sending);
        flood.expect("the host is there")
    }

    /// Starts a daemon, and waits until it serves.
    ///
    /// # Panics
    /// If the daemon does not start.
    pub fn start(&mut self) {
        self.platform.start().expect("the daemon serves");
    }

    /// Runs a daemon of the same platform that is expected to end by itself.
    pub fn second_daemon(&self) -> Outcome {
        run_command(&mut self.daemon_command())
    }

    /// The daemon's process.
    ///
    /// # Panics
    /// If the daemon does not run.
    pub fn daemon_pid(&self) -> u32 {
        self.platform.daemon_pid().expect("it runs")
    }

    /// Kills the daemon, as a crash would.
    ///
    /// # Panics
    /// If the daemon does not run.
    pub fn kill_daemon(&mut self) {
        self.platform.kill_daemon().expect("it runs");
    }

    /// Asks the daemon to end, and waits for its end.
    ///
    /// # Panics
    /// If the daemon does not run.
    pub fn terminate_daemon(&mut self) -> ExitStatus {
        self.end_daemon(Signal::TERM).expect("it runs")
    }

    /// Asks the daemon to end and hand over to another daemon, and waits for its end.
    ///
    /// # Panics
    /// If the daemon does not run.
    pub fn hand_over(&mut self) -> ExitStatus {
        self.end_daemon(Signal::USR2).expect("it runs")
    }

    /// Runs `nfluid` with the platform's socket.
    pub fn nfluid(&self, arguments: &[&str]) -> Outcome {
        run_command(self.nfluid_command().args(arguments))
    }

    /// Returns the output of an `nfluid` command that must succeed.
    ///
    /// # Panics
    /// If the command fails.
    pub fn must_say(&self, arguments: &[&str]) -> String {
        let outcome = self.nfluid(arguments);
        assert!(outcome.succeeded(), "{arguments:?}: {outcome:?}");
        outcome.stdout
    }

    /// Checks that `nfluid` refuses a command with an error text that contains `reason`.
    ///
    /// # Panics
    /// If the command succeeds, or gives another reason.
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
        self.platform.nfluid()
    }

    /// Returns the JSON output of an `nfluid` command.
    ///
    /// # Panics
    /// If the command fails.
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let outcome = self.nfluid(&[arguments, &["-o", "json"]].concat());
        assert!(outcome.succeeded(), "{arguments:?}: {outcome:?}");
        serde_json::from_str(&outcome.stdout).expect("JSON was asked for")
    }

    /// Returns the daemon's response to a GET, of any content type and status.
    ///
    /// # Panics
    /// If the daemon does not respond.
    pub fn page(&self, path: &str) -> String {
        let mut api = self.api().expect("the daemon listens");
        let answer = api.answer("GET", path, &Value::Null).expect("it answers");
        String::from_utf8_lossy(&answer.body).into_owned()
    }

    /// Sends a request to the daemon directly, without a program; returns true if the daemon accepts it.
    ///
    /// # Panics
    /// If the daemon does not respond.
    pub fn requests(&self, method: &str, path: &str, body: &Value) -> bool {
        let mut api = self.api().expect("the daemon listens");
        let answer = api.answer(method, path, body).expect("it answers");
        (200..300).contains(&answer.status)
    }

    /// Applies a deployment. `EDGE` stands for the namespace of the interfaces.
    ///
    /// # Panics
    /// If the test cannot write the file.
    pub fn try_apply(&self, deployment: &str) -> Outcome {
        let deployment = deployment.replace("EDGE", &self.edge());
        let outcome = self.platform.try_apply(&deployment);
        outcome.expect("the directory is ours")
    }

    /// Applies an instance `x` of this specification, which must be refused for a reason that contains `why`.
    ///
    /// # Panics
    /// If it is accepted, or refused for another reason.
    #[track_caller]
    pub fn must_refuse_instance(&self, specification: &str, why: &str) {
        let document = format!("version: 1\ninstances: {{ x: {specification} }}\n");
        let refused = self.try_apply(&document);
        assert!(!refused.succeeded(), "{specification}");
        assert!(
            refused.stderr.contains(why),
            "{specification}: {}",
            refused.stderr
        );
    }

    /// Applies a deployment that must be accepted; returns the changes as `verb kind name`, sorted.
    ///
    /// # Panics
    /// If the deployment is refused.
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

    /// Returns the state of an instance as the daemon reports it.
    pub fn instance(&self, name: &str) -> Value {
        self.object("instances", name)
    }

    /// Returns the state of an uplink as the daemon reports it.
    pub fn uplink(&self, name: &str) -> Value {
        self.object("uplinks", name)
    }

    fn object(&self, kind: &str, name: &str) -> Value {
        let all = self.ask(&["get", kind]);
        let found = list(&all).find(|object| object["name"] == name);
        found.cloned().unwrap_or(Value::Null)
    }

    /// Waits until all these uplinks let in these frames.
    ///
    /// # Panics
    /// If they do not.
    pub fn await_frames(&self, uplinks: &[&str], frames: &str) {
        let what = format!(
            "{} let in frames that are '{frames}'",
            uplinks.join(" and ")
        );
        eventually(&what, || {
            uplinks
                .iter()
                .all(|name| self.uplink(name)["frames"] == frames)
        });
    }

    /// Returns the process ids of the running instances.
    ///
    /// # Panics
    /// If the daemon does not respond.
    pub fn pids(&self) -> BTreeMap<String, u32> {
        let all = self.ask(&["get", "instances"]);
        let pid = |instance: &Value| {
            let pid = u32::try_from(instance["pid"].as_u64()?).expect("a process id");
            Some((text(&instance["name"]), pid))
        };
        list(&all).filter_map(pid).collect()
    }

    /// Returns the kinds of the events about an object, the oldest first.
    pub fn events_of(&self, name: &str) -> Vec<String> {
        let all = self.ask(&["events"]);
        let about = list(&all).filter(|event| event["name"] == name);
        about.map(|event| text(&event["kind"])).collect()
    }

    /// Returns the processes in the platform's cgroups: those of the daemon and its helpers, and those of the
    /// instances.
    pub fn processes(&self) -> Vec<u32> {
        self.processes_below("")
    }

    /// Returns the processes in the cgroups of instances.
    pub fn instance_processes(&self) -> Vec<u32> {
        self.processes_below("i-")
    }

    /// Returns the processes of network functions.
    pub fn function_processes(&self) -> Vec<u32> {
        self.processes_below("functions/")
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if thread::panicking() {
            evidence::leave(self.directory(), self.daemon_logs());
            evidence::dropped(&mut self.platform.nfluid());
        }
    }
}

/// Returns the metrics of an NF from its control socket, which works also while no daemon runs.
///
/// # Panics
/// If the NF does not respond.
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
/// If the value is not a list.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("no list: {value}"))
        .iter()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
