//! A function that runs: its standard streams, its limits of time and output, its client.

use nfluid_api::types::{FunctionEnd, FunctionLimits};
use nfluid_sandbox::cgroup::{Cgroup, CgroupStats};
use nfluid_sandbox::{Ended as ProcessEnd, InheritedFd, Instance};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// What is read at a time.
const PIECE: usize = 64 << 10;
/// The CPU time is not looked at more often than this.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// A signal that the kernel's memory limit kills with.
const SIGKILL: i32 = 9;

/// The ends of a function's streams, before it is started.
pub struct Streams {
    theirs: (PipeReader, PipeWriter, PipeWriter),
    ours: Running,
}

/// The daemon's side of a function that runs.
pub struct Running {
    input: Option<PipeWriter>,
    left: Vec<u8>,
    written: usize,
    output: Collected,
    errors: Collected,
}

/// What has been read from a stream; nothing more is read from one that is closed.
struct Collected {
    from: Option<PipeReader>,
    bytes: Vec<u8>,
    bytes_max: usize,
}

/// How a function ended, and with what.
pub struct Ended {
    pub end: FunctionEnd,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    /// What its cgroup has used.
    pub used: CgroupStats,
}

impl Streams {
    /// Makes the pipes.
    ///
    /// # Errors
    /// The kernel has no more of them.
    pub fn new(input: Vec<u8>, output_bytes_max: u64) -> io::Result<Self> {
        let (their_input, our_input) = io::pipe()?;
        let (our_output, their_output) = io::pipe()?;
        let (our_errors, their_errors) = io::pipe()?;
        // Each end of a pipe has its own flags: the function's streams block as usual.
        set_nonblocking(our_input.as_fd())?;
        set_nonblocking(our_output.as_fd())?;
        set_nonblocking(our_errors.as_fd())?;
        let bytes_max = usize::try_from(output_bytes_max).unwrap_or(usize::MAX);
        let collected = |from| Collected {
            from: Some(from),
            bytes: Vec::new(),
            bytes_max,
        };
        Ok(Streams {
            theirs: (their_input, their_output, their_errors),
            ours: Running {
                input: Some(our_input),
                left: input,
                written: 0,
                output: collected(our_output),
                errors: collected(our_errors),
            },
        })
    }

    /// What the function inherits.
    pub fn inherited(&self) -> Vec<InheritedFd<'_>> {
        let (input, output, errors) = &self.theirs;
        let fds = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let numbered = (0..).zip(fds);
        numbered
            .map(|(number, fd)| InheritedFd { fd, number })
            .collect()
    }

    /// Closes the function's ends: it has its own now.
    pub fn started(self) -> Running {
        self.ours
    }
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

impl Running {
    /// Writes its input, reads its output, and ends it at a limit or when `client` is hung up.
    ///
    /// # Errors
    /// It could not be watched.
    pub fn until_it_ends(
        mut self,
        process: &Instance,
        cgroup: &Cgroup,
        limits: &FunctionLimits,
        client: &PipeReader,
    ) -> anyhow::Result<Ended> {
        let mut budget = Budget::new(limits);
        let reason = loop {
            if let Err(reason) = budget.check(cgroup) {
                break Some(reason);
            }
            let is_over = self.wait(process, client, budget.next_look())?;
            if self.serve().is_err() {
                break Some(FunctionEnd::Output);
            }
            match is_over {
                Some(Over::Process) => break None,
                // Nobody hears how it ended.
                Some(Over::Client) => break Some(FunctionEnd::Unknown),
                None => {}
            }
        };
        process.kill()?;
        let how = process.wait()?;
        // All its processes are dead: what is in the pipes is all that there will be.
        let is_too_much = self.serve().is_err();
        let used = cgroup.stats()?;
        let end = match reason {
            Some(reason) => reason,
            None if is_too_much => FunctionEnd::Output,
            None => ending(how, used.oom_kills.unwrap_or(0) > 0),
        };
        Ok(Ended {
            end,
            output: self.output.bytes,
            errors: self.errors.bytes,
            used,
        })
    }

