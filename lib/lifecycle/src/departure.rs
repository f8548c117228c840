//! Instances that leave for another host, and the ports of those that have come from one. Which of the two hosts has an instance
//! is settled elsewhere (`lib/migration`).

use crate::running::Running;
use crate::services::{Services, lock};
use crate::supervision::note_exits;
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

/// How long an instance may be silent while it hands something over.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it may take to write its state, all of it; it goes on by itself after twice the time.
const STATE: Duration = Duration::from_secs(10);
/// How long it may take to hand on what waits when it was told that this is the end.
const ENDING: Duration = Duration::from_secs(10);
/// After so long without a frame none is waited for any more.
const QUIET: Duration = Duration::from_millis(20);
/// Bytes of frames that are handed on at once.
const PIECE: usize = 64 << 10;

/// The way to an instance that stands still. Dropped before [`Way::hold`], it lets the instance go on.
pub struct Way {
    stream: UnixStream,
    /// What was read of a frame that is not whole.
    rest: Vec<u8>,
    /// Nothing is taken any more after this time.
    ends: Option<Instant>,
}

impl Way {
    fn new(stream: UnixStream) -> Self {
        Way {
            stream,
            rest: Vec::new(),
            ends: None,
        }
    }

    /// From now on the instance does not go on by itself.
    ///
    /// # Errors
    /// It has ended, or has gone on.
    pub fn hold(&mut self) -> anyhow::Result<()> {
        self.say(b'H')
    }

    /// The instance hands on what waits, and what still comes: see [`Way::handed`].
    ///
    /// # Errors
    /// It has ended.
    pub fn hand_on(&mut self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(QUIET))?;
        self.say(b'F')
    }

    /// The instance hands on what waits now, and no more.
    ///
    /// # Errors
    /// It has ended.
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(SILENCE))?;
        self.ends = Some(Instant::now() + ENDING);
        self.say(b'E')
    }

    fn say(&mut self, word: u8) -> anyhow::Result<()> {
        self.stream
            .write_all(&[word])
            .context("the instance has ended")
    }

    /// What the instance hands on next.
    ///
    /// # Errors
    /// What it writes is no frame, it finds no end, or the kernel's.
    pub fn handed(&mut self) -> anyhow::Result<Handed> {
        loop {
            let is_over = self.ends.is_some_and(|ends| Instant::now() > ends);
            ensure!(
                !is_over,
                "it goes on although it was told that this is the end"
            );
            let whole = whole_frames(&self.rest);
            if whole > 0 {
                return Ok(Handed::Frames(self.rest.drain(..whole).collect()));
            }
            if self.rest.starts_with(&MARK) {
                self.rest.drain(..MARK.len());
                return Ok(Handed::AllThatWaited);
            }
            // It would be waited for, and kept, without an end.
            check_beginning(&self.rest)?;
            let before = self.rest.len();
            self.rest.resize(before + PIECE, 0);
            let read = self.stream.read(&mut self.rest[before..]);
            self.rest.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(Handed::End),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Handed::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What an instance that stands still hands on.
#[derive(Debug, PartialEq, Eq)]
pub enum Handed {
    /// Whole frames, as it writes them.
    Frames(Vec<u8>),
    /// No more than was handed on by now has waited. An instance of an older version does not say so.
    AllThatWaited,
    /// Nothing for a while.
    Nothing,
    /// Nothing will come any more.
    End,
}

/// Begins to move an instance away: whatever else concerns it is refused until [`settle`].
///
/// # Errors
/// It cannot be moved.
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
    set_moving(host, name, true);
    Ok(identity)
}

/// Stops an instance at a batch edge, and returns its state, and the addresses that frames for it were for lately.
///
/// # Errors
/// It goes on.
pub fn stop<C: Services>(
    host: &Mutex<C>,
    name: &str,
) -> anyhow::Result<(Way, Vec<u8>, Vec<Address>)> {
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
    // It is hostile: it may write slowly, and without an end.
    let state = read_state(daemon::ByDeadline::new(&stream, STATE))?;
    Ok((Way::new(stream), state, addresses))
}

/// Tells an instance that stands still, and whose daemon has died, that it goes on here.
///
/// # Errors
/// It does not listen.
pub fn resume<C: Services>(host: &Mutex<C>, name: &str) -> anyhow::Result<()> {
    let control = lock(host).instances().control(name);
    let control = control.context("there is no such instance")?;
    daemon::ask(&control, &Request::Resume).map(drop)
}

/// Frames that an instance that stands still for its move has, in its rings or taken out of them: they end with it.
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

/// It is settled who has an instance: what concerns it is not refused any more.
pub fn settle<C: Services>(host: &Mutex<C>, name: &str) {
    let host = &mut *lock(host);
    set_moving(host, name, false);
    host.instances_mut().doubtful.remove(name);
    // Should it have ended meanwhile, that was not reported.
    note_exits(host, &[name.to_owned()]);
}

/// Notes that it is not settled who has an instance; whatever concerns it is refused.
pub fn unsettle<C: Services>(host: &Mutex<C>, name: &str) {
    set_moving(&mut *lock(host), name, true);
}

/// How many frames have found an instance's rings full since it was made.
pub fn overflowed<C: Services>(host: &Mutex<C>, name: &str) -> u64 {
    let host = lock(host);
    let running = host.instances().get(name);
    running.map_or(0, |running| running.workload.overflowed())
}

/// Notes instances of an earlier daemon that may run elsewhere: one that has to be made again before that is settled gets no
/// frames, and sends none.
pub fn suspect<C: Services>(host: &Mutex<C>, names: impl Iterator<Item = String>) {
    lock(host).instances_mut().doubtful.extend(names);
}

/// The process of an instance, while it runs.
pub fn process_of<C: Services>(host: &Mutex<C>, name: &str) -> Option<ProcessIdentity> {
    lock(host).instances().get(name)?.workload.identity()
}

/// Keeps frames from an instance that was just made and that is another host's still, and it from sending any.
///
/// # Errors
/// It has ended already.
pub fn shut<C: Services>(host: &Mutex<C>, name: &str) -> anyhow::Result<ProcessIdentity> {
    let host = &mut *lock(host);
    let (identity, workload) = process(host, name).context("it has ended")?;
    workload.set_ports_up(false);
    set_moving(host, name, true);
    Ok(identity)
}

/// Opens the ports of an instance that is this host's from now on; what `note` does is done first, and nothing else in between.
///
/// # Errors
/// It is not the process that it was, or `note` fails; the ports stay shut.
pub fn open<C: Services>(
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
    set_moving(host, name, false);
    Ok(())
}

/// As [`open`], for one that a daemon has owned that died before it could open them.
pub fn reopen<C: Services>(host: &Mutex<C>, name: &str) {
    let host = &*lock(host);
    if host.instances().check_awake(name).is_ok()
        && let Some((_, workload)) = process(host, name)
    {
        workload.set_ports_up(true);
    }
}

/// An instance that runs, and its process.
fn process<'a>(
    services: &'a dyn Services,
    name: &str,
) -> Option<(ProcessIdentity, &'a dyn Workload)> {
    let workload = &*services.instances().get(name)?.workload;
    Some((workload.identity()?, workload))
}

