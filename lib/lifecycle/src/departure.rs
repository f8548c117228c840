//! Instances that leave for another host, and the ports of instances that have arrived from one. `lib/migration`
//! decides which of the two hosts has an instance.

use crate::running::Running;
use crate::services::{Services, lock};
use crate::supervision::note_exits;
use crate::table::Way;
use crate::workload::Workload;
use anyhow::{Context, bail, ensure};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::plan::is_handed_over;
use nfluid_formats::answer::{read_state, take_addresses};
use nfluid_formats::frames::{MARK, check_beginning, whole_frames};
use nfluid_formats::message::{ADDRESSES_MAX, Address};
use nfluid_protocol::{Request, daemon};
use nfluid_sandbox::ProcessIdentity;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time for which the instance may be silent while it forwards frames.
const SILENCE: Duration = Duration::from_secs(5);
/// Time in which the instance has to write its whole state. The instance goes on by itself after twice this time.
const STATE: Duration = Duration::from_secs(10);
/// Time in which the instance has to forward the frames that wait, after it was told to end.
const ENDING: Duration = Duration::from_secs(10);
/// After this time without a frame, [`DepartureStream::next_output`] stops waiting.
const QUIET: Duration = Duration::from_millis(20);
/// Size in bytes of one read of forwarded frames.
const PIECE: usize = 64 << 10;

/// The connection to an instance that stands still for a move. Dropped before [`DepartureStream::hold`], the
/// connection lets the instance go on.
pub struct DepartureStream {
    stream: UnixStream,
    /// The received part of an incomplete frame.
    rest: Vec<u8>,
    /// The time after which no frame is accepted any more.
    ends: Option<Instant>,
}

impl DepartureStream {
    fn new(stream: UnixStream) -> Self {
        DepartureStream {
            stream,
            rest: Vec::new(),
            ends: None,
        }
    }

    /// Keeps the instance from going on by itself.
    ///
    /// # Errors
    /// The instance has ended, or has gone on.
    pub fn hold(&mut self) -> anyhow::Result<()> {
        self.send(b'H')
    }

