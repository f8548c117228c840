//! The departure of an instance to another host: the NF stands still at a batch edge while the daemon gives its state
//! to another instance.
//!
//! A stream socket connects the instance to the daemon. The instance writes the length of its image (8 bytes,
//! little-endian) and the image. Then it waits for commands of one byte:
//!
//! | command | meaning |
//! |---|---|
//! | `H` | hold: from now on the instance does not go on by itself |
//! | `F` | forward: another instance has taken over. Frames that wait, and frames that still come, are written to the socket: port (1 byte), length (2, little-endian), bytes. A length of 0 marks that all frames that waited have been written |
//! | `E` | end: the frames that wait now are written, then the socket is closed |
//! | `G` | go on: the instance goes on here |
//!
//! **Before `H` a closed socket lets the instance go on, after `H` it does not.** A daemon that dies before it has
//! told another instance to go on has moved nothing. After that, this host cannot know what the daemon has told the
//! other one. Then `resume` on the control socket lets the instance go on, or the process is ended.
//!
//! From the stop on, the instance empties its rings into memory of its own ([`WaitingFrames`]), which holds many
//! times as much. At a high rate the rings are full after milliseconds, and neither the connection to the other host
//! nor the instance there is that fast. If the instance goes on here, these frames come first.

#[cfg(test)]
mod tests;

use crate::waiting_frames::WaitingFrames;
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time to wait for `H`, while the ports are not served. Longer than the daemon waits for the other host, so that the
/// daemon decides.
const OFFERED: Duration = Duration::from_secs(20);
/// Time for which the daemon may take no byte of the image.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the rings are emptied while a move is under way.
const LOOK: Duration = Duration::from_micros(500);
/// After this time without a command, the instance empties its rings rarely: nothing bounds the time for which it
/// stands still in doubt.
const LONG: Duration = Duration::from_secs(5);
/// The interval after that time. Commands wake the instance.
const IDLE: Duration = Duration::from_secs(1);
/// The EtherType of reverse ARP, which another host sends when it has taken over an address. Such frames are not
/// forwarded to that host.
const RARP: [u8; 2] = [0x80, 0x35];

/// The surroundings of an instance that departs.
pub trait Surroundings {
    /// Answers requests on the control socket; `waiting` is the number of frames that were taken and not forwarded.
    /// Returns true if a request asked the instance to go on.
    fn answer(&mut self, waiting: u64) -> bool;

    /// Takes frames from the rings, as packets, at most `most` bytes, with [`HEAD`](crate::waiting_frames::HEAD) for
    /// each packet. The last frame of each port may be a super-frame, and exceed the limit. Returns true if no frame
    /// waits in the rings any more.
    fn take(&mut self, most: usize, see: &mut dyn FnMut(u8, &[u8])) -> bool;

    /// Returns a descriptor that is readable when a request waits.
    fn wake(&self) -> &OwnedFd;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The image is offered. Without a command by this time, the instance goes on.
    Offered(Instant),
    Held,
    /// Frames are forwarded. Once the rings were found empty, frames for a group have reached the successor as well.
    HandingOn {
        was_empty: bool,
    },
    /// No more frames are taken.
    Ending,
}

impl Stage {
    fn is_handing_on(self) -> bool {
        matches!(self, Stage::HandingOn { .. } | Stage::Ending)
    }

    /// Returns true if a frame is for the instance that has taken over.
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

/// Offers `image` and stands still, with the frames that come meanwhile in `waiting`, until the instance is to go on
/// here. Returns the frames that the instance handles before any others. Does not return if the instance does not go
/// on.
///
/// # Errors
/// The kernel's, when it cannot wait.
pub fn depart(
    socket: OwnedFd,
    image: &[u8],
    mut waiting_frames: WaitingFrames,
    surroundings: &mut dyn Surroundings,
) -> anyhow::Result<WaitingFrames> {
    let mut offer = (image.len() as u64).to_le_bytes().to_vec();
    offer.extend_from_slice(image);
    if transmit(&socket, &offer, surroundings, &mut waiting_frames).is_err() {
        return Ok(waiting_frames);
    }
    drop(offer);
    let mut stage = Stage::Offered(Instant::now() + OFFERED);
    let mut way = Some(socket);
    let mut heard_at = Instant::now();
    let mut is_marked = false;
    loop {
        if surroundings.answer(waiting_frames.frames()) {
            return Ok(waiting_frames);
        }
        let heard = way.as_ref().map_or(Heard::Nothing, hear);
        if !matches!(heard, Heard::Nothing) {
            heard_at = Instant::now();
        }
        match heard {
            Heard::Word(b'G') => return Ok(waiting_frames),
            Heard::Word(b'H') => stage = Stage::Held,
            Heard::Word(b'F') => stage = Stage::HandingOn { was_empty: false },
            Heard::Word(b'E') => {
                take_waiting(stage, surroundings, &mut waiting_frames);
                stage = Stage::Ending;
            }
            Heard::Word(_) | Heard::End => way = None,
            Heard::Nothing => {
                if let (Stage::Offered(until), Some(socket)) = (stage, &way)
                    && Instant::now() > until
                {
                    // After this, the daemon can send no command; commands sent before it count.
                    shutdown(socket, Shutdown::Both).context("closing the way to the daemon")?;
                }
                let is_all = stage == Stage::Ending
                    || take_waiting(stage, surroundings, &mut waiting_frames);
                if let Stage::HandingOn { was_empty } = &mut stage {
                    *was_empty |= is_all;
                }
                if let Some(socket) = way.as_ref().filter(|_| stage.is_handing_on())
                    && waiting_frames.write(socket).is_err()
                {
                    way = None;
                }
                if waiting_frames.is_empty() {
                    match stage {
                        Stage::HandingOn { was_empty: true } if !is_marked => {
                            waiting_frames.push_mark();
                            is_marked = true;
                            continue;
                        }
                        Stage::Ending => way = None,
                        _ => {}
                    }
                }
                if !is_all && waiting_frames.has_much_room() {
                    continue;
                }
                let mut fds = vec![(surroundings.wake(), PollFlags::IN)];
                let is_writing = stage.is_handing_on() && !waiting_frames.is_empty();
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
                Stage::Offered(_) => return Ok(waiting_frames),
                Stage::Held | Stage::HandingOn { .. } | Stage::Ending => stage = Stage::Held,
            }
        }
    }
}

/// Takes frames out of the rings, as far as there is room. Returns true if no frame waits in the rings any more.
fn take_waiting(
    stage: Stage,
    surroundings: &mut dyn Surroundings,
    waiting_frames: &mut WaitingFrames,
) -> bool {
    surroundings.take(waiting_frames.room(), &mut |port, frame| {
        if stage.wants(frame) {
            waiting_frames.push(port, frame);
        }
    })
}

/// Writes all of `bytes` to the daemon; takes frames that come meanwhile.
fn transmit(
    socket: &OwnedFd,
    mut bytes: &[u8],
    surroundings: &mut dyn Surroundings,
    waiting_frames: &mut WaitingFrames,
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
                take_waiting(Stage::Held, surroundings, waiting_frames);
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
    // Interrupted or not, the loop checks all descriptors.
    let _ = poll(&mut fds, Some(&timeout));
}

/// Returns the frame by which other hosts learn the place of `mac`.
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
