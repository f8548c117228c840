//! Programs that run beside an experiment until it is over, and that it may stop for a while.

use super::cpu;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that was told to end and has not by then is killed.
const GRACE: Duration = Duration::from_secs(10);

/// What forwards frames in processes of its own. If it polls, it is stopped while nobody looks at
/// it, so that it does not take others their core.
pub trait Forwards {
    /// Lets it run, or stops it.
    ///
    /// # Errors
    /// When it has ended.
    fn runs(&self, runs: bool) -> anyhow::Result<()>;

    /// CPU time that it has used, in seconds.
    ///
    /// # Errors
    /// When it has ended.
    fn cpu_seconds(&self) -> anyhow::Result<f64>;
}

/// A program; told to end when dropped.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts it; what it says as errors is appended to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("the log of {name}"))?;
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        Ok(Service {
            name: name.to_owned(),
            child: child.with_context(|| format!("starting {name}"))?,
            log,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The last line of its log.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or("nothing").to_owned()
    }

    /// Waits until it `serves`.
    ///
    /// # Errors
    /// When it ends instead, or takes longer than `patience`; with its last words.
    pub fn await_service(
        &mut self,
        patience: Duration,
        mut serves: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        while !serves() {
            if !self.lives() || start.elapsed() > patience {
                let (name, last) = (&self.name, self.last_words());
                anyhow::bail!("{name} does not come up; it said last: {last}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Tells it to end, for who has many to wait for.
    pub fn tell_to_end(&mut self) {
        let pid = Pid::from_child(&self.child);
        if self.lives() {
            let _ = kill_process(pid, Signal::TERM);
            // It may have been stopped.
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Tells it to end and waits for that.
    pub fn end(&mut self) {
        self.tell_to_end();
        let start = Instant::now();
        while self.lives() && start.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Forwards for Service {
    fn runs(&self, runs: bool) -> anyhow::Result<()> {
        let signal = if runs { Signal::CONT } else { Signal::STOP };
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.with_context(|| format!("{} has ended", self.name))
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let used = cpu::process_seconds(self.child.id());
        used.with_context(|| format!("{} has ended", self.name))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program that neither says nor keeps anything: killed when dropped.
#[derive(Debug)]
pub struct Silent(Child);

impl Silent {
    /// Starts it without input and output.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = silent.stderr(Stdio::null()).spawn();
        let name = command.get_program().to_string_lossy();
        Ok(Silent(child.with_context(|| format!("starting {name}"))?))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::{Forwards, Service};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_stopped_service_ends_when_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sleep");
        let log = folder.path().join("log");
        let mut service = Service::start("sleep", command.arg("60"), log).expect("sleep");
        service.runs(false).expect("it lives");
        assert!(service.lives());
        service.end();
        assert!(!service.lives());
        assert!(service.runs(true).is_err() || service.cpu_seconds().is_err());
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
