//! The handover of ports and state to a successor, without the daemon in between: the two processes settle which of
//! them has the ports.
//!
//! A stream socket connects them. The successor writes `R` when everything but the ports is ready. The predecessor
//! stops at a batch edge and writes the length of its image (8 bytes, little-endian) and the image. The successor
//! imports the image and answers either `T` and four numbers (entries taken over, entries left out, microseconds that
//! the import took, the monotonic clock in nanoseconds; 8 bytes each), or `F`, the length of a text (2 bytes) and the
//! text. **The successor has the ports exactly if `T` was sent:** the successor touches the ports only after it could
//! send `T`. The predecessor goes on only after it has closed the socket without finding `T` there. So a death, a
//! refusal or a silence of either process leaves exactly one of them with the ports.
//!
//! Between `R` and the image, the successor may be given a copy of the predecessor's recent state for a
//! **rehearsal**: it imports the copy and forgets it. The largest cost of an import is memory that is touched for the
//! first time.

use anyhow::{Context, bail};
use nfluid_nf::stateful::{IMAGE_BYTES_MAX, Imported, StateError};
use nfluid_nf::{Nanos, NetworkFunction};
use nfluid_ring::clock::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time to wait for each step of the successor, while the ports are not served.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time for which a successor waits for the handover. Longer than the predecessor waits, so that the predecessor
/// decides.
const TURN: Duration = Duration::from_secs(30);
/// Time in which the I/O thread has to transmit the queued frames.
const SETTLING: Duration = Duration::from_millis(200);
/// Time for which a process without ports waits to be killed, before it ends itself.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest reason of a refusal in bytes.
const REASON_MAX: usize = 4096;

const READY: u8 = b'R';
const TAKEN: u8 = b'T';
const REFUSED: u8 = b'F';

/// The report of a successor that has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The result of the import.
    pub imported: Imported,
    /// Duration of the import.
    pub took: Duration,
    /// Time of the takeover, as reported by the successor. Older versions do not report it.
    pub at: Option<Nanos>,
}

/// Waits until no frame that was taken occupies a slot any more.
pub fn settle(mut is_settled: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_settled() {
        if begun.elapsed() > SETTLING {
            bail!("frames that it has sent are not taken by its I/O thread");
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Does the predecessor's part. After an error the predecessor still has the ports.
pub fn hand_over(socket: &OwnedFd, image: &[u8]) -> anyhow::Result<Taken> {
    match offer(socket, image) {
        Ok(taken) => Ok(taken),
        Err(why) => {
            // After this the successor can send nothing more; an answer sent before counts.
            shutdown(socket, Shutdown::Both).context("closing the way to the successor")?;
            match answer(socket) {
                Ok(Ok(taken)) => Ok(taken),
                _ => Err(why),
            }
        }
    }
}

fn offer(socket: &OwnedFd, image: &[u8]) -> anyhow::Result<Taken> {
    let mut ready = [0];
    receive(socket, &mut ready, PATIENCE).context("the successor is not ready")?;
    if ready != [READY] {
        bail!("what is at the other end is no successor");
    }
    send_image(socket, image).context("sending the state")?;
    answer(socket)?.map_err(|why| anyhow::anyhow!("the successor does not take over: {why}"))
}

fn send_image(socket: &OwnedFd, image: &[u8]) -> anyhow::Result<()> {
    transmit(socket, &(image.len() as u64).to_le_bytes())?;
    transmit(socket, image)
}

/// Reads the successor's answer: its report, or the reason for its refusal.
fn answer(socket: &OwnedFd) -> anyhow::Result<Result<Taken, String>> {
    let mut kind = [0];
    receive(socket, &mut kind, PATIENCE).context("the successor does not answer")?;
    match kind {
        [TAKEN] => {
            let mut numbers = [[0; 8]; 4];
            // The numbers are for the operator, and come with the answer: missing numbers change nothing.
            let _ = recv(socket, numbers.as_flattened_mut(), RecvFlags::DONTWAIT);
            let [taken, left_out, took_us, at_ns] = numbers.map(u64::from_le_bytes);
            Ok(Ok(Taken {
                imported: Imported { taken, left_out },
                took: Duration::from_micros(took_us),
                at: (at_ns > 0).then_some(Nanos(at_ns)),
            }))
        }
        [REFUSED] => {
            let mut length = [0; 2];
            receive(socket, &mut length, PATIENCE)?;
            let mut reason = vec![0; usize::from(u16::from_le_bytes(length)).min(REASON_MAX)];
            receive(socket, &mut reason, PATIENCE)?;
            Ok(Err(String::from_utf8_lossy(&reason).into_owned()))
        }
        _ => bail!("the successor answers nonsense"),
    }
}

/// The work of a successor until the handover.
pub trait Meanwhile {
    /// Returns a descriptor that is readable when there is work; it may change with each [`Meanwhile::act`].
    fn wake(&self) -> &OwnedFd;

    /// Does the work. Returns true if more may come.
    fn act(&mut self) -> bool;
}

/// Waits for the handover as a ready successor, and does other work meanwhile.
pub fn await_turn(socket: &OwnedFd, meanwhile: &mut dyn Meanwhile) -> anyhow::Result<()> {
    transmit(socket, &[READY]).context("telling the predecessor")?;
    let deadline = Instant::now() + TURN;
    let mut more = true;
    while more {
        let timeout = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))?;
        let mut fds = [socket, meanwhile.wake()].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => bail!("no turn within {} s", TURN.as_secs()),
            Err(rustix::io::Errno::INTR) => continue,
            ready => ready?,
        };
        // The predecessor's message comes first, since the ports are not served.
        if !fds[0].revents().is_empty() {
            break;
        }
        more = meanwhile.act();
    }
    Ok(())
}

