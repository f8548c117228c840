//! Instances that leave for another host, and those that arrive from one: what is done to them here. Who of the two hosts has
//! an instance is settled in [`crate::migration`].

use super::platform::no_instance;
use super::wires::failed;
use super::{Host, Shared, image, lock, nf_socket};
use anyhow::{Context, bail, ensure};
use nfluid_api::types::SAVED_BYTES_MAX;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::model::PortRef;
use nfluid_control::plan::is_handed_over;
use nfluid_sandbox::ProcessIdentity;
use nfluid_switch::DropReason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long an instance may take to write its state.
const STATE: Duration = Duration::from_secs(5);
/// After so long without a frame none is waited for any more.
const QUIET: Duration = Duration::from_millis(20);
/// Bytes of frames that are handed on at once.
const PIECE: usize = 64 << 10;
/// How long to try to find room in a ring, which its owner is emptying.
const ROOM: Duration = Duration::from_millis(20);
const ROOM_POLL: Duration = Duration::from_micros(200);
/// Addresses that are told of at a port, at most.
const ADDRESSES_MAX: usize = 256;

/// A port of an instance, counted from 0, and an address that frames were for which came by it.
pub type Address = (u8, [u8; 6]);

/// The way to an instance that stands still. Dropped before [`Way::hold`], it lets the instance go on.
pub struct Way {
    stream: UnixStream,
    /// What was read of a frame that is not whole.
    rest: Vec<u8>,
}

impl Way {
    /// From now on the instance does not go on by itself.
    ///
    /// # Errors
    /// It has ended, or has gone on.
    pub fn hold(&mut self) -> anyhow::Result<()> {
        self.say(b'H')
    }

