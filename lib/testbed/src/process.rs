//! Programs that run in the background of a test or an experiment.

use crate::interrupt;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time that a program has to end after SIGTERM; then it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// A program with a log; asked to end when dropped.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts a program; its standard error is appended to `log`.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> anyhow::Result<Self> {
        Service::start_by(name, command, log, |command| Ok(command.spawn()?))
    }

    /// As [`Service::start`], by `spawn`: as the program of an instance, for example.
    ///
    /// # Errors
    /// As those of `spawn`.
    pub fn start_by(
        name: &str,
        command: &mut Command,
        log: PathBuf,
        spawn: impl FnOnce(&mut Command) -> anyhow::Result<Child>,
    ) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("the log of {name}"))?;
        let child = spawn(command.stdout(Stdio::null()).stderr(file));
        Ok(Service {
            name: name.to_owned(),
            child: child.with_context(|| format!("starting {name}"))?,
            log,
        })
    }

    /// The program's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns true if the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the last line of the log, "nothing" of an empty one.
    pub fn last_log_line(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or("nothing").to_owned()
    }

    /// Waits until `serves` returns true.
    ///
    /// # Errors
    /// When the program ends or takes longer than `patience`, with the last line of its log; when interrupted.
    pub fn await_service(
        &mut self,
        patience: Duration,
        mut serves: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        while !serves() {
            interrupt::check()?;
            if !self.is_running() || start.elapsed() > patience {
                let (name, last) = (&self.name, self.last_log_line());
                anyhow::bail!("{name} does not come up; it said last: {last}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.with_context(|| format!("{} has ended", self.name))
    }

    /// Asks the program to end, without waiting: to end many programs, all are asked first.
    pub fn terminate(&mut self) {
        if self.is_running() {
            let _ = self.signal(Signal::TERM);
            // The program may have been stopped.
            let _ = self.signal(Signal::CONT);
            // It may go on reading after the signal, as testpmd does.
            drop(self.child.stdin.take());
        }
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// When the kernel does not know the process.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let ended = self.child.wait();
        ended.with_context(|| format!("waiting for {}", self.name))
    }

    /// Kills the program, as a crash would, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the program to end and waits for its end; kills a program that takes longer than `grace`.
    pub fn stop_within(&mut self, grace: Duration) {
        self.terminate();
        let start = Instant::now();
        while self.is_running() && start.elapsed() < grace {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }

    /// As [`Service::stop_within`], with 10 s.
    pub fn stop(&mut self) {
        self.stop_within(GRACE);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program without output that has nothing to clean up: killed when dropped.
#[derive(Debug)]
pub struct Background(Child);

impl Background {
    /// Starts a program without input and output.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = quiet.stderr(Stdio::null()).spawn();
        let name = command.get_program().to_string_lossy();
        Ok(Background(
            child.with_context(|| format!("starting {name}"))?,
        ))
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process, unless the process is gone.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// Returns true if a process exists and has not ended.
pub fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses.
    let state = status.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
    state.is_some_and(|state| state != "Z")
}

#[cfg(test)]
mod tests {
    use super::{Service, is_alive};
    use rustix::process::Signal;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_stopped_service_ends_when_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sleep");
        let log = folder.path().join("log");
        let mut service = Service::start("sleep", command.arg("60"), log).expect("sleep");
        service.signal(Signal::STOP).expect("it lives");
        assert!(service.is_running() && is_alive(service.pid()));
        service.stop();
        assert!(!service.is_running() && !is_alive(service.pid()));
    }

    #[test]
    fn a_service_that_ends_early_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2"]);
        let log = folder.path().join("log");
        let mut service = Service::start("sh", &mut command, log).expect("sh");
        let error = service.await_service(Duration::from_secs(60), || false);
        let error = error.expect_err("it has ended").to_string();
        assert!(error.ends_with("why"), "{error}");
    }
}
