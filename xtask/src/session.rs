//! Running other programs so that an interrupt stops them.
//!
//! A child gets its own process group. On SIGINT, SIGTERM or SIGHUP the group is asked to end, and killed if it does
//! not; the task then gets [`Interrupted`] and returns through its guards, which remove leftovers.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, IsTerminal, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Time for an interrupted child to clean up before it is killed. The demo removes a whole platform.
const GRACE: Duration = Duration::from_secs(20);
/// Longest line that is kept whole; a longer line arrives in parts.
const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// Longest wait for further output after a child's end: a process that it has left may still hold the pipe.
const DRAIN: Duration = Duration::from_secs(1);

/// A signal ended the task.
#[derive(Debug)]
pub struct Interrupted {
    signal: i32,
}

impl Interrupted {
    /// Returns 128 + signal, the shell's convention.
    pub fn exit_code(&self) -> u8 {
        u8::try_from(128 + self.signal).unwrap_or(1)
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted by signal {}", self.signal)
    }
}

impl std::error::Error for Interrupted {}

/// Limits after which a streamed child counts as hung. They protect the harness; they do not limit what a test may
/// take.
#[derive(Clone, Copy)]
pub struct Watchdog {
    /// Longest time without a byte of output.
    pub silence: Duration,
    /// Longest total time.
    pub total: Duration,
}

/// How a streamed child ended.
pub enum Outcome {
    Exited(ExitStatus),
    /// The watchdog killed the child.
    Hung,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Running {
    pid: Pid,
    foreground: bool,
}

impl Running {
    fn send(self, signal: Signal) {
        // The child may have ended: then there is nothing to do.
        let _ = match self.foreground {
            true => kill_process(self.pid, signal),
            false => kill_process_group(self.pid, signal),
        };
    }
}

#[derive(Default)]
struct Shared {
    /// Running children: one, or those of all parallel jobs of a test run.
    running: Mutex<Vec<Running>>,
    /// 0, or the first signal that arrived.
    signal: AtomicI32,
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, signal: Signal) {
        for running in self.running().iter() {
            running.send(signal);
        }
    }
}

/// The repository, and the children of this task.
pub struct Session {
    /// The project's folder.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    shared: Arc<Shared>,
}

impl Session {
    /// Starts listening for signals.
    ///
    /// # Errors
    /// Cargo cannot name its target folder, or the handlers cannot be installed.
    pub fn start(root: &Path) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        listen(Arc::clone(&shared))?;
        let mut session = Self {
            root: root.to_path_buf(),
            target: PathBuf::new(),
            shared,
        };
        let metadata = session.metadata()?;
        let target = metadata["target_directory"].as_str();
        session.target = target
            .context("cargo metadata names no target_directory")?
            .into();
        Ok(session)
    }

    /// Returns the output of `cargo metadata` about the workspace's own packages.
    pub fn metadata(&self) -> Result<serde_json::Value> {
        let mut cargo = self.cargo(["metadata", "--no-deps", "--format-version=1"]);
        let text = self.output(&mut cargo)?;
        serde_json::from_str(&text).context("reading the answer of cargo metadata")
    }

    /// Returns a command that runs in the project's folder.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// Returns a cargo command that runs in the project's folder. Its environment lacks the variables in which cargo
    /// describes xtask itself: they would rerun ring's build script, and rebuild everything that depends on ring.
    pub fn cargo<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = self.command(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|start| text.starts_with(start))
            {
                command.env_remove(&name);
            }
        }
        command.args(args);
        command
    }

    /// Runs a command to its end; its output goes to the terminal.
    ///
    /// # Errors
    /// The command cannot start, fails, or was interrupted.
    pub fn run(&self, command: &mut Command) -> Result<()> {
        println!("+ {}", shown(command));
        command.stdin(Stdio::null()).process_group(0);
        let (mut child, running) = self.spawn(command, false)?;
        let status = child.wait();
        self.ended(command, running, status?)
    }

    /// Runs a command that may use the terminal (it stays in the foreground group).
    ///
    /// # Errors
    /// The command cannot start, fails, or was interrupted.
    pub fn run_foreground(&self, command: &mut Command) -> Result<()> {
        println!("+ {}", shown(command));
        let (mut child, running) = self.spawn(command, true)?;
        let status = child.wait();
        self.ended(command, running, status?)
    }

    /// Runs a command and returns its standard output.
    ///
    /// # Errors
    /// The command cannot start, fails, or was interrupted; the message contains its standard error.
    pub fn output(&self, command: &mut Command) -> Result<String> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let (child, running) = self.spawn(command, false)?;
        let output = child.wait_with_output();
        self.release(running)?;
        let output = output?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}: {}\n{}",
                shown(command),
                output.status,
                stderr.trim_end()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command and passes on its standard output line by line (without the line's end).
    ///
    /// # Errors
    /// The command cannot start or was interrupted. A failing command is an [`Outcome`], not an error.
    pub fn stream(
        &self,
        command: &mut Command,
        watchdog: Option<Watchdog>,
        mut on_line: impl FnMut(&str),
    ) -> Result<Outcome> {
        println!("+ {}", shown(command));
        let (reader, writer) = std::io::pipe()?;
        self.follow(command.stdout(writer), reader, watchdog, &mut on_line)
    }

    /// Like [`Session::stream`], for commands that run in parallel: passes on standard error too, and does not print
    /// the command.
    ///
    /// # Errors
    /// The command cannot start or was interrupted. A failing command is an [`Outcome`], not an error.
    pub fn capture(
        &self,
        command: &mut Command,
        watchdog: Watchdog,
        mut on_line: impl FnMut(&str),
    ) -> Result<Outcome> {
        let (reader, writer) = std::io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        self.follow(command, reader, Some(watchdog), &mut on_line)
    }

    fn follow(
        &self,
        command: &mut Command,
        output: PipeReader,
        watchdog: Option<Watchdog>,
        on_line: &mut impl FnMut(&str),
    ) -> Result<Outcome> {
        command.stdin(Stdio::null()).process_group(0);
        let (mut child, running) = self.spawn(command, false)?;
        // Otherwise the command would keep the pipe's write end open.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let outcome = follow(&mut child, output, watchdog, on_line);
        if !matches!(outcome, Ok(Outcome::Exited(_))) {
            running.send(Signal::KILL);
            let _ = child.wait();
        }
        self.release(running)?;
        outcome
    }

    fn spawn(&self, command: &mut Command, foreground: bool) -> Result<(Child, Running)> {
        // The lock is held over the spawn: a signal that arrives now finds the child registered.
        let mut all = self.shared.running();
        self.interrupted()?;
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", shown(command)))?;
        let running = Running {
            pid: Pid::from_child(&child),
            foreground,
        };
        all.push(running);
        Ok((child, running))
    }

    fn release(&self, ended: Running) -> Result<()> {
        self.shared.running().retain(|running| *running != ended);
        self.interrupted()
    }

    fn interrupted(&self) -> Result<()> {
        match self.shared.signal.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => Err(Interrupted { signal }.into()),
        }
    }

    fn ended(&self, command: &Command, running: Running, status: ExitStatus) -> Result<()> {
        self.release(running)?;
        if !status.success() {
            bail!("{}: {status}", shown(command));
        }
        Ok(())
    }
}

