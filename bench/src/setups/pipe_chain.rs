//! A byte forwarded through pipes by as many processes as a chain has NFs: the cost of waking them on this machine,
//! without frames, switch or NF.

use crate::roles::{ROLE_ENV, Role, Task};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Processes in a row, all on one core.
pub struct PipeChain {
    core: usize,
    /// Closed first when dropped: the end of input passes through the row.
    input: Option<ChildStdin>,
    output: ChildStdout,
    children: Vec<Child>,
}

impl PipeChain {
    /// Starts `count` processes, at least one, on `core`.
    pub fn start(count: usize, core: usize) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program")?;
        let role = serde_json::to_string(&Role {
            core,
            task: Task::HandOn,
        })?;
        let mut children: Vec<Child> = Vec::with_capacity(count);
        for _ in 0..count {
            let input = children
                .last_mut()
                .and_then(|before| before.stdout.take())
                .map_or_else(Stdio::piped, Stdio::from);
            let mut command = Command::new(&own);
            command.env(ROLE_ENV, &role).stdin(input);
            let child = command.stdout(Stdio::piped()).spawn();
            children.push(child.context("starting a process that hands a byte on")?);
        }
        let input = children.first_mut().and_then(|child| child.stdin.take());
        let output = children.last_mut().and_then(|child| child.stdout.take());
        Ok(PipeChain {
            core,
            input,
            output: output.context("a row needs a process")?,
            children,
        })
    }

    /// Circulates a byte for `time`, on the core of the row; returns the median round trip in microseconds.
    pub fn measure(&mut self, time: Duration) -> anyhow::Result<f64> {
        let before = sched_getaffinity(None).context("reading the cores")?;
        let mut cpus = CpuSet::new();
        cpus.set(self.core);
        sched_setaffinity(None, &cpus).context("pinning to a core")?;
        let times = self.round_trips(time);
        sched_setaffinity(None, &before).context("putting the cores back")?;
        Ok(times?.median())
    }

    fn round_trips(&mut self, time: Duration) -> anyhow::Result<Samples> {
        let input = self.input.as_mut().context("the row's input")?;
        let mut times = Samples::default();
        let start = Instant::now();
        while start.elapsed() < time {
            let sent = Instant::now();
            input.write_all(b"x").context("handing a byte on")?;
            self.output.read_exact(&mut [0]).context("taking it back")?;
            times.push(sent.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    }
}

impl Drop for PipeChain {
    fn drop(&mut self) {
        drop(self.input.take());
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}
