//! Leaving for another host: the NF stands still at a batch edge while its daemon gives its state to another one.
//!
//! A stream socket leads to the daemon. The instance writes the length of its image (8 bytes, little-endian) and the image;
//! then it waits for words of one byte:
//!
//! | word | meaning |
//! |---|---|
//! | `H` | held: from now on it does not go on by itself |
//! | `F` | another has its place: what waits in the rings, and what still comes, is written to the socket: port (1 byte), length (2, little-endian), bytes |
//! | `G` | it goes on here |
//!
//! **Before `H` a closed socket lets it go on, after `H` it does not:** a daemon that dies before it has told another to go on
//! has moved nothing; of one that dies later, nobody here knows what it has told. Then `resume` on the control socket says so,
//! or the process is ended.

use crate::succession::transmit;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long it waits for `H`, as nobody serves the ports meanwhile. Longer than the daemon waits for the other host: that one
/// decides.
const OFFERED: Duration = Duration::from_secs(20);
/// How long it sleeps between two looks at its rings, while it hands on what comes.
const LOOK: Duration = Duration::from_micros(500);
/// How long it sleeps between two looks otherwise; it is woken by what it waits for.
const IDLE: Duration = Duration::from_secs(1);
/// Reverse ARP: what another host says of itself when it has taken over an address. Not to be handed on: it is where that
/// comes from.
const RARP: [u8; 2] = [0x80, 0x35];

/// What an instance that leaves has of its surroundings.
pub trait Station {
    /// Answers requests on the control socket; whether one of them has asked it to go on.
    fn answer(&mut self) -> bool;

    /// Takes some of what waits in the rings; returns how many frames.
    fn take(&mut self, see: &mut dyn FnMut(u8, &[u8])) -> usize;

    /// Readable when a request waits.
    fn wake(&self) -> &OwnedFd;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It goes on if nothing is heard by then.
    Offered(Instant),
    Held,
    /// Once the rings were found empty, frames for a group have reached its successor as well.
    HandingOn {
        was_empty: bool,
    },
}

/// Offers `image` and stands still until it is settled that the instance goes on here. It does not return if it does not.
///
/// # Errors
/// The kernel's, when it cannot wait.
pub fn depart(socket: OwnedFd, image: &[u8], station: &mut dyn Station) -> anyhow::Result<()> {
    let mut offer = (image.len() as u64).to_le_bytes().to_vec();
    offer.extend_from_slice(image);
    if transmit(&socket, &offer).is_err() {
        return Ok(());
    }
    drop(offer);
    let mut stage = Stage::Offered(Instant::now() + OFFERED);
    let mut way = Some(socket);
    loop {
        if station.answer() {
            return Ok(());
        }
        match way.as_ref().map_or(Heard::Nothing, hear) {
            Heard::Word(b'G') => return Ok(()),
            Heard::Word(b'H') => stage = Stage::Held,
            Heard::Word(b'F') => stage = Stage::HandingOn { was_empty: false },
            Heard::Word(_) | Heard::End => way = None,
            Heard::Nothing => {
                if let (Stage::Offered(until), Some(socket)) = (stage, &way)
                    && Instant::now() > until
                {
                    // From here on nothing more can be said to it; what was said counts.
                    shutdown(socket, Shutdown::Both).context("closing the way to the daemon")?;
                }
                if let (Stage::HandingOn { was_empty }, Some(socket)) = (stage, &way) {
                    match hand_on(socket, was_empty, station) {
                        Ok(0) => stage = Stage::HandingOn { was_empty: true },
                        Ok(_) => continue,
                        Err(_) => way = None,
                    }
                }
                sleep(way.as_ref(), station.wake(), stage);
            }
        }
        if way.is_none() {
            match stage {
                Stage::Offered(_) => return Ok(()),
                Stage::Held | Stage::HandingOn { .. } => stage = Stage::Held,
            }
        }
    }
}

enum Heard {
    Word(u8),
    Nothing,
    End,
}

fn hear(socket: &OwnedFd) -> Heard {
    let mut word = [0];
    match recv(socket, &mut word, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Heard::End,
        Ok(_) => Heard::Word(word[0]),
        Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
        Err(_) => Heard::End,
    }
}

/// Returns how many frames waited.
fn hand_on(
    socket: &OwnedFd,
    without_groups: bool,
    station: &mut dyn Station,
) -> anyhow::Result<usize> {
    let mut bytes = Vec::new();
    let taken = station.take(&mut |port, frame| {
        let is_for_group = frame.first().is_some_and(|byte| byte & 1 == 1);
        if frame.get(12..14) == Some(&RARP) || (is_for_group && without_groups) {
            return;
        }
        bytes.push(port);
        bytes.extend_from_slice(&(frame.len() as u16).to_le_bytes());
        bytes.extend_from_slice(frame);
    });
    transmit(socket, &bytes)?;
    Ok(taken)
}