/// Does the successor's part. Afterwards the successor has the ports. After an error it does not, and has to end. The
/// image is read into the memory of `buffer`.
pub fn take_over(
    socket: &OwnedFd,
    buffer: Vec<u8>,
    import: impl FnOnce(&[u8]) -> Result<Imported, StateError>,
) -> anyhow::Result<()> {
    let mut length = [0; 8];
    receive(socket, &mut length, TURN).context("the predecessor gives up nothing")?;
    let length = u64::from_le_bytes(length);
    if length > IMAGE_BYTES_MAX as u64 {
        bail!("the predecessor has {length} bytes of state, more than {IMAGE_BYTES_MAX}");
    }
    let mut image = buffer;
    image.resize(length as usize, 0);
    receive(socket, &mut image, PATIENCE).context("reading the predecessor's state")?;
    let begun = Instant::now();
    match import(&image) {
        Ok(imported) => {
            let took_us = begun.elapsed().as_micros() as u64;
            let mut taken = vec![TAKEN];
            let at_ns = monotonic_ns();
            for number in [imported.taken, imported.left_out, took_us, at_ns] {
                taken.extend(number.to_le_bytes());
            }
            transmit(socket, &taken).context("the predecessor has gone on")
        }
        Err(why) => {
            let reason = why.to_string();
            let reason = &reason.as_bytes()[..reason.len().min(REASON_MAX)];
            let mut refused = vec![REFUSED];
            refused.extend((reason.len() as u16).to_le_bytes());
            refused.extend(reason);
            transmit(socket, &refused)?;
            Err(why.into())
        }
    }
}

/// Imports the state of a predecessor of the same NF. The state of another NF is of no use: only its ports are taken
/// over.
pub fn import(
    name: &str,
    nf: &mut dyn NetworkFunction,
    now: Nanos,
    image: &[u8],
) -> Result<Imported, StateError> {
    match nfluid_nf::stateful::import(name, nf, now, image) {
        Err(StateError::Foreign { .. }) => Ok(Imported::default()),
        other => other,
    }
}

/// Waits until the daemon ends this process, or ends it after [`FAREWELL`].
pub fn leave() -> ! {
    std::thread::sleep(FAREWELL);
    std::process::exit(0)
}

/// Fills `buffer`, waiting for each piece at most for `patience`.
fn receive(socket: &OwnedFd, buffer: &mut [u8], patience: Duration) -> anyhow::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        wait_for(socket, PollFlags::IN, patience)?;
        let (read, _) = recv(socket, &mut buffer[filled..], RecvFlags::DONTWAIT)?;
        if read == 0 {
            bail!("it has gone");
        }
        filled += read;
    }
    Ok(())
}