    /// Makes the instance forward the frames that wait, and those that still come: see [`DepartureStream::next_output`].
    ///
    /// # Errors
    /// The instance has ended.
    pub fn forward(&mut self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(QUIET))?;
        self.send(b'F')
    }

    /// Makes the instance forward the frames that wait now, and then end.
    ///
    /// # Errors
    /// The instance has ended.
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(SILENCE))?;
        self.ends = Some(Instant::now() + ENDING);
        self.send(b'E')
    }

    fn send(&mut self, word: u8) -> anyhow::Result<()> {
        self.stream
            .write_all(&[word])
            .context("the instance has ended")
    }

    /// Returns what the instance forwards next.
    ///
    /// # Errors
    /// The bytes are not frames, the instance exceeds its time to end, or the kernel reports an error.
    pub fn next_output(&mut self) -> anyhow::Result<Output> {
        loop {
            let is_over = self.ends.is_some_and(|ends| Instant::now() > ends);
            ensure!(!is_over, "the instance goes on although it was told to end");
            let whole = whole_frames(&self.rest);
            if whole > 0 {
                return Ok(Output::Frames(self.rest.drain(..whole).collect()));
            }
            if self.rest.starts_with(&MARK) {
                self.rest.drain(..MARK.len());
                return Ok(Output::AllThatWaited);
            }
            // An invalid head would make the daemon wait for bytes, and keep them, without a bound.
            check_beginning(&self.rest)?;
            let before = self.rest.len();
            self.rest.resize(before + PIECE, 0);
            let read = self.stream.read(&mut self.rest[before..]);
            self.rest.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(Output::End),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Output::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The output of a stopped instance.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Whole frames, in the format in which the instance writes them.
    Frames(Vec<u8>),
    /// All frames that waited when forwarding began have been forwarded. An instance of an older version does not
    /// report this.
    AllThatWaited,
    /// No frame for a while.
    Nothing,
    /// No frame will come any more.
    End,
}

/// Begins to move an instance away. Other operations on the instance are refused until [`settle`].
///
/// # Errors
/// The instance cannot be moved.
pub fn begin_departure<C: Services>(
    host: &Mutex<C>,
    name: &str,
) -> Result<ProcessIdentity, PlatformError> {
    let host = &mut *lock(host);
    host.instances().check_settled(name)?;
    host.instances().check_awake(name)?;
    let running = host.instances().find(name)?;
    if !is_handed_over(&running.spec, &running.spec) {
        return Err(PlatformError::new(
            PlatformErrorKind::Unsupported,
            format!(
                "instance {name} cannot be moved: only built-in NFs with one queue per port and no trust group can"
            ),
        )
        .with_remedy("apply it on the other host, and delete it here; its state is lost"));
    }
    let Some(identity) = running.workload.identity() else {
        return Err(PlatformError::new(
            PlatformErrorKind::Refused,
            format!("instance {name} does not run"),
        )
        .with_remedy(format!("'nfluid restart {name}' starts it")));
    };
    set_moving(host, name, Some(Way::Away));
    Ok(identity)
}

/// Stops an instance at a batch edge. Returns its state, and the destination addresses of recent frames for the
/// instance.
///
/// # Errors
/// The instance goes on.
pub fn stop<C: Services>(
    host: &Mutex<C>,
    name: &str,
) -> anyhow::Result<(DepartureStream, Vec<u8>, Vec<Address>)> {
    let (control, room) = {
        let host = lock(host);
        let running = host.instances().get(name);
        let room = running.and_then(room_for_frames);
        (host.instances().control(name), room)
    };
    let control = control.context("there is no such instance")?;
    let (way, its_way) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .context("making the way to the instance")?;
    let request = Request::Depart { room };
    let mut answer = daemon::ask_about(&control, &request, Some(its_way.as_fd()))?;
    drop(its_way);
    let addresses = take_addresses(&mut answer, ADDRESSES_MAX);
    let stream = UnixStream::from(way);
    stream.set_write_timeout(Some(SILENCE))?;
    // The instance is hostile: it may write slowly, and without an end.
    let state = read_state(daemon::ByDeadline::new(&stream, STATE))?;
    Ok((DepartureStream::new(stream), state, addresses))
}

/// Lets an instance go on here that stands still and whose daemon has died.
///
/// # Errors
/// The instance does not listen.
pub fn resume<C: Services>(host: &Mutex<C>, name: &str) -> anyhow::Result<()> {
    let control = lock(host).instances().control(name);
    let control = control.context("there is no such instance")?;
    daemon::ask(&control, &Request::Resume).map(drop)
}

/// Returns the number of frames that an instance holds while it stands still for a move, in its rings or in its
/// memory. The frames are lost when the instance ends.
pub fn frames_left<C: Services>(host: &Mutex<C>, name: &str) -> u64 {
    let (control, in_rings) = {
        let host = lock(host);
        let running = host.instances().get(name);
        let in_rings = running.map_or(0, |running| running.workload.waiting());
        (host.instances().control(name), in_rings)
    };
    let asked = control.map(|control| daemon::ask(&control, &Request::Metrics));
    let told = asked.and_then(|asked| asked.ok()?["departing"]["waiting"].as_u64());
    told.unwrap_or(0).saturating_add(in_rings)
}

/// Notes that one host has the instance for certain: operations on the instance are no longer refused.
pub fn settle<C: Services>(host: &Mutex<C>, name: &str) {
    let host = &mut *lock(host);
    set_moving(host, name, None);
    host.instances_mut().doubtful.remove(name);
    // An end of the process during the move was not reported.
    note_exits(host, &[name.to_owned()]);
}

/// Notes that either host may have the instance: operations on the instance are refused.
pub fn unsettle<C: Services>(host: &Mutex<C>, name: &str) {
    set_moving(&mut *lock(host), name, Some(Way::Unsettled));
}

/// Notes that another host has the instance: operations on the instance are refused, but for its removal.
pub fn let_go<C: Services>(host: &Mutex<C>, name: &str) {
    set_moving(&mut *lock(host), name, Some(Way::Gone));
}

/// Returns how many frames were dropped since the instance was created because its rings were full.
pub fn frames_dropped<C: Services>(host: &Mutex<C>, name: &str) -> u64 {
    let host = lock(host);
    let running = host.instances().get(name);
    running.map_or(0, |running| running.workload.overflowed())
}

/// Notes instances of an earlier daemon that may run elsewhere. If one of them has to be created again before its
/// host is certain, it gets no frames and sends none.
pub fn suspect<C: Services>(host: &Mutex<C>, names: impl Iterator<Item = String>) {
    lock(host).instances_mut().doubtful.extend(names);
}

/// Returns the process of an instance, if the process runs.
pub fn process_of<C: Services>(host: &Mutex<C>, name: &str) -> Option<ProcessIdentity> {
    lock(host).instances().get(name)?.workload.identity()
}

/// Closes the ports of an instance that was just created and that another host still owns: no frame gets to the
/// instance, and the instance sends none.
///
/// # Errors
/// The instance has ended already.
pub fn close_ports<C: Services>(host: &Mutex<C>, name: &str) -> anyhow::Result<ProcessIdentity> {
    let host = &mut *lock(host);
    let (identity, workload) = process(host, name).context("it has ended")?;
    workload.set_ports_up(false);
    set_moving(host, name, Some(Way::Here));
    Ok(identity)
}

/// Opens the ports of an instance that this host owns from now on. Calls `note` first, with nothing in between.
///
/// # Errors
/// The instance has another process than before, or `note` fails. The ports stay closed.
pub fn open_ports<C: Services>(
    host: &Mutex<C>,
    name: &str,
    expected: &ProcessIdentity,
    note: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let host = &mut *lock(host);
    match process(host, name) {
        Some((identity, workload)) if identity == *expected => {
            note()?;
            workload.set_ports_up(true);
        }
        _ => bail!("it has ended meanwhile"),
    }
    set_moving(host, name, None);
    Ok(())
}

/// Does what [`open_ports`] does, for an instance whose daemon died before it could open the ports.
pub fn reopen_ports<C: Services>(host: &Mutex<C>, name: &str) {
    let host = &*lock(host);
    if host.instances().check_awake(name).is_ok()
        && let Some((_, workload)) = process(host, name)
    {
        workload.set_ports_up(true);
    }
}

/// Returns a running instance and its process.
fn process<'a>(
    services: &'a dyn Services,
    name: &str,
) -> Option<(ProcessIdentity, &'a dyn Workload)> {
    let workload = &*services.instances().get(name)?.workload;
    Some((workload.identity()?, workload))
}

