//! A private platform: the daemon that users run, with a unique name and its own directories, namespaces and cgroups.
//! All of them are removed when dropped.

use crate::api::Api;
use crate::command::{Outcome, output};
use crate::directory::ScratchDirectory;
use crate::namespace::{self, Namespace};
use crate::patience::comes_to_hold;
use crate::process::{Service, is_alive, signal};
use crate::program::built;
use anyhow::Context;
use rustix::process::Signal;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const CGROUPS: &str = "/sys/fs/cgroup";
const PINS: &str = "/sys/fs/bpf";
/// How long the daemon may take to start on a busy machine: the verifier reads its programs. A daemon that ends instead
/// is detected at once.
const START_PATIENCE: Duration = Duration::from_secs(300);
/// How long a daemon may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(180);

/// The daemon and its surroundings.
#[derive(Debug)]
pub struct Platform {
    name: String,
    programs: Programs,
    daemon: Option<Service>,
    /// Starts of the daemon; each has its own log.
    starts: u32,
    arguments: Vec<String>,
    /// The network namespace in which the daemon runs; `None`: the namespace of this process.
    daemon_netns: Option<String>,
    namespaces: Vec<Namespace>,
    /// The state that outlives the daemon, the logs, and the owner's files.
    directory: ScratchDirectory,
    /// The run directory, if not in `directory`.
    memory: Option<ScratchDirectory>,
}

/// The programs of the platform.
#[derive(Debug)]
struct Programs {
    daemon: PathBuf,
    command_line: PathBuf,
    nf: PathBuf,
}