/// Writes all of `bytes`, waiting for room each time no longer than [`PATIENCE`].
fn transmit(socket: &OwnedFd, mut bytes: &[u8]) -> anyhow::Result<()> {
    while !bytes.is_empty() {
        wait_for(socket, PollFlags::OUT, PATIENCE)?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(socket, bytes, flags) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_for(socket: &OwnedFd, what: PollFlags, patience: Duration) -> anyhow::Result<()> {
    let timeout = Timespec::try_from(patience).unwrap_or_default();
    let mut fds = [PollFd::new(socket, what)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => bail!("nothing within {} s", patience.as_secs()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair")
    }

    /// A successor without any other requests.
    fn succeed(
        socket: &OwnedFd,
        import: impl FnOnce(&[u8]) -> Result<Imported, StateError>,
    ) -> anyhow::Result<()> {
        let (silent, _its_end) = pair();
        await_turn(socket, &mut Silent(silent))?;
        take_over(socket, Vec::new(), import)
    }

    const ALL: Imported = Imported {
        taken: 300,
        left_out: 2,
    };

    // promise: 10.23
    #[test]
    fn a_large_state_is_handed_over_whole() {
        let (old, new) = pair();
        let image: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        let expected = image.clone();
        let successor = std::thread::spawn(move || {
            succeed(&new, |read| {
                assert!(read == expected);
                Ok(ALL)
            })
        });
        let taken = hand_over(&old, &image).expect("handed over");
        assert_eq!(taken.imported, ALL);
        successor.join().expect("ended").expect("has the ports");
    }

    struct Silent(OwnedFd);

    impl Meanwhile for Silent {
        fn wake(&self) -> &OwnedFd {
            &self.0
        }

        fn act(&mut self) -> bool {
            panic!("it is silent")
        }
    }

    /// Reads two bytes, and begins the handover at the second.
    struct Listening {
        other: OwnedFd,
        heard: u32,
        its_turn: Option<OwnedFd>,
    }

    impl Meanwhile for Listening {
        fn wake(&self) -> &OwnedFd {
            &self.other
        }

        fn act(&mut self) -> bool {
            let _ = recv(&self.other, &mut [0][..], RecvFlags::empty());
            self.heard += 1;
            if let Some(old) = self.its_turn.take_if(|_| self.heard == 2) {
                send_image(&old, b"state").expect("sent");
            }
            true
        }
    }

    #[test]
    fn a_successor_listens_to_another_until_its_turn_comes() {
        let (old, new) = pair();
        let (other, its_end) = pair();
        send(&its_end, b"..", SendFlags::empty()).expect("sent");
        let mut listening = Listening {
            other,
            heard: 0,
            its_turn: Some(old),
        };
        await_turn(&new, &mut listening).expect("its turn");
        assert_eq!(listening.heard, 2);
        let took = take_over(&new, vec![9; 100], |read| {
            assert_eq!(read, b"state");
            Ok(ALL)
        });
        assert!(took.is_err(), "its predecessor has gone");
    }

    // promise: 10.23
    #[test]
    fn a_refusal_is_told_and_leaves_the_ports_where_they_are() {
        let (old, new) = pair();
        let successor = std::thread::spawn(move || succeed(&new, |_| Err(StateError::Checksum)));
        let why = hand_over(&old, b"damaged").expect_err("refused");
        assert!(why.to_string().contains("checksum"), "{why:#}");
        assert!(successor.join().expect("ended").is_err());
    }

    // promise: 10.23
    #[test]
    fn a_successor_that_dies_leaves_the_ports_where_they_are() {
        let (old, new) = pair();
        drop(new);
        hand_over(&old, b"state").expect_err("nobody there");
        let (old, new) = pair();
        send(&new, b"R", SendFlags::empty()).expect("sent");
        drop(new);
        hand_over(&old, b"state").expect_err("died while it took over");
    }

    // promise: 10.23
    #[test]
    fn after_the_predecessor_has_gone_on_the_successor_cannot_take_over() {
        let (old, new) = pair();
        let successor = std::thread::spawn(move || {
            succeed(&new, |_| {
                std::thread::sleep(PATIENCE + Duration::from_millis(300));
                Ok(ALL)
            })
        });
        hand_over(&old, b"state").expect_err("too slow");
        assert!(
            successor.join().expect("ended").is_err(),
            "it must not touch the ports"
        );
    }

    // promise: 10.23
    #[test]
    fn what_was_said_before_the_end_counts() {
        let (old, new) = pair();
        send(&new, b"RT", SendFlags::empty()).expect("sent");
        drop(new);
        // The successor sent its report and died: the ports belonged to it, and are reclaimed as after any death.
        assert!(hand_over(&old, b"state").is_ok());
    }
}
