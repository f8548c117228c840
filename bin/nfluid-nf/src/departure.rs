//! Leaving for another host: the NF stands still at a batch edge while its daemon gives its state to another one.
//!
//! A stream socket leads to the daemon. The instance writes the length of its image (8 bytes, little-endian) and the image;
//! then it waits for words of one byte:
//!
//! | word | meaning |
//! |---|---|
//! | `H` | held: from now on it does not go on by itself |
//! | `F` | another has its place: what waits, and what still comes, is written to the socket: port (1 byte), length (2, little-endian), bytes. Where the length is 0 all was written that waited |
//! | `E` | the end: what waits now is written, then the socket is closed |
//! | `G` | it goes on here |
//!
//! **Before `H` a closed socket lets it go on, after `H` it does not:** a daemon that dies before it has told another to go on
//! has moved nothing; of one that dies later, nobody here knows what it has told. Then `resume` on the control socket says so,
//! or the process is ended.
//!
//! From the stop on it empties its rings into memory of its own ([`Luggage`]), which holds many times as much: at a high rate
//! rings are full after milliseconds, and neither the way to the other host nor who runs there keeps that time. If it goes on
//! here these frames come first.

#[cfg(test)]
mod tests;

use crate::luggage::Luggage;
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long it waits for `H`, as nobody serves the ports meanwhile. Longer than the daemon waits for the other host: that one
/// decides.
const OFFERED: Duration = Duration::from_secs(20);
/// How long the daemon may take no byte of the image.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it sleeps between two looks at its rings, while a move is under way.
const LOOK: Duration = Duration::from_micros(500);
/// Nobody knows how long it stands still in doubt: after this time without a word it looks at its rings rarely.
const LONG: Duration = Duration::from_secs(5);
/// How long it sleeps between two looks then; it is woken by words.
const IDLE: Duration = Duration::from_secs(1);
/// Reverse ARP: what another host says of itself when it has taken over an address. Not to be handed on: it is where that
/// comes from.
const RARP: [u8; 2] = [0x80, 0x35];

/// What an instance that leaves has of its surroundings.
pub trait Station {
    /// Answers requests on the control socket, with so many frames taken that are not handed on; whether one of them has asked
    /// it to go on.
    fn answer(&mut self, waiting: u64) -> bool;

    /// Takes what waits in the rings, at most so many bytes with [`HEAD`](crate::luggage::HEAD) for each frame. True: nothing
    /// waits any more.
    fn take(&mut self, most: usize, see: &mut dyn FnMut(u8, &[u8])) -> bool;

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
    /// Nothing more is taken.
    Ending,
}

impl Stage {
    fn is_handing_on(self) -> bool {
        matches!(self, Stage::HandingOn { .. } | Stage::Ending)
    }

    /// Whether a frame is for whoever has the instance's place.
    fn wants(self, frame: &[u8]) -> bool {
        let is_for_group = frame.first().is_some_and(|byte| byte & 1 == 1);
        match self {
            Stage::Offered(_) | Stage::Held => true,
            Stage::HandingOn { was_empty: false } => frame.get(12..14) != Some(&RARP),
            Stage::HandingOn { was_empty: true } | Stage::Ending => {
                frame.get(12..14) != Some(&RARP) && !is_for_group
            }
        }
    }
}