fn set_moving(services: &mut dyn Services, name: &str, way: Option<Way>) {
    let moving = &mut services.instances_mut().moving;
    match way {
        Some(way) => drop(moving.insert(name.to_owned(), way)),
        None => drop(moving.remove(name)),
    }
    services.events().note_change_of(name);
}

/// Returns the bytes that frames may take in an instance's memory while the instance stands still. `None`: unknown,
/// the instance uses its own maximum.
fn room_for_frames(running: &Running) -> Option<u64> {
    let used = running.workload.usage().memory_bytes?;
    Some(room_within(running.spec.resources.memory.0, used))
}

/// Returns the part of an instance's free memory that frames may take while the instance stands still. The buffer is
/// copied when it grows, and the rings and the instance's work need memory too.
fn room_within(limit: u64, used: u64) -> u64 {
    limit.saturating_sub(used) / 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_api::types::SAVED_BYTES_MAX;
    use std::thread;

    fn way() -> (DepartureStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (DepartureStream::new(ours), theirs)
    }

    #[test]
    fn frames_and_the_mark_are_told_apart() {
        let (mut way, mut instance) = way();
        let frame = [&[1, 60, 0][..], &[7; 60]].concat();
        let all = [frame.as_slice(), &frame, &MARK, &frame].concat();
        instance.write_all(&all).expect("room");
        drop(instance);
        let both = [frame.as_slice(), &frame].concat();
        for expected in [
            Output::Frames(both),
            Output::AllThatWaited,
            Output::Frames(frame),
            Output::End,
        ] {
            assert_eq!(way.next_output().expect("frames"), expected);
        }
    }

    #[test]
    fn what_is_no_frame_is_not_collected() {
        for head in [[1, 0, 0], [0, 1, 0], [0, 0xff, 0xff]] {
            let (mut way, mut instance) = way();
            let writer = thread::spawn(move || {
                // Ends when the other end is closed.
                let mut bytes = head.to_vec();
                while instance.write_all(&bytes).is_ok() {
                    bytes = vec![0; PIECE];
                }
            });
            way.next_output().expect_err("no frame");
            assert!(way.rest.len() <= PIECE, "{} bytes", way.rest.len());
            drop(way);
            writer.join().expect("ended");
        }
    }

    #[test]
    fn output_after_the_end_is_ignored() {
        let (mut way, mut instance) = way();
        let writer = thread::spawn(move || {
            let frame = [&[1, 60, 0][..], &[7; 60]].concat();
            while instance.write_all(&frame).is_ok() {}
        });
        way.ends = Some(Instant::now());
        thread::sleep(Duration::from_millis(1));
        way.next_output().expect_err("the end was announced");
        drop(way);
        writer.join().expect("ended");
    }

    #[test]
    fn a_state_that_drips_is_not_waited_for() {
        let (ours, mut instance) = UnixStream::pair().expect("a pair");
        let writer = thread::spawn(move || {
            let length = (SAVED_BYTES_MAX as u64).to_le_bytes();
            let mut bytes = length.to_vec();
            // Each byte comes long before the time limit for a single read.
            while instance.write_all(&bytes).is_ok() {
                bytes = vec![0];
                thread::sleep(Duration::from_millis(1));
            }
        });
        let patience = Duration::from_millis(100);
        let read = read_state(daemon::ByDeadline::new(&ours, patience));
        read.expect_err("it takes too long");
        drop(ours);
        writer.join().expect("ended");
    }

    // promise: 5.35
    #[test]
    fn frames_have_a_part_of_what_is_left() {
        assert_eq!(room_within(16 << 20, 4 << 20), 4 << 20);
        assert_eq!(room_within(2 << 20, 2 << 20), 0);
        assert_eq!(room_within(1 << 20, 2 << 20), 0);
    }
}
