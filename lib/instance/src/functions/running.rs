//! A running function: its standard streams, its limits of time and output, its client.

use nfluid_api::types::{FunctionEnd, FunctionLimits};
use nfluid_sandbox::cgroup::{Cgroup, CgroupStats};
use nfluid_sandbox::{Ended as ProcessEnd, InheritedFd, Instance};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Size of one read.
const PIECE: usize = 64 << 10;
/// Shortest interval between two readings of the CPU time.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// The signal with which the kernel's memory limit kills.
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

/// The bytes read from a stream. A closed stream is not read any more.
struct Collected {
    from: Option<PipeReader>,
    bytes: Vec<u8>,
    bytes_max: usize,
}

/// The end of a function and its output.
pub struct Ended {
    pub end: FunctionEnd,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    /// The resources that its cgroup has used.
    pub used: CgroupStats,
}

impl Streams {
    /// Creates the pipes.
    ///
    /// # Errors
    /// The kernel has no pipe left.
    pub fn new(input: Vec<u8>, output_bytes_max: u64) -> io::Result<Self> {
        let (their_input, our_input) = io::pipe()?;
        let (our_output, their_output) = io::pipe()?;
        let (our_errors, their_errors) = io::pipe()?;
        // Each end of a pipe has its own flags: the function's ends stay blocking.
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

    /// Returns the descriptors that the function inherits.
    pub fn inherited(&self) -> Vec<InheritedFd<'_>> {
        let (input, output, errors) = &self.theirs;
        let fds = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let numbered = (0..).zip(fds);
        numbered
            .map(|(number, fd)| InheritedFd { fd, number })
            .collect()
    }

    /// Closes the function's ends, which the function has inherited.
    pub fn started(self) -> Running {
        self.ours
    }
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

impl Running {
    /// Writes the input, reads the output, and ends the function at a limit or when `client` hangs up.
    ///
    /// # Errors
    /// The function could not be watched.
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
                // The client is gone, so that no one reads how the function ended.
                Some(Over::Client) => break Some(FunctionEnd::Unknown),
                None => {}
            }
        };
        process.kill()?;
        let how = process.wait()?;
        // All its processes are dead, so the pipes contain the rest of the output.
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

    /// Waits for an event, at most for `time`.
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

    /// Moves as many bytes as possible.
    fn serve(&mut self) -> Result<(), TooMuch> {
        self.write();
        self.output.read()?;
        self.errors.read()
    }

    /// Writes as much of the input as the pipe takes. Closes the pipe behind the last byte, or when the reader is
    /// gone.
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

/// The event that ends the function.
enum Over {
    Process,
    Client,
}

/// The function has written more than the limit.
struct TooMuch;

impl Collected {
    /// Reads the available bytes.
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
    /// Earliest time at which its CPU time can be used up.
    look_at: Instant,
    /// Factor by which its CPU time can pass faster than the clock.
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

    /// Checks the limits of time.
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

    /// Returns the earliest time after which a limit can be exceeded.
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