impl Platform {
    /// Makes a platform; the daemon is not started. `name` begins with `nfluid-test-` and the process id, see
    /// [`Namespace::named`].
    ///
    /// # Errors
    /// [`CannotRun`](crate::CannotRun) when the programs have not been built.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        Ok(Platform {
            name: name.to_owned(),
            programs: Programs {
                daemon: built("nfluidd", "nfluidd")?,
                command_line: built("nfluid", "nfluid")?,
                nf: built("nfluid-nf", "nfluid-nf-host")?,
            },
            daemon: None,
            starts: 0,
            arguments: Vec::new(),
            daemon_netns: None,
            namespaces: Vec::new(),
            directory: ScratchDirectory::named(name)?,
            memory: None,
        })
    }

    /// Puts the run directory in memory, as `/run` is on a host.
    ///
    /// # Errors
    /// As [`ScratchDirectory::in_memory`].
    pub fn set_run_dir_in_memory(&mut self) -> anyhow::Result<()> {
        self.memory = Some(ScratchDirectory::in_memory()?);
        Ok(())
    }

    /// Adds these arguments to the daemon's own from the next start on.
    pub fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments;
    }

    /// Starts the daemon in a network namespace, from the next start on.
    pub fn set_daemon_netns(&mut self, name: String) {
        self.daemon_netns = Some(name);
    }

    /// The platform's name, also the name of its cgroups and pinned objects.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory for the owner's files.
    pub fn directory(&self) -> &Path {
        self.directory.as_ref()
    }

    /// The directory of the daemon's sockets and of the records of running instances.
    pub fn run_dir(&self) -> PathBuf {
        self.memory.as_ref().unwrap_or(&self.directory).path("run")
    }

    /// The API's socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir().join("nfluidd.sock")
    }

    /// The log of an instance.
    pub fn instance_log(&self, instance: &str) -> PathBuf {
        self.run_dir().join("logs").join(format!("{instance}.log"))
    }

    /// The daemon's logs, one per start.
    pub fn daemon_logs(&self) -> impl Iterator<Item = PathBuf> {
        (1..=self.starts).map(|start| self.daemon_log(start))
    }

    fn daemon_log(&self, start: u32) -> PathBuf {
        self.directory.path(&format!("log-{start}"))
    }

    /// The directory of the platform's pinned objects.
    pub fn pins(&self) -> PathBuf {
        Path::new(PINS).join(&self.name)
    }

    /// Makes the network namespace NAME-`suffix`, without IPv6, removed with the platform; returns its name.
    ///
    /// # Errors
    /// As [`Namespace::named`].
    pub fn add_namespace(&mut self, suffix: &str) -> anyhow::Result<String> {
        let name = self.namespace_name(suffix);
        let namespace = Namespace::named(name.clone())?;
        namespace.disable_ipv6();
        self.namespaces.push(namespace);
        Ok(name)
    }

    /// The name of a namespace that [`Platform::add_namespace`] makes.
    pub fn namespace_name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    /// The path of a namespace that [`Platform::add_namespace`] makes.
    pub fn namespace_path(&self, suffix: &str) -> PathBuf {
        namespace::path_of(&self.namespace_name(suffix))
    }

    /// Starts the daemon and waits until it serves.
    ///
    /// # Errors
    /// The last log line of a daemon that ends; when interrupted.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let socket = self.socket();
        self.launch()?
            .await_service(START_PATIENCE, || UnixStream::connect(&socket).is_ok())
    }

    /// Starts the daemon without waiting.
    fn launch(&mut self) -> anyhow::Result<&mut Service> {
        self.starts += 1;
        let mut command = self.daemon_command();
        let daemon = Service::start("nfluidd", &mut command, self.daemon_log(self.starts))?;
        Ok(self.daemon.insert(daemon))
    }

    /// The command of a daemon of this platform.
    pub fn daemon_command(&self) -> Command {
        let mut command = match &self.daemon_netns {
            None => Command::new(&self.programs.daemon),
            Some(namespace) => {
                // Not 'ip netns exec', which hides what is mounted below /sys.
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}"));
                command.arg(&self.programs.daemon);
                command
            }
        };
        command.args(&self.arguments);
        command.args(["--name", &self.name, "--state-dir"]);
        command.arg(self.directory.path("state"));
        command.arg("--run-dir").arg(self.run_dir());
        command.arg("--nf-program").arg(&self.programs.nf);
        command.stdin(Stdio::null());
        command
    }

    /// Returns true if the last started daemon still runs.
    pub fn is_up(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(Service::is_running)
    }

    /// The daemon's process.
    ///
    /// # Errors
    /// When no daemon was started.
    pub fn daemon_pid(&self) -> anyhow::Result<u32> {
        let daemon = self.daemon.as_ref().context("no daemon was started")?;
        Ok(daemon.pid())
    }

    /// Kills the daemon, as a crash would.
    ///
    /// # Errors
    /// When no daemon was started.
    pub fn kill_daemon(&mut self) -> anyhow::Result<()> {
        let mut daemon = self.daemon.take().context("no daemon was started")?;
        daemon.kill();
        Ok(())
    }

    /// Sends the daemon a signal and waits for its end: SIGTERM, or SIGUSR2 to hand over to another daemon.
    ///
    /// # Errors
    /// When no daemon was started.
    pub fn end_daemon(&mut self, signal: Signal) -> anyhow::Result<ExitStatus> {
        let mut daemon = self.daemon.take().context("no daemon was started")?;
        // A daemon that has already ended needs no signal.
        let _ = daemon.signal(signal);
        daemon.wait()
    }

    /// The command `nfluid` with the platform's socket.
    pub fn nfluid(&self) -> Command {
        let mut command = Command::new(&self.programs.command_line);
        command.arg("--socket").arg(self.socket());
        command
    }

    /// Connects to the daemon's API.
    ///
    /// # Errors
    /// When the daemon does not run.
    pub fn api(&self) -> anyhow::Result<Api> {
        Api::connect(&self.socket())
    }

    /// Runs `nfluid apply` with a deployment; returns the outcome, success or failure.
    ///
    /// # Errors
    /// When the deployment cannot be written.
    pub fn try_apply(&self, deployment: &str) -> anyhow::Result<Outcome> {
        let mut command = self.apply_command(deployment)?;
        Outcome::of(command.args(["-o", "json"]))
    }

    /// Applies a deployment.
    ///
    /// # Errors
    /// The error text of `nfluid apply`.
    pub fn apply(&self, deployment: &str) -> anyhow::Result<()> {
        output(&mut self.apply_command(deployment)?).map(drop)
    }

    fn apply_command(&self, deployment: &str) -> anyhow::Result<Command> {
        let file = self.directory.write("deployment.yaml", deployment)?;
        let mut command = self.nfluid();
        command.args(["apply", "-f"]).arg(file);
        Ok(command)
    }

    /// Restarts an instance and clears its failure count.
    ///
    /// # Errors
    /// The error text of `nfluid restart`.
    pub fn restart(&self, instance: &str) -> anyhow::Result<()> {
        output(self.nfluid().args(["restart", instance])).map(drop)
    }

    /// Directories of the platform in the cgroup hierarchies.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let roots = folders(Path::new(CGROUPS)).into_iter();
        let roots = roots.chain([PathBuf::from(CGROUPS)]);
        let own = roots.map(|root| root.join(&self.name));
        own.filter(|path| path.is_dir()).collect()
    }

    /// Returns the processes in those cgroups of the platform whose path below the platform's begins with `prefix`;
    /// with "" all processes: those of the daemon and its helpers, and those of the instances.
    pub fn processes_below(&self, prefix: &str) -> Vec<u32> {
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

    /// Kills all processes of the platform and waits until they have ended: the cgroup of a process that is ending
    /// cannot be removed. Returns true if all have ended.
    pub fn kill_all(&self) -> bool {
        comes_to_hold(|| {
            let left = self.processes_below("");
            left.iter().for_each(|pid| signal(*pid, Signal::KILL));
            left.is_empty()
        })
    }

    /// Removes the platform's cgroups that have no processes.
    pub fn remove_cgroups(&self) {
        self.cgroups().iter().for_each(|path| remove_cgroup(path));
    }

    /// Deletes all objects and ends the daemon.
    fn take_down(&mut self) {
        if self.daemon.is_none() {
            // Only a daemon can remove all objects.
            let socket = self.socket();
            if self.launch().is_err() || !comes_to_hold(|| socket.exists()) {
                return;
            }
        }
        let _ = output(self.nfluid().args(["delete", "--all"]));
        if let Some(mut daemon) = self.daemon.take() {
            daemon.stop_within(STOP_PATIENCE);
        }
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if self.starts > 0 {
            self.take_down();
        }
        // The next `make clean` lists what cannot be removed.
        let _ = self.kill_all();
        self.namespaces.clear();
        let _ = fs::remove_dir_all(self.pins());
        self.remove_cgroups();
    }
}

fn remove_cgroup(folder: &Path) {
    folders(folder)
        .iter()
        .for_each(|below| remove_cgroup(below));
    let _ = fs::remove_dir(folder);
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
