//! Starting the processes of an experiment and running them together.

use crate::roles::{Outcome, ROLE_ENV, Role};
use anyhow::Context;
use nfluid_switch::scratch::ScratchInstance;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

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
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command
            .env(ROLE_ENV, serde_json::to_string(role)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = instance.spawn(&mut command)?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("standard output of a role")?);
        Ok(Peer {
            child,
            input,
            output,
        })
    }

    fn tell(&mut self, seconds: f64) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("standard input of a role")?;
        writeln!(input, "{seconds}").context("starting a role (has it ended?)")
    }

    fn hear(&mut self) -> anyhow::Result<Outcome> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .context("outcome of a role")?;
        serde_json::from_str(&line).context("outcome of a role (has it ended?)")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Runs all peers together for `seconds`; outcomes in the same order.
pub fn run_together(peers: &mut [Peer], seconds: f64) -> anyhow::Result<Vec<Outcome>> {
    for peer in peers.iter_mut() {
        peer.tell(seconds)?;
    }
    peers.iter_mut().map(Peer::hear).collect()
}