fn sleep(way: Option<&OwnedFd>, wake: &OwnedFd, stage: Stage) {
    let for_long = match stage {
        Stage::HandingOn { .. } => LOOK,
        Stage::Offered(_) | Stage::Held => IDLE,
    };
    let timeout = Timespec::try_from(for_long).unwrap_or_default();
    let mut fds: Vec<PollFd<'_>> = way
        .into_iter()
        .chain([wake])
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    // Interrupted or not: look.
    let _ = poll(&mut fds, Some(&timeout));
}

/// How the other hosts learn where the owner of `mac` is: they have heard a frame of it.
pub fn announcement(mac: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&RARP);
    // Ethernet, IPv4, lengths, request reverse (RFC 903).
    frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    struct Fake {
        resumed: Receiver<()>,
        frames: Receiver<(u8, Vec<u8>)>,
        empty: Sender<()>,
        wake: OwnedFd,
    }

    impl Station for Fake {
        fn answer(&mut self) -> bool {
            self.resumed.try_recv().is_ok()
        }

        fn take(&mut self, see: &mut dyn FnMut(u8, &[u8])) -> usize {
            let frames = self.frames.try_iter();
            let taken = frames.map(|(port, frame)| see(port, &frame)).count();
            if taken == 0 {
                // Nobody may want to know.
                let _ = self.empty.send(());
            }
            taken
        }

        fn wake(&self) -> &OwnedFd {
            &self.wake
        }
    }

    struct Daemon {
        way: Option<OwnedFd>,
        resume: Sender<()>,
        frames: Sender<(u8, Vec<u8>)>,
        empty: Receiver<()>,
        wake: OwnedFd,
        instance: JoinHandle<anyhow::Result<()>>,
    }

    /// An instance that has offered the state `state`.
    fn offered() -> Daemon {
        let flags = SocketFlags::CLOEXEC;
        let (way, its_way) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
        let wake = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        let (resume, resumed) = channel();
        let (frames, waiting) = channel();
        let (found, empty) = channel();
        let mut station = Fake {
            resumed,
            frames: waiting,
            empty: found,
            wake: wake.try_clone().expect("a descriptor"),
        };
        let instance = std::thread::spawn(move || depart(its_way, b"state", &mut station));
        let daemon = Daemon {
            way: Some(way),
            resume,
            frames,
            empty,
            wake,
            instance,
        };
        assert_eq!(daemon.hear(13), b"\x05\0\0\0\0\0\0\0state");
        daemon
    }

    impl Daemon {
        fn say(&self, word: u8) {
            let way = self.way.as_ref().expect("it is open");
            send(way, &[word], SendFlags::NOSIGNAL).expect("it hears");
        }

        fn hear(&self, length: usize) -> Vec<u8> {
            let mut bytes = vec![0; length];
            let mut filled = 0;
            while filled < length {
                let way = self.way.as_ref().expect("it is open");
                let (read, _) = recv(way, &mut bytes[filled..], RecvFlags::empty()).expect("said");
                assert!(read > 0, "it has gone");
                filled += read;
            }
            bytes
        }

        fn goes_on(self) {
            self.instance.join().expect("ended").expect("goes on");
        }

        /// It is there still when it was asked whether it is, and goes on when it is told.
        fn stands_still(self) {
            std::thread::sleep(Duration::from_millis(50));
            assert!(!self.instance.is_finished());
            self.resume.send(()).expect("it is there");
            rustix::io::write(&self.wake, &1u64.to_ne_bytes()).expect("an eventfd");
            self.goes_on();
        }
    }

    #[test]
    fn one_whose_daemon_dies_before_it_is_held_goes_on() {
        let mut daemon = offered();
        daemon.way = None;
        daemon.goes_on();
    }

    #[test]
    fn one_that_is_held_stands_still_when_its_daemon_dies() {
        let mut daemon = offered();
        daemon.say(b'H');
        daemon.way = None;
        daemon.stands_still();
        let mut daemon = offered();
        daemon.say(b'H');
        daemon.say(b'F');
        daemon.way = None;
        daemon.stands_still();
    }

    #[test]
    fn one_that_is_held_goes_on_when_it_is_told() {
        let daemon = offered();
        daemon.say(b'H');
        daemon.say(b'G');
        daemon.goes_on();
    }

    #[test]
    fn frames_are_handed_on_but_not_what_its_successor_has_heard_itself() {
        let daemon = offered();
        let mut group = vec![7; 60];
        group[0] = 0xff;
        let ours = announcement([2, 0, 0, 0, 0, 9]).to_vec();
        let single = vec![2; 60];
        for frame in [&group, &ours, &single] {
            daemon.frames.send((1, frame.clone())).expect("it is there");
        }
        daemon.say(b'H');
        daemon.say(b'F');
        let told = |frame: &Vec<u8>| [&[1, 60, 0], frame.as_slice()].concat();
        assert_eq!(daemon.hear(63), told(&group), "it waited before");
        assert_eq!(daemon.hear(63), told(&single));
        let later = vec![4; 60];
        daemon.empty.recv().expect("it looks again");
        for frame in [&group, &later] {
            daemon.frames.send((1, frame.clone())).expect("it is there");
        }
        assert_eq!(daemon.hear(63), told(&later));
        daemon.say(b'G');
        daemon.goes_on();
    }
}
