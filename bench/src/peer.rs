//! Starting the processes of an experiment and running them together.

use crate::host::interrupt;
use crate::host::namespace::Namespace;
use crate::roles::{Outcome, READY, ROLE_ENV, Role};
use anyhow::Context;
use nfluid_switch::scratch::ScratchInstance;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that was told to end and has not by then is killed.
const GRACE: Duration = Duration::from_secs(3);

/// A process of an experiment; ended when dropped.
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
        Peer::of(instance.spawn(&mut command)?)
    }

    /// Starts this program again as `role`, in a network namespace.
    pub fn start_within(namespace: &Namespace, role: &Role) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program")?;
        let mut command = namespace.command(own);
        role_of(&mut command, role)?;
        let mut peer = Peer::of(command.spawn().context("starting a role")?)?;
        peer.await_ready()?;
        Ok(peer)
    }

    /// Starts another program that understands what a role does; it is not yet ready.
    pub fn start_program(command: &mut Command) -> anyhow::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Peer::of(
            command
                .spawn()
                .with_context(|| format!("starting {program}"))?,
        )
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

    /// Waits until it says that it is ready; lines before are of its libraries.
    pub fn await_ready(&mut self) -> anyhow::Result<()> {
        loop {
            let line = self.line().context("a role does not get ready")?;
            if line.trim() == READY {
                return Ok(());
            }
        }
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Starts a run of so many seconds, of frames of another length if the program knows that.
    pub fn tell(&mut self, seconds: f64, len: Option<usize>) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("standard input of a role")?;
        match len {
            Some(len) => writeln!(input, "{seconds} {len}"),
            None => writeln!(input, "{seconds}"),
        }
        .context("starting a role (has it ended?)")
    }

    /// Waits for the end of the run.
    pub fn hear(&mut self) -> anyhow::Result<Outcome> {
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
        while self.lives() && start.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs all peers together for `seconds`; outcomes in the same order.
pub fn run_together(peers: &mut [Peer], seconds: f64) -> anyhow::Result<Vec<Outcome>> {
    run_with(peers, seconds, None)
}

/// The same with frames of `len` bytes.
pub fn run_with(
    peers: &mut [Peer],
    seconds: f64,
    len: Option<usize>,
) -> anyhow::Result<Vec<Outcome>> {
    interrupt::check()?;
    for peer in peers.iter_mut() {
        peer.tell(seconds, len)?;
    }
    peers.iter_mut().map(Peer::hear).collect()
}