/// Offers `image` and stands still, with what comes meanwhile in `luggage`, until it is settled that the instance goes on here, with the frames that it returns before
/// any others. It does not return if it does not.
///
/// # Errors
/// The kernel's, when it cannot wait.
pub fn depart(
    socket: OwnedFd,
    image: &[u8],
    mut luggage: Luggage,
    station: &mut dyn Station,
) -> anyhow::Result<Luggage> {
    let mut offer = (image.len() as u64).to_le_bytes().to_vec();
    offer.extend_from_slice(image);
    if transmit(&socket, &offer, station, &mut luggage).is_err() {
        return Ok(luggage);
    }
    drop(offer);
    let mut stage = Stage::Offered(Instant::now() + OFFERED);
    let mut way = Some(socket);
    let mut heard_at = Instant::now();
    let mut is_marked = false;
    loop {
        if station.answer(luggage.frames()) {
            return Ok(luggage);
        }
        let heard = way.as_ref().map_or(Heard::Nothing, hear);
        if !matches!(heard, Heard::Nothing) {
            heard_at = Instant::now();
        }
        match heard {
            Heard::Word(b'G') => return Ok(luggage),
            Heard::Word(b'H') => stage = Stage::Held,
            Heard::Word(b'F') => stage = Stage::HandingOn { was_empty: false },
            Heard::Word(b'E') => {
                pack(stage, station, &mut luggage);
                stage = Stage::Ending;
            }
            Heard::Word(_) | Heard::End => way = None,
            Heard::Nothing => {
                if let (Stage::Offered(until), Some(socket)) = (stage, &way)
                    && Instant::now() > until
                {
                    // From here on nothing more can be said to it; what was said counts.
                    shutdown(socket, Shutdown::Both).context("closing the way to the daemon")?;
                }
                let is_all = stage == Stage::Ending || pack(stage, station, &mut luggage);
                if let Stage::HandingOn { was_empty } = &mut stage {
                    *was_empty |= is_all;
                }
                if let Some(socket) = way.as_ref().filter(|_| stage.is_handing_on())
                    && luggage.write(socket).is_err()
                {
                    way = None;
                }
                if luggage.is_empty() {
                    match stage {
                        Stage::HandingOn { was_empty: true } if !is_marked => {
                            luggage.push_mark();
                            is_marked = true;
                            continue;
                        }
                        Stage::Ending => way = None,
                        _ => {}
                    }
                }
                if !is_all && luggage.has_much_room() {
                    continue;
                }
                let mut fds = vec![(station.wake(), PollFlags::IN)];
                let is_writing = stage.is_handing_on() && !luggage.is_empty();
                let writable = if is_writing {
                    PollFlags::OUT
                } else {
                    PollFlags::empty()
                };
                fds.extend(way.as_ref().map(|way| (way, PollFlags::IN | writable)));
                let is_long = heard_at.elapsed() > LONG;
                sleep(&fds, if is_long { IDLE } else { LOOK });
            }
        }
        if way.is_none() {
            match stage {
                Stage::Offered(_) => return Ok(luggage),
                Stage::Held | Stage::HandingOn { .. } | Stage::Ending => stage = Stage::Held,
            }
        }
    }
}

/// Takes what waits out of the rings, as far as there is room. True: nothing waits any more.
fn pack(stage: Stage, station: &mut dyn Station, luggage: &mut Luggage) -> bool {
    station.take(luggage.room(), &mut |port, frame| {
        if stage.wants(frame) {
            luggage.push(port, frame);
        }
    })
}

/// Writes all of `bytes` to the daemon; what comes meanwhile is packed.
fn transmit(
    socket: &OwnedFd,
    mut bytes: &[u8],
    station: &mut dyn Station,
    luggage: &mut Luggage,
) -> anyhow::Result<()> {
    let mut taken_at = Instant::now();
    while !bytes.is_empty() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(socket, bytes, flags) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                taken_at = Instant::now();
            }
            Err(Errno::AGAIN) if taken_at.elapsed() > PATIENCE => {
                bail!("the daemon takes nothing for {} s", PATIENCE.as_secs())
            }
            Err(Errno::AGAIN) => {
                pack(Stage::Held, station, luggage);
                sleep(&[(socket, PollFlags::OUT)], LOOK);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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

fn sleep(fds: &[(&OwnedFd, PollFlags)], at_most: Duration) {
    let timeout = Timespec::try_from(at_most).unwrap_or_default();
    let fds = fds.iter();
    let mut fds: Vec<PollFd<'_>> = fds.map(|(fd, what)| PollFd::new(*fd, *what)).collect();
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