fn set_moving(services: &mut dyn Services, name: &str, moving: bool) {
    let instances = services.instances_mut();
    if moving {
        instances.moving.insert(name.to_owned());
    } else {
        instances.moving.remove(name);
    }
    services.events().note_change_of(name);
}

/// Bytes that frames may take in an instance's memory while it stands still; absent: unknown, as many as it takes at most.
fn room_for_frames(running: &Running) -> Option<u64> {
    let used = running.workload.usage().memory_bytes?;
    Some(room_within(running.spec.resources.memory.0, used))
}

/// Of what an instance may still use of its memory, so much frames may take which come while it stands still: they are copied when
/// they become more, and its rings and what it does are to have something too.
fn room_within(limit: u64, used: u64) -> u64 {
    limit.saturating_sub(used) / 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_api::types::SAVED_BYTES_MAX;
    use std::thread;

    fn way() -> (Way, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Way::new(ours), theirs)
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
            Handed::Frames(both),
            Handed::AllThatWaited,
            Handed::Frames(frame),
            Handed::End,
        ] {
            assert_eq!(way.handed().expect("frames"), expected);
        }
    }

    #[test]
    fn what_is_no_frame_is_not_collected() {
        for head in [[1, 0, 0], [0, 1, 0], [0, 0xff, 0xff]] {
            let (mut way, mut instance) = way();
            let writer = thread::spawn(move || {
                // Until nobody reads.
                let mut bytes = head.to_vec();
                while instance.write_all(&bytes).is_ok() {
                    bytes = vec![0; PIECE];
                }
            });
            way.handed().expect_err("no frame");
            assert!(way.rest.len() <= PIECE, "{} bytes", way.rest.len());
            drop(way);
            writer.join().expect("ended");
        }
    }

    #[test]
    fn who_goes_on_after_the_end_is_not_listened_to() {
        let (mut way, mut instance) = way();
        let writer = thread::spawn(move || {
            let frame = [&[1, 60, 0][..], &[7; 60]].concat();
            while instance.write_all(&frame).is_ok() {}
        });
        way.ends = Some(Instant::now());
        thread::sleep(Duration::from_millis(1));
        way.handed().expect_err("it was the end");
        drop(way);
        writer.join().expect("ended");
    }

    #[test]
    fn a_state_that_drips_is_not_waited_for() {
        let (ours, mut instance) = UnixStream::pair().expect("a pair");
        let writer = thread::spawn(move || {
            let length = (SAVED_BYTES_MAX as u64).to_le_bytes();
            let mut bytes = length.to_vec();
            // Each byte comes long before the patience with one is over.
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
