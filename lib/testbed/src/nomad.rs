//! Nomad's agent, which is neither in Debian nor part of this project: a server and a client in one process, with nfluid's driver, and further clients beside it.

use crate::port::free_ports;
use crate::process::signal;
use crate::{CannotRun, http, interrupt};
use anyhow::{Context, bail, ensure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable that names Nomad's program.
const PROGRAM: &str = "NOMAD_PROGRAM";
/// Time after which an agent will not take jobs.
const PATIENCE: Duration = Duration::from_secs(120);
/// The name of Nomad's control groups, on each of the hierarchies below this folder.
const GROUPS: (&str, &str) = ("/sys/fs/cgroup", "nomad");

/// Finds Nomad's program.
///
/// # Errors
/// [`CannotRun`] if the variable names none.
pub fn find() -> Result<PathBuf, CannotRun> {
    let named = std::env::var_os(PROGRAM).map(PathBuf::from);
    let program = named.filter(|program| program.is_file());
    program.ok_or_else(|| {
        CannotRun(format!(
            "set {PROGRAM} to Nomad's program, 1.11 or later: docs/guide/nomad.md"
        ))
    })
}

/// An agent; ended when dropped, with everything that agents leave behind.
#[derive(Debug)]
pub struct Nomad {
    program: PathBuf,
    folder: PathBuf,
    http: u16,
    /// The port at which clients find the server.
    rpc: u16,
    agent: Option<Child>,
    /// Control groups of Nomad that are there already.
    known_groups: Vec<PathBuf>,
}

impl Nomad {
    /// Prepares an agent in `folder`, with the driver `driver` for the daemon that listens at `socket`, and Nomad's own drivers `others`.
    ///
    /// # Errors
    /// A file cannot be written, or no port is free.
    pub fn new(
        program: PathBuf,
        folder: PathBuf,
        driver: &Path,
        socket: &Path,
        others: &[&str],
    ) -> anyhow::Result<Self> {
        let [rpc] = free_ports()?;
        Nomad::prepare((program, driver), folder, socket, others, (rpc, true))
    }

    /// Prepares another client of this agent's server, in `folder`, for the daemon that listens at `socket`.
    ///
    /// # Errors
    /// As [`Nomad::new`].
    pub fn beside(&self, folder: PathBuf, socket: &Path) -> anyhow::Result<Self> {
        let parts = (self.program.clone(), &*self.driver());
        Nomad::prepare(parts, folder, socket, &[], (self.rpc, false))
    }

    fn prepare(
        (program, driver): (PathBuf, &Path),
        folder: PathBuf,
        socket: &Path,
        others: &[&str],
        (server, is_server): (u16, bool),
    ) -> anyhow::Result<Self> {
        let [http, own_rpc, serf] = free_ports()?;
        let this = Nomad {
            program,
            folder,
            http,
            rpc: server,
            agent: None,
            known_groups: groups(),
        };
        fs::create_dir_all(this.folder.join("plugins")).context("the agent's folder")?;
        crate::program::copy(driver, &this.driver())?;
        let allowed = ["nfluid"]
            .iter()
            .chain(others)
            .copied()
            .collect::<Vec<_>>()
            .join(",");
        let at = this.folder.display();
        let socket = socket.display();
        let rpc = if is_server { server } else { own_rpc };
        let name = this.node();
        let configuration = format!(
            r#"
name = "{name}"
disable_update_check = true
bind_addr = "127.0.0.1"
plugin_dir = "{at}/plugins"
data_dir = "{at}/data"
advertise {{
  http = "127.0.0.1"
  rpc = "127.0.0.1"
  serf = "127.0.0.1"
}}
ports {{
  http = {http}
  rpc = {rpc}
  serf = {serf}
}}
server {{
  enabled = {is_server}
  bootstrap_expect = 1
  heartbeat_grace = "1s"
  min_heartbeat_ttl = "3s"
}}
client {{
  enabled = true
  servers = ["127.0.0.1:{server}"]
  network_interface = "lo"
  cpu_total_compute = 40000
  options = {{
    "driver.allowlist" = "{allowed}"
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
  }}
}}
plugin "raw_exec" {{
  config {{ enabled = true }}
}}
plugin "nfluid-nomad" {{
  config {{ socket = "{socket}" }}
}}
"#
        );
        let file = this.folder.join("agent.hcl");
        fs::write(file, configuration).context("the agent's configuration")?;
        Ok(this)
    }

    /// The name of the agent's node.
    pub fn node(&self) -> String {
        format!("node-{}", self.http)
    }

    fn driver(&self) -> PathBuf {
        self.folder.join("plugins/nfluid-nomad")
    }

    /// Starts the agent, and waits until it takes jobs of nfluid.
    ///
    /// # Errors
    /// The agent does not start.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("agent.log"))?;
        let agent = Command::new(&self.program)
            .args(["agent", "-config"])
            .arg(self.folder.join("agent.hcl"))
            .env_remove("AWS_CA_BUNDLE")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        self.agent = Some(agent.context("starting Nomad")?);
        let begun = Instant::now();
        while !self.is_ready() {
            interrupt::check()?;
            let has_ended = self
                .agent
                .as_mut()
                .is_some_and(|agent| agent.try_wait().is_ok_and(|end| end.is_some()));
            ensure!(
                !has_ended && begun.elapsed() < PATIENCE,
                "Nomad is not ready: {}",
                self.last_words()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let nodes = self.get("/v1/nodes").unwrap_or_default();
        let mut nodes = nodes.as_array().into_iter().flatten();
        nodes.any(|node| {
            node["Name"] == self.node().as_str()
                && node["Status"] == "ready"
                && node["Drivers"]["nfluid"]["Healthy"] == true
        })
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.join("agent.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }

    /// Ends the agent as a crash would. Its plugins stay.
    pub fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _gone = agent.kill();
            let _status = agent.wait();
        }
    }

    /// The processes of the driver.
    pub fn drivers(&self) -> Vec<u32> {
        let plugin = self.driver();
        let is_driver =
            |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == plugin);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_driver).collect()
    }

    /// Runs Nomad's command line. Returns whether it succeeded, and what it says.
    ///
    /// # Errors
    /// The command line does not start.
    pub fn command(&self, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
        let done = Command::new(&self.program)
            .args(arguments)
            .env("NOMAD_ADDR", self.address())
            .output()
            .context("starting Nomad's command line")?;
        let said = [done.stdout, done.stderr].concat();
        Ok((
            done.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    }

    /// Returns the agent's address, as clients name it.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// Follows the agent's events until it ends; returns the file in which they are, JSON.
    ///
    /// # Errors
    /// The agent does not answer, or the file cannot be written.
    pub fn follow_events(&self) -> anyhow::Result<PathBuf> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.http));
        let mut stream = stream.context("connecting to Nomad")?;
        stream.write_all(b"GET /v1/event/stream HTTP/1.0\r\n\r\n")?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        // Up to the empty line.
        while stream.read_line(&mut line)? > 2 {
            line.clear();
        }
        let path = self.folder.join("events.jsonl");
        let mut file = File::create(&path).context("the file of events")?;
        // It ends with the agent.
        std::thread::spawn(move || std::io::copy(&mut stream, &mut file));
        Ok(path)
    }

    /// Asks the agent for a resource.
    ///
    /// # Errors
    /// The agent refuses, or does not answer.
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.request("GET", path, &Value::Null)
    }

    /// Sends the agent a request. `Null` is no body, and no answer.
    ///
    /// # Errors
    /// The agent refuses, or does not answer.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let server = (Ipv4Addr::LOCALHOST, self.http).into();
        let (status, text) = http::request(server, method, path, body)?;
        if status != 200 {
            bail!("{method} {path}: {}", text.trim());
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }
}

/// The control groups of Nomad on this host.
fn groups() -> Vec<PathBuf> {
    let (root, name) = GROUPS;
    let below = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join(name));
    let all = below.chain([Path::new(root).join(name)]);
    all.filter(|group| group.is_dir()).collect()
}

fn remove_group(group: &Path) {
    let inner = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_group(&entry.path());
    }
    let _gone = fs::remove_dir(group);
}

impl Drop for Nomad {
    fn drop(&mut self) {
        self.kill();
        for driver in self.drivers() {
            signal(driver, Signal::KILL);
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(&self.folder)) {
            let _gone = unmount(place, UnmountFlags::DETACH);
        }
        for group in groups() {
            if !self.known_groups.contains(&group) {
                remove_group(&group);
            }
        }
    }
}
