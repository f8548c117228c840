//! A platform of nfluid's own: the daemon that users run, with a name, a folder and cgroups that
//! nothing else has; all of it is removed when dropped.

use super::program::{beside_this_program, output};
use super::service::Service;
use super::shares::outweigh_others;
use super::workshop::Workshop;
use anyhow::Context;
use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const CGROUPS: &str = "/sys/fs/cgroup";
const PINS: &str = "/sys/fs/bpf";
/// How long the daemon may take to come up, on a machine that has much else to do: the verifier reads
/// its programs. One that ends instead is found at once.
const PATIENCE: Duration = Duration::from_secs(300);
/// A killed process leaves its cgroup a little later.
const REMOVE_TRIES: u32 = 50;

/// The daemon.
#[derive(Debug)]
pub struct Platform {
    name: String,
    daemon: Service,
    command_line: PathBuf,
    folder: Workshop,
    run: Workshop,
}

impl Platform {
    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// `CannotRun` when the programs have not been built; what the daemon says when it ends.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with("", &[])
    }

    /// Another one beside it, whose name ends so, with more arguments for the daemon.
    ///
    /// # Errors
    /// As [`Platform::start`].
    pub fn start_with(ending: &str, arguments: &[String]) -> anyhow::Result<Self> {
        let program = beside_this_program("nfluidd", "nfluidd")?;
        let command_line = beside_this_program("nfluid", "nfluid")?;
        beside_this_program("nfluid-nf", "nfluid-nf-host")?;
        let (folder, run) = (Workshop::new()?, Workshop::in_memory()?);
        let name = format!("nfluid-test-bench-{}{ending}", std::process::id());
        let mut command = Command::new(program);
        command
            .args(["--name", &name, "--state-dir"])
            .arg(folder.path("state"))
            .arg("--run-dir")
            .arg(run.path("run"))
            .args(arguments)
            .stdin(Stdio::null());
        let daemon = Service::start("nfluidd", &mut command, folder.path("log"))?;
        let mut platform = Platform {
            name,
            daemon,
            command_line,
            folder,
            run,
        };
        platform.await_socket()?;
        Ok(platform)
    }

    /// Applies a deployment.
    ///
    /// # Errors
    /// What `nfluid apply` says.
    pub fn apply(&self, deployment: &str) -> anyhow::Result<()> {
        let file = self.folder.path("deployment.yaml");
        fs::write(&file, deployment).context("writing the deployment")?;
        output(self.nfluid().arg("apply").arg("-f").arg(&file))?;
        Ok(())
    }

    /// The cgroup of an instance.
    ///
    /// # Errors
    /// When there is none.
    pub fn cgroup(&self, instance: &str) -> anyhow::Result<Cgroup> {
        let root = CgroupRoot::new(&self.name)?;
        Ok(root.open(&format!("i-{instance}"))?)
    }

    /// Gives its instances together the weight that [`Shares`](super::shares::Shares) have.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn outweigh_others(&self) -> anyhow::Result<()> {
        outweigh_others(&CgroupRoot::new(&self.name)?)
    }

    /// Restarts an instance; its failures are forgiven.
    ///
    /// # Errors
    /// What `nfluid restart` says.
    pub fn restart(&self, instance: &str) -> anyhow::Result<()> {
        output(self.nfluid().args(["restart", instance]))?;
        Ok(())
    }

    /// What `nfluid` answers as JSON.
    ///
    /// # Errors
    /// What it says.
    pub fn ask(&self, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
        let said = output(self.nfluid().args(arguments).args(["-o", "json"]))?;
        serde_json::from_str(&said).context("what nfluid says")
    }

    fn nfluid(&self) -> Command {
        let mut command = Command::new(&self.command_line);
        command.arg("--socket").arg(self.socket());
        command
    }

    /// The daemon's process.
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// Where the daemon listens.
    pub fn socket(&self) -> PathBuf {
        self.run.path("run").join("nfluidd.sock")
    }

    /// What an instance has written.
    pub fn log(&self, instance: &str) -> PathBuf {
        self.run.path("run/logs").join(format!("{instance}.log"))
    }

    fn await_socket(&mut self) -> anyhow::Result<()> {
        let socket = self.socket();
        let serves = || UnixStream::connect(&socket).is_ok();
        self.daemon.await_service(PATIENCE, serves)
    }

    /// Folders of the platform's cgroups, in every hierarchy.
    fn cgroups(&self) -> Vec<PathBuf> {
        let hierarchies = folders(Path::new(CGROUPS));
        let roots = hierarchies.into_iter().chain([PathBuf::from(CGROUPS)]);
        roots
            .map(|root| root.join(&self.name))
            .filter(|folder| folder.is_dir())
            .collect()
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        // What it cannot do any more is done below.
        let _ = output(self.nfluid().args(["delete", "--all"]));
        self.daemon.end();
        for cgroup in self.cgroups() {
            for _ in 0..REMOVE_TRIES {
                remove_cgroup(&cgroup);
                if !cgroup.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = fs::remove_dir_all(Path::new(PINS).join(&self.name));
    }
}

/// Ends what is in a cgroup and those below it, and removes them.
fn remove_cgroup(folder: &Path) {
    for below in folders(folder) {
        remove_cgroup(&below);
    }
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines().filter_map(|line| line.parse().ok()) {
        if let Some(pid) = Pid::from_raw(process) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = fs::remove_dir(folder);
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