fn follow(
    child: &mut Child,
    output: PipeReader,
    watchdog: Option<Watchdog>,
    on_line: &mut impl FnMut(&str),
) -> Result<Outcome> {
    let lines = read_lines(output);
    let started = Instant::now();
    let mut heard = started;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                heard = Instant::now();
                on_line(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Outcome::Exited(child.wait()?)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
        if let Some((status, since)) = ended
            && heard.max(since).elapsed() > DRAIN
        {
            return Ok(Outcome::Exited(status));
        }
        if let Some(limit) = watchdog
            && (heard.elapsed() > limit.silence || started.elapsed() > limit.total)
        {
            return Ok(Outcome::Hung);
        }
    }
}

fn read_lines(output: PipeReader) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1024);
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            match reader
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            if sender
                .send(text.trim_end_matches(['\n', '\r']).to_owned())
                .is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn listen(shared: Arc<Shared>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("installing handlers")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let first = shared.signal.swap(signal, Ordering::SeqCst) == 0;
            // A terminal's Ctrl-C reaches a child in the foreground directly; a second signal would mean "end at once".
            let foreground = shared.running().iter().any(|running| running.foreground);
            if !(signal == SIGINT && foreground && std::io::stdin().is_terminal()) {
                shared.send(if first { Signal::TERM } else { Signal::KILL });
            }
            if first {
                kill_after_grace(Arc::clone(&shared));
            }
        }
    });
    Ok(())
}

fn kill_after_grace(shared: Arc<Shared>) {
    let asked = shared.running().clone();
    thread::spawn(move || {
        thread::sleep(GRACE);
        for running in shared.running().iter() {
            if asked.contains(running) {
                running.send(Signal::KILL);
            }
        }
    });
}

/// Returns the command as a reader would type it.
fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let name = name.to_string_lossy();
        name.starts_with("RUST")
            .then_some(format!("{name}={}", value?.to_string_lossy()))
    });
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    variables
        .chain(words.map(|word| word.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            root: "/".into(),
            target: "/".into(),
            shared: Arc::default(),
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = session().command("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_command_is_named_with_its_error() {
        let error = session()
            .output(&mut shell("echo why >&2; exit 3"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh -c") && error.contains("why") && error.contains('3'),
            "{error}"
        );
    }

    #[test]
    fn lines_arrive_without_their_ends() {
        let mut lines: Vec<String> = Vec::new();
        let outcome = session().stream(&mut shell("printf 'a\\r\\nb'"), None, |l| {
            lines.push(l.into())
        });
        assert!(matches!(outcome, Ok(Outcome::Exited(status)) if status.success()));
        assert_eq!(lines, ["a".to_owned(), "b".to_owned()]);
    }

    #[test]
    fn a_process_left_behind_with_the_pipe_open_does_not_hold_the_task() {
        let mut pid = String::new();
        let outcome =
            session().stream(&mut shell("sleep 1000 & echo $!"), None, |l| pid = l.into());
        assert!(matches!(outcome, Ok(Outcome::Exited(status)) if status.success()));
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }

    #[test]
    fn the_watchdog_ends_a_silent_child_and_its_group() {
        let limit = Watchdog {
            silence: Duration::from_millis(300),
            total: Duration::from_secs(600),
        };
        let outcome = session().stream(&mut shell("sleep 1000; true"), Some(limit), |_| {});
        assert!(matches!(outcome, Ok(Outcome::Hung)));
    }
}