    /// The instance hands on what waits in its rings: see [`Way::frames`].
    ///
    /// # Errors
    /// It has ended.
    pub fn hand_on(&mut self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(QUIET))?;
        self.say(b'F')
    }

    fn say(&mut self, word: u8) -> anyhow::Result<()> {
        self.stream
            .write_all(&[word])
            .context("the instance has ended")
    }

    /// The next frames, whole ones; nothing after some time without one, or when the instance has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn frames(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; PIECE];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(read) => {
                    self.rest.extend_from_slice(&buffer[..read]);
                    let whole = image::whole_frames(&self.rest);
                    if whole > 0 {
                        return Ok(Some(self.rest.drain(..whole).collect()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Begins to move an instance away: whatever else concerns it is refused until [`settle`].
///
/// # Errors
/// It cannot be moved.
pub fn begin_departure(host: &Shared, name: &str) -> Result<ProcessIdentity, PlatformError> {
    let mut host = lock(host);
    host.check_settled(name)?;
    host.check_awake(name)?;
    let running = host.instances.get(name).ok_or_else(|| no_instance(name))?;
    if !is_handed_over(&running.spec, &running.spec) {
        return Err(PlatformError::new(
            PlatformErrorKind::Unsupported,
            format!(
                "instance {name} cannot be moved: only built-in NFs with one queue per port and no trust group can"
            ),
        )
        .with_remedy("apply it on the other host, and delete it here; its state is lost"));
    }
    let Some(process) = &running.process else {
        return Err(PlatformError::new(
            PlatformErrorKind::Refused,
            format!("instance {name} does not run"),
        )
        .with_remedy(format!("'nfluid restart {name}' starts it")));
    };
    let identity = process.identity().clone();
    host.set_moving(name, true);
    Ok(identity)
}

/// Stops an instance at a batch edge, and returns its state, and the addresses that frames for it were for lately.
///
/// # Errors
/// It goes on.
pub fn stop(host: &Shared, name: &str) -> anyhow::Result<(Way, Vec<u8>, Vec<Address>)> {
    let control = lock(host).control_socket(name);
    let control = control.context("there is no such instance")?;
    let (way, its_way) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .context("making the way to the instance")?;
    let request = json!({ "op": "depart" });
    let mut answer = nf_socket::ask_about(&control, &request, Some(its_way.as_fd()))?;
    drop(its_way);
    let addresses = serde_json::from_value(answer["addresses"].take());
    // Of an older version there are none.
    let mut addresses: Vec<Address> = addresses.unwrap_or_default();
    addresses.truncate(ADDRESSES_MAX);
    let mut stream = UnixStream::from(way);
    stream.set_read_timeout(Some(STATE))?;
    stream.set_write_timeout(Some(STATE))?;
    let mut length = [0; 8];
    stream
        .read_exact(&mut length)
        .context("reading its state")?;
    let length = u64::from_le_bytes(length);
    // What an instance says is not believed: no more than this is read.
    ensure!(
        length <= SAVED_BYTES_MAX as u64,
        "its state has {length} bytes, more than the {SAVED_BYTES_MAX} that can be moved"
    );
    let mut state = Vec::new();
    (&mut stream).take(length).read_to_end(&mut state)?;
    ensure!(state.len() as u64 == length, "its state is not whole");
    let way = Way {
        stream,
        rest: Vec::new(),
    };
    Ok((way, state, addresses))
}

/// Tells an instance that stands still, and whose daemon has died, that it goes on here.
///
/// # Errors
/// It does not listen.
pub fn resume(host: &Shared, name: &str) -> anyhow::Result<()> {
    let control = lock(host).control_socket(name);
    let control = control.context("there is no such instance")?;
    nf_socket::ask(&control, &json!({ "op": "resume" })).map(drop)
}

/// It is settled who has an instance: what concerns it is not refused any more.
pub fn settle(host: &Shared, name: &str) {
    let mut host = lock(host);
    host.set_moving(name, false);
    host.doubtful.remove(name);
    // Should it have ended meanwhile, that was not told.
    host.bury_the_dead(&[name.to_owned()]);
}

/// Notes that it is not settled who has an instance; whatever concerns it is refused.
pub fn unsettle(host: &Shared, name: &str) {
    lock(host).set_moving(name, true);
}

/// How many frames have found an instance's rings full since it was made.
pub fn overflowed(host: &Shared, name: &str) -> u64 {
    let host = lock(host);
    let running = host.instances.get(name);
    let ports = running.iter().flat_map(|running| &running.spec.ports);
    let full = DropReason::RingFull.name();
    let dropped = ports.map(|port| host.counters_of(&PortRef::instance(name, &port.name)).drops);
    dropped.filter_map(|drops| drops.get(full).copied()).sum()
}

/// Notes instances of an earlier daemon that may run elsewhere: one that has to be made again before that is settled gets no
/// frames, and sends none.
pub fn suspect(host: &Shared, names: impl Iterator<Item = String>) {
    lock(host).doubtful.extend(names);
}

/// The process of an instance.
pub fn process_of(host: &Shared, name: &str) -> Option<ProcessIdentity> {
    lock(host).process_of(name)
}

/// Keeps frames from an instance that was just made and that is another host's still, and it from sending any.
///
/// # Errors
/// It has ended already.
pub fn shut(host: &Shared, name: &str) -> anyhow::Result<ProcessIdentity> {
    let mut host = lock(host);
    let identity = host.process_of(name).context("it has ended")?;
    host.set_moving(name, true);
    host.set_ports_up(name, false);
    Ok(identity)
}

/// Opens the ports of an instance that is this host's from now on; what `note` does is done first, and nothing else in between.
///
/// # Errors
/// It is not the process that it was, or `note` fails; the ports stay shut.
pub fn open(
    host: &Shared,
    name: &str,
    process: &ProcessIdentity,
    note: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut host = lock(host);
    if host.process_of(name).as_ref() != Some(process) {
        bail!("it has ended meanwhile");
    }
    note()?;
    host.set_moving(name, false);
    host.set_ports_up(name, true);
    Ok(())
}

/// As [`open`], for one that a daemon has owned that died before it could open them.
pub fn reopen(host: &Shared, name: &str) {
    let host = lock(host);
    if host.check_awake(name).is_ok() && host.process_of(name).is_some() {
        host.set_ports_up(name, true);
    }
}

/// Puts frames into an instance's rings; returns for how many there was room.
///
/// # Errors
/// They are none, or there is no such instance.
pub fn deposit(host: &Shared, name: &str, bytes: &[u8]) -> anyhow::Result<(u64, u64)> {
    let frames = image::frames(bytes)?;
    let mut waiting: Vec<&(u8, Vec<u8>)> = frames.iter().collect();
    let deadline = Instant::now() + ROOM;
    let mut put = 0;
    loop {
        let mut left = Vec::new();
        for port in waiting
            .iter()
            .map(|(port, _)| *port)
            .collect::<BTreeSet<u8>>()
        {
            let own = waiting.iter().filter(|(to, _)| *to == port).copied();
            let own: Vec<&(u8, Vec<u8>)> = own.collect();
            let bytes: Vec<&[u8]> = own.iter().map(|(_, frame)| frame.as_slice()).collect();
            let done = lock(host).deposit(name, port, &bytes)?;
            put += done as u64;
            left.extend(own.into_iter().skip(done));
        }
        waiting = left;
        if waiting.is_empty() || Instant::now() > deadline {
            return Ok((put, waiting.len() as u64));
        }
        std::thread::sleep(ROOM_POLL);
    }
}

/// The addresses that frames were for: whoever sent them has to learn that those are behind this instance now.
#[derive(Default)]
pub struct Addresses {
    told: BTreeSet<Address>,
}

impl Addresses {
    /// Those of the instance's own ports.
    pub fn of_ports(&mut self, host: &Shared, name: &str) -> Vec<Address> {
        let host = lock(host);
        let running = host.instances.get(name);
        let ports = running.iter().flat_map(|running| &running.spec.ports);
        let own = (0..=u8::MAX).zip(ports);
        self.add(own.map(|(number, port)| (number, port.mac.0)))
    }

    /// Those of some frames that are new.
    pub fn new_of(&mut self, bytes: &[u8]) -> Vec<Address> {
        let frames = image::frames(bytes).unwrap_or_default();
        let found = frames.iter();
        self.add(found.filter_map(|(port, frame)| Some((*port, *frame.first_chunk::<6>()?))))
    }

    /// Those of these that are new; a group has no place.
    pub fn add(&mut self, found: impl Iterator<Item = Address>) -> Vec<Address> {
        let mut new = Vec::new();
        for address in found.filter(|(_, mac)| mac[0] & 1 == 0) {
            if self.told.len() < ADDRESSES_MAX && self.told.insert(address) {
                new.push(address);
            }
        }
        new
    }
}

/// Has an instance tell the hosts at its ports that addresses are behind it.
///
/// # Errors
/// It does not answer.
pub fn announce(host: &Shared, name: &str, addresses: &[Address]) -> anyhow::Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let control = lock(host).control_socket(name);
    let control = control.context("there is no such instance")?;
    let request: Value = json!({ "op": "announce", "addresses": addresses });
    nf_socket::ask(&control, &request).map(drop)
}

impl Host {
    pub(super) fn set_moving(&mut self, name: &str, moving: bool) {
        if moving {
            self.moving.insert(name.to_owned());
        } else {
            self.moving.remove(name);
        }
        self.note_change_of(name);
    }

    fn process_of(&self, name: &str) -> Option<ProcessIdentity> {
        let process = self.instances.get(name)?.process.as_ref()?;
        // Asked so, its end is still the supervisor's to find.
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        let at_once = Timespec::default();
        let runs = matches!(poll(&mut ended, Some(&at_once)), Ok(0));
        runs.then(|| process.identity().clone())
    }

    fn deposit(&self, name: &str, port: u8, frames: &[&[u8]]) -> Result<usize, PlatformError> {
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        let maps = running.maps(&self.settings.paths, name).map_err(failed)?;
        let put = self
            .switch
            .deposit((&running.memory, &maps), usize::from(port), frames)
            .map_err(failed)?;
        if put > 0 {
            self.ring(name);
        }
        Ok(put)
    }
}
