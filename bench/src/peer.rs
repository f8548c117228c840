//! Starting the processes of an experiment and running them together.

use crate::host::cpu;
use crate::roles::work::{Outcome, READY};
use crate::roles::{ROLE_ENV, Role};
use anyhow::Context;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Time that a process has to end after its input was closed; then it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// A process of an experiment. Dropping ends the process.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts this program again as `role`, in `instance`.
    pub fn start(instance: &ScratchInstance, role: &Role) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(own);
        role_of(&mut command, role)?;
        Peer::of(cpu::on(role.core, || instance.spawn(&mut command))??)
    }

    /// Starts this program again as `role`, which hosts the I/O threads of `instances`.
    pub fn start_io(
        scratch: &Scratch,
        instances: &[&ScratchInstance],
        role: &Role,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(own);
        role_of(&mut command, role)?;
        let mut peer = Peer::of(nfluid_testbed::io_process::spawn(
            scratch,
            instances,
            &mut command,
        )?)?;
        peer.await_ready()?;
        Ok(peer)
    }

    /// Starts this program again as `role`, in `instance` and in a network namespace.
    pub fn start_in(
        instance: &ScratchInstance,
        namespace: &Namespace,
        role: &Role,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program")?;
        let mut command = namespace.command(own);
        role_of(&mut command, role)?;
        Peer::of(cpu::on(role.core, || instance.spawn(&mut command))??)
    }

    /// Starts this program again as `role`, in a network namespace, without an instance.
    pub fn start_within(namespace: &Namespace, role: &Role) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program")?;
        let mut command = namespace.command(own);
        role_of(&mut command, role)?;
        let mut peer = Peer::of(command.spawn().context("starting a role")?)?;
        peer.await_ready()?;
        Ok(peer)
    }

    /// Starts another program that speaks the protocol of roles, and does not wait until the program is ready.
    pub fn start_program(command: &mut Command) -> anyhow::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Peer::of(
            command
                .spawn()
                .with_context(|| format!("starting {program}"))?,
        )
    }

    /// As [`Peer::start_program`], as the program of an instance.
    pub fn start_program_in(
        instance: &ScratchInstance,
        command: &mut Command,
    ) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Peer::of(instance.spawn(command)?)
    }

    fn of(mut child: Child) -> anyhow::Result<Self> {
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("standard output of a role")?);
        Ok(Peer {
            child,
            input,
            output,
        })
    }

    /// Waits until the process prints that it is ready; earlier lines are output of its libraries.
    pub fn await_ready(&mut self) -> anyhow::Result<()> {
        loop {
            let line = self.line().context("a role does not get ready")?;
            if line.trim() == READY {
                return Ok(());
            }
        }
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process until [`Peer::resume`]; a stopped process uses no CPU time.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues a stopped process.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills the process without waiting for its end; works for a stopped process, too.
    pub fn kill(&mut self) {
        // An error means that the process has ended.
        let _ = self.child.kill();
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal).context("signalling a role")
    }

    /// Returns true while the process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Starts a run of `seconds`, with frames of length `len` if the program takes a length.
    pub fn start_run(&mut self, seconds: f64, len: Option<usize>) -> anyhow::Result<()> {
        match len {
            Some(len) => self.send_line(&format!("{seconds} {len}")),
            None => self.send_line(&seconds.to_string()),
        }
    }

    /// Starts a run in which `seconds` count from `from_ns` on, by the monotonic clock. The run begins at once, and
    /// continues for `after`.
    pub fn start_span(
        &mut self,
        seconds: f64,
        from_ns: u64,
        after: Duration,
    ) -> anyhow::Result<()> {
        self.send_line(&format!("{seconds} {from_ns} {}", after.as_nanos()))
    }

    /// Sends a line to the role.
    pub fn send_line(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("standard input of a role")?;
        writeln!(input, "{line}").context("telling a role what to do (has it ended?)")
    }

    /// Starts a run with `window` frames in flight, in a program that takes this number.
    pub fn start_window(&mut self, seconds: f64, len: usize, window: u32) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("standard input of a role")?;
        writeln!(input, "{seconds} {len} {window}").context("starting a role (has it ended?)")
    }

    /// Waits for the end of the run, and returns its outcome.
    pub fn outcome(&mut self) -> anyhow::Result<Outcome> {
        let line = self.line();
        interrupt::check()?;
        serde_json::from_str(&line?).context("outcome of a role")
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        anyhow::ensure!(read.context("hearing a role")? > 0, "a role has ended");
        Ok(line)
    }
}

fn role_of(command: &mut Command, role: &Role) -> anyhow::Result<()> {
    command
        .env(ROLE_ENV, serde_json::to_string(role)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Ok(())
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take());
        let start = Instant::now();
        while self.is_running() && start.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs all peers together for `seconds`, and returns their outcomes in the same order.
pub fn run_together(peers: &mut [Peer], seconds: f64) -> anyhow::Result<Vec<Outcome>> {
    run_with(peers, seconds, None)
}

/// Runs all peers together for `seconds`, with frames of `len` bytes.
pub fn run_with(
    peers: &mut [Peer],
    seconds: f64,
    len: Option<usize>,
) -> anyhow::Result<Vec<Outcome>> {
    interrupt::check()?;
    for peer in peers.iter_mut() {
        peer.start_run(seconds, len)?;
    }
    peers.iter_mut().map(Peer::outcome).collect()
}