    /// Waits until there is something to do, but not for longer than `time`.
    fn wait(
        &self,
        process: &Instance,
        client: &PipeReader,
        time: Duration,
    ) -> io::Result<Option<Over>> {
        let mut polled = vec![
            PollFd::new(process, PollFlags::IN),
            PollFd::new(client, PollFlags::IN),
        ];
        let writes = self.input.iter();
        polled.extend(writes.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        let reads = [&self.output.from, &self.errors.from];
        let reads = reads.into_iter().flatten();
        polled.extend(reads.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |index: usize| {
            let found = polled.get(index);
            found.is_some_and(|polled| !polled.revents().is_empty())
        };
        Ok(match (is_ready(0), is_ready(1)) {
            (true, _) => Some(Over::Process),
            (_, true) => Some(Over::Client),
            _ => None,
        })
    }

    /// Moves what can be moved.
    fn serve(&mut self) -> Result<(), TooMuch> {
        self.write();
        self.output.read()?;
        self.errors.read()
    }

    /// Writes as much of the input as the pipe takes; closes it behind the last byte, or when nobody reads it.
    fn write(&mut self) {
        while let Some(pipe) = &mut self.input {
            let rest = self.left.get(self.written..).unwrap_or_default();
            match (rest.is_empty(), pipe.write(rest)) {
                (false, Ok(count)) => self.written += count,
                (_, Err(error)) if error.kind() == ErrorKind::WouldBlock => return,
                (_, Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                _ => self.input = None,
            }
        }
    }
}

/// What has ended.
enum Over {
    Process,
    Client,
}

/// More than may be read has been written.
struct TooMuch;

impl Collected {
    /// Reads what is there.
    fn read(&mut self) -> Result<(), TooMuch> {
        let mut piece = [0; PIECE];
        while let Some(pipe) = &mut self.from {
            match pipe.read(&mut piece) {
                Ok(0) => self.from = None,
                Ok(count) => {
                    let room = self.bytes_max.saturating_sub(self.bytes.len());
                    let taken = piece.get(..count.min(room)).unwrap_or_default();
                    self.bytes.extend_from_slice(taken);
                    if count > room {
                        self.from = None;
                        return Err(TooMuch);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.from = None,
            }
        }
        Ok(())
    }
}

/// The limits of time.
struct Budget {
    end: Instant,
    cpu_time: Duration,
    /// At the earliest, its CPU time is used up then.
    look_at: Instant,
    /// So much faster than the clock its CPU time can pass.
    cores: f64,
}

impl Budget {
    fn new(limits: &FunctionLimits) -> Self {
        Budget {
            end: Instant::now() + Duration::from_millis(limits.timeout_ms),
            cpu_time: Duration::from_millis(limits.cpu_time_ms),
            look_at: Instant::now(),
            cores: (f64::from(limits.cap_per_mille) / 1000.0).clamp(0.001, 1000.0),
        }
    }

    /// Whether it may go on.
    fn check(&mut self, cgroup: &Cgroup) -> Result<(), FunctionEnd> {
        if Instant::now() >= self.end {
            return Err(FunctionEnd::Timeout);
        }
        if Instant::now() >= self.look_at {
            let used = cgroup.stats().ok().and_then(|stats| stats.cpu_usage_ns);
            let used = Duration::from_nanos(used.unwrap_or(0));
            if used > self.cpu_time {
                return Err(FunctionEnd::CpuTime);
            }
            let left = (self.cpu_time - used).div_f64(self.cores);
            self.look_at = Instant::now() + left.max(LOOK_MIN);
        }
        Ok(())
    }

    /// In how much time, at the earliest, it can have exceeded a limit.
    fn next_look(&self) -> Duration {
        let next = self.look_at.min(self.end);
        next.saturating_duration_since(Instant::now())
    }
}

fn ending(how: ProcessEnd, is_out_of_memory: bool) -> FunctionEnd {
    match how {
        ProcessEnd::Killed(SIGKILL) if is_out_of_memory => FunctionEnd::Memory,
        ProcessEnd::Exited(status) => FunctionEnd::Exited(status as u8),
        ProcessEnd::Killed(signal) => FunctionEnd::Killed(signal as u8),
        ProcessEnd::Unknown => FunctionEnd::Unknown,
    }
}
